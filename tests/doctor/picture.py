# SPDX-License-Identifier: Apache-2.0
"""Draws docs/pictures/doctor.svg: `python -m tests.doctor.picture [FILE]`. tests/doctor/test_picture.py compares.

A played server with two ConnectX-7 and two GPUs, on which three things are wrong.
"""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from gda.tools.doctor import examine
from gda.tools.doctor.show import picture, show
from tests.doctor.machines import MODES, SWITCH, server

FILE = Path(__file__).resolve().parents[2] / "docs/pictures/doctor.svg"
GROUPS = ("network card", "GPU", "PCI Express")  # the rest would make it as tall as a house


def shown(root: Path) -> Console:
    """A console that has recorded what doctor shows of that server."""
    played = server(root)
    played.pci(f"{SWITCH}/0000:82:00.0", 0xC030, 0x1000, 0x060400, acs=0x1D)
    played.write("/proc/driver/nvidia/params", 'RegistryDwords: ""\n')
    played.verbs.uar_on_gpu = ""
    played.verbs.modes = [(mode, "" if mode == "cpu" else "CUDA_ERROR_NOT_PERMITTED") for mode in MODES]
    played.verbs.names.pop()
    played.cuda.names.pop()
    for address in ("0000:84:00.0", "0000:86:00.0"):
        played.remove(f"/sys/bus/pci/devices/{address}")
    report = examine(played.machine, isolate=False)
    report.lines[:] = [line for line in report.lines if line.group in GROUPS]
    console = Console(
        highlight=False, width=80, record=True, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    show(report, console)
    return console


def draw(file: Path = FILE) -> None:
    """Write the picture."""
    with tempfile.TemporaryDirectory() as root:
        file.write_text(picture(shown(Path(root))))


if __name__ == "__main__":
    draw(*map(Path, sys.argv[1:2]))
