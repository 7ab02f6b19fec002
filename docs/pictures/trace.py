# SPDX-License-Identifier: Apache-2.0
"""Draws the pictures of docs/trace.md: `python docs/pictures/trace.py` takes them again, with a headless Chromium.

Puts of one process on the software NIC: a usual one, at a desk; and one whose packet is lost on the way, on a phone.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import gda  # noqa: E402
from gda.sim import current, faults  # noqa: E402
from tests.browser import Browser, session  # noqa: E402

# Name, whether a packet is lost, width and height in CSS pixels, dark.
PICTURES = (("trace.png", False, 1280, 800, False), ("trace_phone.png", True, 390, 844, True))


def recorded(directory: Path, *, lossy: bool) -> Path:
    """A page with a trace."""
    current()
    kernel = gda.Kernel("#include <gda/kernels/put.h>\n", target="host", trace=True)
    with gda.open() as nic:
        source, target = nic.register(np.arange(4096, dtype=np.uint8)), nic.allocate(4096)
        a, _b = nic.loopback_pair()
        with gda.trace.record() as t:
            for _ in range(20):
                kernel.gda_kernel_put[1, 1](a, target, 0, source, 0, 1024, 10**10)
            with faults("drop request first=1" if lossy else ""):
                kernel.gda_kernel_put[1, 1](a, target, 0, source, 0, 4096, 10**10)
    page = directory / f"put{lossy:d}.html"
    t.save(page)
    return page


def photograph(chromium: Browser, temporary: Path, directory: Path) -> list[Path]:
    """Take the pictures."""
    taken = []
    for name, lossy, width, height, phone in PICTURES:
        page = recorded(temporary, lossy=lossy)
        view = chromium.open(page, width=width, height=height, dark=phone, touch=phone, scale=2 if phone else 1)
        view.screenshot(directory / name)
        assert view.complaints == []
        view.close()
        taken.append(directory / name)
    return taken


if __name__ == "__main__":
    import tempfile

    with session() as chromium, tempfile.TemporaryDirectory() as temporary:
        for picture in photograph(chromium, Path(temporary), Path(__file__).parent):
            print(picture)
