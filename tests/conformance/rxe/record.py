# SPDX-License-Identifier: Apache-2.0
"""What the Linux kernel answers to the rows: answers.txt. `python -m tests.conformance.rxe.record` asks it anew."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from . import cable
from .bench import Bench, Row
from .guest import Guest
from .remote import PROGRAM, Remote
from .rows import ROWS

FILE = Path(__file__).with_name("answers.txt")
HOST, SUBJECT = "10.77.0.1", "10.77.0.2"
HEADER = """\
# What the kernel's soft-RoCE ({release}) answers to the rows of rows.py: packets sent (>), its packets (<),
# completions, the queue pair's state, and what is in the region at the end. Numbers are relative: bench.py says to
# what. Written by tests/conformance/rxe/record.py; do not edit.

"""


def blocks(path: Path) -> dict[str, str]:
    """Records of a file, by name of their row."""
    texts = (block for block in path.read_text().strip().split("\n\n") if block.startswith("["))
    return {block[1 : block.index("]")]: block for block in texts}


@contextmanager
def kernel(directory: Path) -> Iterator[tuple[Guest, Bench]]:
    """A guest with a program on soft-RoCE, and a peer at the other end of its cable."""
    near, far = cable.ports(2)
    peer = cable.Peer(near, far, HOST, SUBJECT)
    script = f"/usr/bin/python3 {PROGRAM} {Guest.SHARE}"
    try:
        with Guest(directory, script, port=far, peer_port=near, address=SUBJECT, mac="52:54:00:00:00:02") as guest:
            remote = Remote(directory, guest.alive)
            remote.hello(addresses=[SUBJECT], limit_s=240)
            yield guest, Bench(peer, remote)
            assert not peer.malformed, f"the kernel sent what the decoder refuses: {peer.malformed}"
            remote.stop()
            assert guest.exit_status() == 0, guest.console()
    finally:
        peer.close()


def ask(bench: Bench, rows: list[Row]) -> str:
    """Records of rows, in their order."""
    records = []
    for number, row in enumerate(rows):
        began = time.monotonic()
        records.append(bench.run(row, number))
        print(f"{time.monotonic() - began:.2f}", row.name, file=sys.stderr, flush=True)
    return "\n\n".join(records) + "\n"


if __name__ == "__main__":
    wanted = [row for row in ROWS if not sys.argv[1:] or any(word in row.name for word in sys.argv[1:])]
    with tempfile.TemporaryDirectory() as scratch, kernel(Path(scratch)) as (running, bench):
        text = HEADER.format(release=running.release) + ask(bench, wanted)
        if len(wanted) == len(ROWS):
            FILE.write_text(text)
        else:
            sys.stdout.write(text)
