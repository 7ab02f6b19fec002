# SPDX-License-Identifier: Apache-2.0
"""Bytes out of logs: `hexdump -C`, `xxd`, `tshark -x`, dwords "0x...", plain hex, the dump that libmlx5 prints.

Used by `python -m gda inspect`. Every line is hex in one of these manners, or text around it, which may say what the
bytes are. A line that is mostly hex and has something else in it is refused, with the place.
Source of libmlx5's manner: rdma-core, providers/mlx5/cq.c, dump_cqe(): four dwords a line, big-endian. The kernel's:
print_hex_dump() behind "dump error cqe".
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from gda.errors import ArgumentError

__all__ = ["Dump", "read_hex"]

_OFFSET = re.compile(r"(?:^|.*?[\s:|])(?P<offset>(?:0x)?[0-9a-fA-F]{4,16}):\s+(?P<rest>[0-9a-fA-F].*)$")
_BARE_OFFSET = re.compile(r"^\s*(?P<offset>[0-9a-fA-F]{4,8})\s\s+(?P<rest>[0-9a-fA-F]{2}\s.*)$")
_HEXDUMP_16 = re.compile(r"^(?P<offset>[0-9a-fA-F]{7})(?P<rest>( [0-9a-fA-F]{4}){1,8})\s*$")
_OD = re.compile(r"^(?P<offset>[0-9a-fA-F]{6})(?P<rest>( [0-9a-fA-F]{2}){1,16})\s*$")
_END = re.compile(r"^(?:[0-9a-fA-F]{7,8}|[0-9a-fA-F]{6})\s*$")
_HEX = re.compile(r"[0-9a-fA-F]+$")
_SIZED = re.compile(r"0x[0-9a-fA-F]+$")
# What text around a dump says that it is. Looked for in this order.
_WORDS = (
    ("got completion with error", "cqe", "libmlx5's dump of an error completion"),
    ("dump error cqe", "cqe", "the kernel driver's dump of an error completion"),
    ("cqe", "cqe", "a line that says CQE"),
    ("wqe", "wqe", "a line that says WQE"),
    ("completion", "cqe", "a line that says completion"),
    ("work request", "wqe", "a line that says work request"),
    ("doorbell record", "record", "a line that says doorbell record"),
    ("doorbell", "doorbell", "a line that says doorbell"),
)


@dataclass
class Dump:
    """What was read: the bytes, in which manner, and what the text around them says that they are ("" if nothing)."""

    data: bytes = b""
    manner: str = ""
    kind: str = ""
    why: str = ""
    text: list[str] = field(default_factory=list)  # lines that were no hex


def read_hex(text: str, where: str = "") -> Dump:
    """Read all the hex in a piece of a log; it belongs together.

    Raises ArgumentError with line and column for a digit that is none, a gap in the offsets, or no hex at all.
    """
    found = Dump()
    data = bytearray()
    first: int | None = None
    repeat = False
    for number, line in enumerate(text.splitlines(), 1):
        at = f"{where + ', ' if where else ''}line {number}"
        if not line.strip():
            continue
        if line.strip() == "*" and data:
            repeat = True
            continue
        if _END.match(line) and first is not None and data:  # the offset behind the last byte
            end = int(line, 16) - first
            if repeat:
                _fill(data, end, at, 1)
            repeat = False
            continue
        offset, piece, manner = _line(line, at)
        if piece is None:
            found.text.append(line.strip())
            continue
        if offset is not None:
            if first is None:
                first = offset - len(data)
            if repeat:
                _fill(data, offset - first, at, line.find(f"{offset:x}") + 1)
            elif offset - first != len(data):
                raise ArgumentError(
                    f"{at}: its offset is {offset:#x}, but {first + len(data):#x} was to follow: "
                    f"{len(data)} bytes were read so far",
                    "give one whole dump; a line is missing, cut off or there twice",
                )
        repeat = False
        found.manner = found.manner or manner
        data += piece
    if not data:
        raise ArgumentError(
            f"no hex in {where or 'what was given'}" + (f": {found.text[0][:60]!r}" if found.text else ""),
            "give bytes as hexdump -C, xxd, tshark -x or libmlx5 print them, or as 0x01234567 0x89abcdef",
        )
    found.data = bytes(data)
    said = "\n".join(found.text).lower()
    for words, kind, why in _WORDS:
        if words in said:
            found.kind, found.why = kind, why
            break
    return found


def _fill(data: bytearray, end: int, at: str, column: int) -> None:
    """What `*` stands for: the last sixteen bytes again, up to the next offset."""
    row = data[-16:]
    missing = end - len(data)
    if missing <= 0 or missing % len(row) or missing > 1 << 20:
        raise ArgumentError(f"{at}, column {column}: `*` stands for {missing} bytes, which no repeated line gives")
    data += row * (missing // len(row))


def _line(line: str, at: str) -> tuple[int | None, bytes | None, str]:
    """Offset, bytes and manner of one line; no bytes: it is text."""
    if match := _HEXDUMP_16.match(line):  # hexdump without -C: words of the host, low byte first
        words = match["rest"].split()
        return int(match["offset"], 16), b"".join(bytes.fromhex(w)[::-1] for w in words), "hexdump's 16-bit words"
    if match := _OD.match(line):
        return int(match["offset"], 16), bytes.fromhex(match["rest"]), "od's bytes"
    if match := _BARE_OFFSET.match(line):
        rest = match["rest"].split("|")[0]
        manner = "hexdump -C" if "|" in match["rest"] else "tshark -x"
        if manner == "tshark -x":
            rest = re.split(r"\s{3,}", rest)[0]
        return int(match["offset"], 16), _digits(rest, line, match.start("rest"), at), manner
    if (match := _OFFSET.match(line)) and not match["rest"].startswith("0x"):
        rest = re.split(r"\s\s+", match["rest"].split("|")[0])
        two = len(rest) > 1 and all(len(t) == 2 and _HEX.match(t) for t in (*rest[0].split(), *rest[1].split()))
        shown = " ".join(rest[:2]) if two and len(rest[0].split()) == len(rest[1].split()) == 8 else rest[0]
        return int(match["offset"], 16), _digits(shown, line, match.start("rest"), at), "lines with offsets"
    return None, *_plain(line, at)


def _plain(line: str, at: str) -> tuple[bytes | None, str]:
    tokens = [(m.group(), m.start()) for m in re.finditer(r"[^\s,;{}()\[\]=]+", line)]
    sized = [t for t, _ in tokens if t.lower().startswith("0x")]
    if sized:
        if len(sized) * 2 < len(tokens) or not any(_SIZED.match(t) for t in sized):
            return None, ""  # numbers in a sentence
        return _sized(tokens, at), "numbers 0x..."
    if not _mostly_hex([t for t, _ in tokens]):
        return None, ""
    text = "".join(t for t, _ in tokens)
    manner = "plain hex"
    if len(tokens) == 4 and all(len(t) == 8 for t, _ in tokens):
        manner = "four dwords a line"
    return _digits(text if len(tokens) == 1 else line, line, 0, at), manner


def _mostly_hex(tokens: list[str]) -> bool:
    """Whether a line is meant as hex: most of it is, and in whole bytes. "bad", "added" or "dead" alone are words."""
    good = [t for t in tokens if _HEX.match(t.removeprefix("0x")) and len(t) % 2 == 0]
    if not good:
        return False
    if len(tokens) == 1:
        return any(c.isdigit() for c in tokens[0]) or len(tokens[0]) >= 8
    return len(good) * 2 > len(tokens) and any(c.isdigit() for t in good for c in t)


def _digits(text: str, line: str, start: int, at: str) -> bytes:
    data = bytearray()
    place = start
    for match in re.finditer(r"[^\s,;{}()\[\]=:-]+", text):
        token = match.group()
        place = line.find(token, place)
        for i, c in enumerate(token):
            if c not in "0123456789abcdefABCDEF":
                raise ArgumentError(f"{at}, column {place + i + 1}: {c!r} of {token!r} is no hex digit")
        if len(token) % 2:
            raise ArgumentError(
                f"{at}, column {place + 1}: {token!r} has {len(token)} digits, so half a byte is missing"
            )
        data += bytes.fromhex(token)
        place += len(token)
    return bytes(data)


def _sized(tokens: list[tuple[str, int]], at: str) -> bytes:
    """Numbers 0x...: bytes when all have at most two digits, dwords up to eight, eight bytes above."""
    numbers = [t for t, _ in tokens if _SIZED.match(t)]
    as_bytes = len(numbers) > 2 and all(len(t) <= 4 for t in numbers) and any(len(t) == 4 for t in numbers)
    data = bytearray()
    for token, place in tokens:
        if not _SIZED.match(token):
            if token.lower().startswith("0x"):
                bad = next(i for i, c in enumerate(token[2:]) if c not in "0123456789abcdefABCDEF") + 2
                raise ArgumentError(f"{at}, column {place + bad + 1}: {token[bad]!r} of {token!r} is no hex digit")
            continue
        digits = len(token) - 2
        if digits > 16:
            raise ArgumentError(f"{at}, column {place + 1}: {token[:20]}... has {digits} digits, more than 8 bytes")
        size = 1 if as_bytes else 4 if digits <= 8 else 8
        data += int(token, 16).to_bytes(size, "big")
    return bytes(data)
