# SPDX-License-Identifier: Apache-2.0
"""`python -m gda pcap`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

__all__ = ["add", "run"]


def add(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Declare the command: its arguments and what runs it."""
    pcap = command(
        "pcap",
        help="a capture of RoCE packets in words",
        description="Shows each packet of a pcapng file: what it says, who posted it, what became of it, what was sent "
        "again and what answers what. A capture of the software NIC: python -m gda sim run --pcap FILE -- PROGRAM.",
        epilog="Wireshark shows the comments too: tshark -r FILE -T fields -e frame.comment",
    )
    pcap.set_defaults(run=run)
    pcap.add_argument("file", type=Path, help="the capture, pcapng")
    pcap.add_argument("--out", type=Path, metavar="FILE", help="write a copy with these words as its packets' comments")


def run(options: argparse.Namespace) -> int:
    """Show the file; 0."""
    from gda.tools.pcap import annotate, read, show

    show(read(options.file))
    if options.out is not None:
        print(f"wrote {annotate(options.file, options.out)} packets to {options.out}")
    return 0
