# SPDX-License-Identifier: Apache-2.0
"""`python -m gda inspect`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from gda.errors import ArgumentError

__all__ = ["add", "run"]


def add(command: Callable[..., argparse.ArgumentParser]) -> None:
    """Declare the command: its arguments and what runs it."""
    inspect = command(
        "inspect",
        help="what the bytes in a log mean: work requests, completions, records, doorbells, commands, packets, handles",
        description="Reads hex as hexdump -C, xxd, tshark -x and libmlx5 print it, or as 0x01234567 0x89abcdef; shows "
        "it field by field and says what happened. Guesses what it is, and says for what it takes it.",
        epilog="examples: ibv_rc_pingpong 2>&1 | python -m gda inspect; python -m gda inspect --as doorbell "
        "0x00000500 0x00004800; python -m gda inspect --diff good.txt bad.txt",
    )
    inspect.set_defaults(run=run)
    inspect.add_argument(
        "--as", dest="kind", metavar="KIND", default="",
        help="what it is: wqe, cqe, record, cq-record, doorbell, cq-doorbell, command, answer, packet, handle, status, "
        "event, or the name of a format, such as qpc",
    )  # fmt: skip
    inspect.add_argument("--of", metavar="COMMAND", default="", help="whose answer it is, such as QUERY_QP")
    inspect.add_argument(
        "--diff", action="store_true", help="compare two: only the fields that differ; each a file, or hex in one word"
    )
    inspect.add_argument("what", nargs="*", metavar="HEX", help="hex, or a file; without any, standard input (also -)")


def run(options: argparse.Namespace) -> int:
    """Show it; 0."""
    from gda.tools.inspect import differences, inspect

    if options.diff:
        if len(options.what) != 2:
            raise ArgumentError(
                f"--diff compares two, here are {len(options.what)}", "give two files, or the hex of each in quotes"
            )
        print(differences(*(_text([word]) for word in options.what), kind=options.kind, command=options.of))
        return 0
    print(inspect(_text(options.what), kind=options.kind, command=options.of))
    return 0


def _text(words: list[str]) -> str | bytes:
    """Hex on the command line, the text of a file, or standard input; a file of other bytes as they are."""
    if words in ([], ["-"]):
        data = sys.stdin.buffer.read()
    elif len(words) == 1 and Path(words[0]).is_file():
        data = Path(words[0]).read_bytes()
    else:
        return " ".join(words)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return data
    return text if text.isprintable() or not any(c < " " and c not in "\t\r\n" for c in text) else data
