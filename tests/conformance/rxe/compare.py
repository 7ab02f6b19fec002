# SPDX-License-Identifier: Apache-2.0
"""The software NIC under the rows, and what its answers are held against: answers.txt, and departures.txt.

departures.txt names every row where the kernel's first answer is not the specification's (lines `kernel | ROW | WHY`),
and has a record for every row where the software NIC does not do as the kernel does, below a line `why: ...`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from . import cable
from .bench import Bench, Row
from .record import FILE as ANSWERS
from .record import HOST, SUBJECT, blocks
from .remote import Local

FILE = Path(__file__).with_name("departures.txt")
GRACE_S = 0.005


@contextmanager
def software(directory: Path, environment: dict[str, str]) -> Iterator[Bench]:
    """A program on the software NIC, which has the guest's address, and a peer at the other end of its cable."""
    near, far = cable.ports(2)
    peer = cable.Peer(near, far, HOST, SUBJECT)
    try:
        with Local(
            directory, {**environment, "GDA_SIM_ETHERNET": f"{far}:{near}", "GDA_SIM_ADDRESS": SUBJECT}
        ) as remote:
            remote.hello(addresses=[SUBJECT])
            yield Bench(peer, remote, GRACE_S)
            assert not peer.malformed, f"the software NIC sent what the decoder refuses: {peer.malformed}"
            remote.stop()
    finally:
        peer.close()


def kernel_departs() -> dict[str, str]:
    """Rows where the kernel does not do what the specification says, and why."""
    lines = [line.split(" | ") for line in FILE.read_text().splitlines() if line.startswith("kernel | ")]
    return {row: why for _, row, why in lines}


def software_departs() -> dict[str, str]:
    """Records of the software NIC where they are not the kernel's; the line that says why is left out."""
    return {
        name: "\n".join(line for line in block.splitlines() if not line.startswith("why: "))
        for name, block in blocks(FILE).items()
    }


def reasons() -> dict[str, str]:
    """Why the software NIC does otherwise, by row."""
    found = {}
    for name, block in blocks(FILE).items():
        found[name] = next((line[5:] for line in block.splitlines() if line.startswith("why: ")), "")
    return found


def judge(row: Row, found: str) -> str | None:
    """Say what is wrong with a record of the software NIC; None if it is the kernel's, or the one of departures.txt."""
    kernel, own = blocks(ANSWERS)[row.name], software_departs().get(row.name)
    if found == (own or kernel):
        return None if own != kernel else f"departures.txt has {row.name!r}, which does not depart"
    difference = difflib.unified_diff((own or kernel).splitlines(), found.splitlines(), lineterm="", n=20)
    against = "what departures.txt has" if own else "the kernel's answer"
    return f"{row.name}: not {against}:\n" + "\n".join(list(difference)[2:])
