# SPDX-License-Identifier: Apache-2.0
"""Draws the pictures of docs/guide.md: `python docs/pictures/guide.py [FOLDER]`.

A put as the parties see it, and the ring of work requests. Narrow, so that their words can be read on a phone.
tests/documents/test_guide.py draws them again and compares.
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

HERE = Path(__file__).resolve().parent
WIDTH = 440
INK, PALE, BLUE, GREEN, AMBER = "#1f2933", "#cbd2d9", "#2f6fb0", "#2e7d4f", "#b7791f"


class Drawing:
    """An SVG of a white sheet."""

    def __init__(self, height: int, title: str) -> None:
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
            f'font-size="14" role="img" aria-label="{escape(title)}">',
            '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            f'<path d="M0 0L8 4L0 8z" fill="{INK}"/></marker></defs>',
            f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>',
        ]

    def box(
        self, x: int, y: int, w: int, h: int, words: str = "", *, fill: str = "#f5f7fa", line: str = PALE
    ) -> None:
        """A box with lines of words in its middle."""
        self.parts.append(f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="4" fill="{fill}" stroke="{line}"/>')
        lines = words.split("\n") if words else []
        for number, line_ in enumerate(lines):
            self.text(x + w // 2, y + h // 2 + 5 + round((number - (len(lines) - 1) / 2) * 17), line_, middle=True)

    def text(self, x: int, y: int, words: str, *, middle: bool = False, ink: str = INK, bold: bool = False) -> None:
        """One line."""
        anchor = ' text-anchor="middle"' if middle else ""
        weight = ' font-weight="bold"' if bold else ""
        self.parts.append(f'<text x="{x}" y="{y}" fill="{ink}"{anchor}{weight}>{escape(words)}</text>')

    def arrow(self, *points: tuple[int, int]) -> None:
        """A line through these points with a tip at its end."""
        path = " ".join(f"{'L' if at else 'M'}{x} {y}" for at, (x, y) in enumerate(points))
        self.parts.append(f'<path d="{path}" fill="none" stroke="{INK}" stroke-width="1.5" marker-end="url(#tip)"/>')

    def number(self, x: int, y: int, step: int) -> None:
        """The number of a step."""
        self.parts.append(f'<circle cx="{x}" cy="{y}" r="10" fill="{BLUE}"/>')
        self.text(x, y + 5, str(step), middle=True, ink="#ffffff", bold=True)

    def done(self) -> str:
        """The file's text."""
        return "\n".join([*self.parts, "</svg>", ""])


def put() -> str:
    """One put: who writes what, and who reads it."""
    d = Drawing(466, "A put: the kernel writes request, record and doorbell; the NIC fetches, sends and completes")
    d.box(20, 16, 400, 40, "a thread of your kernel", fill="#e6f0fa", line=BLUE)
    d.text(20, 96, "memory", ink=AMBER)
    d.box(20, 104, 130, 92, fill="#fdf6e3", line=AMBER)
    d.text(30, 124, "ring of requests")
    for slot in range(4):
        d.box(32 + 27 * slot, 140, 25, 40, fill="#f6d98f" if slot == 0 else "#ffffff", line=AMBER)
    d.box(164, 104, 98, 92, "doorbell\nrecord: 1", fill="#fdf6e3", line=AMBER)
    d.box(20, 352, 130, 60, "completion\nof request 0", fill="#fdf6e3", line=AMBER)
    d.box(290, 104, 130, 92, "doorbell\nregister", fill="#e8f5ec", line=GREEN)
    d.box(180, 262, 240, 150, fill="#e8f5ec", line=GREEN)
    d.text(300, 286, "the NIC", middle=True, bold=True)
    d.text(196, 312, "looks at the record, fetches")
    d.text(196, 330, "the request and the bytes it")
    d.text(196, 348, "names, sends packets, waits")
    d.text(196, 366, "for the answer")
    for x, y in ((85, 104), (213, 104), (355, 104)):
        d.arrow((x, 56), (x, y))
    d.arrow((355, 196), (355, 262))
    d.arrow((85, 196), (85, 230), (220, 230), (220, 262))
    d.arrow((180, 382), (150, 382))
    d.arrow((8, 382), (8, 36), (20, 36))
    d.parts.append(f'<path d="M20 382L8 382" stroke="{INK}" stroke-width="1.5"/>')
    d.arrow((300, 412), (300, 448))
    d.text(312, 440, "the wire, the peer")
    for step, (x, y) in enumerate(((104, 80), (232, 80), (374, 80), (374, 230), (104, 216), (280, 430), (164, 366)), 1):
        d.number(x, y, step)
    d.number(28, 218, 8)
    return d.done()


def ring() -> str:
    """The ring: who owns which slots."""
    d = Drawing(196, "The ring of work requests: done, ready and reserved say who owns which slots")
    names = ("free", "free", "NIC's", "NIC's", "NIC's", "thread's", "thread's", "free")
    colours = {"free": "#ffffff", "NIC's": "#e8f5ec", "thread's": "#e6f0fa"}
    for slot, name in enumerate(names):
        d.box(20 + 50 * slot, 70, 48, 44, str(slot), fill=colours[name], line=INK if name != "free" else PALE)
    for x, name in ((120, "done"), (270, "ready"), (370, "reserved")):
        d.text(x, 30, name, bold=True, middle=True)
        d.arrow((x, 36), (x, 66))
    d.text(194, 136, "the NIC's: told, perhaps sent", middle=True, ink=GREEN)
    d.text(320, 156, "threads': being written", middle=True, ink=BLUE)
    d.text(220, 182, "counters only grow; slot = counter modulo 8", middle=True)
    return d.done()


def signal() -> str:
    """Data, then signal: why who sees the word sees the bytes."""
    d = Drawing(250, "Data, then signal: both travel on one queue, so the signal lands behind the data")
    d.text(86, 26, "here", middle=True, bold=True)
    d.text(354, 26, "the other side", middle=True, bold=True)
    d.box(20, 40, 132, 60, "src: the bytes", fill="#fdf6e3", line=AMBER)
    d.box(288, 40, 132, 60, "dst: the bytes", fill="#fdf6e3", line=AMBER)
    d.box(20, 128, 132, 60, "1 more", fill="#e6f0fa", line=BLUE)
    d.box(288, 128, 132, 60, "signal word\n0, then 1", fill="#e6f0fa", line=BLUE)
    d.arrow((152, 70), (288, 70))
    d.arrow((152, 158), (288, 158))
    d.number(220, 70, 1)
    d.number(220, 158, 2)
    d.text(220, 118, "one queue: in order", middle=True)
    d.text(354, 212, "a kernel waits for the", middle=True)
    d.text(354, 230, "word, then reads dst", middle=True)
    d.text(86, 212, "a ticket says when", middle=True)
    d.text(86, 230, "src may change", middle=True)
    return d.done()


PICTURES = {"guide_put.svg": put, "guide_ring.svg": ring, "guide_signal.svg": signal}

if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    for name, draw in PICTURES.items():
        (folder / name).write_text(draw())
