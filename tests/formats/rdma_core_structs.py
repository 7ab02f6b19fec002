# SPDX-License-Identifier: Apache-2.0
"""Reads the command structs that rdma-core's own tests declare (mlx5_prm_structs.py), as text: scapy is not needed.

Debian ships them as documentation of rdma-core. They know fields that mlx5_ifc.h of the kernel does not.
"""

from __future__ import annotations

import ast
import gzip
from pathlib import Path

import pytest

PACKAGE = "rdma-core, and allow /usr/share/doc (its tests/ folder)"
PLACES = ("/usr/share/doc/rdma-core/tests", "/usr/share/doc/python3-pyverbs/tests", "/usr/share/doc/rdma-core")
WIDTHS = {"ByteField": 8, "ShortField": 16, "IntField": 32, "LongField": 64, "MACField": 48}

Members = dict[str, tuple[int, int]]  # name -> (offset, width) in bits


def read() -> dict[str, ast.ClassDef]:
    """Classes by name, or skip the test."""
    for place in PLACES:
        for path in sorted(Path(place).glob("mlx5_prm_structs.py*")):
            data = path.read_bytes()
            text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
            return {node.name: node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)}
    pytest.skip(f"not run: no mlx5_prm_structs.py in {', '.join(PLACES)}; apt-get install {PACKAGE}")


def members(classes: dict[str, ast.ClassDef], name: str) -> Members:
    """Place of each field; nested ones count by their own names, with the outer one's before a dot."""
    found: Members = {}
    _collect(classes, name, "", 0, found)
    return found


def _collect(classes: dict[str, ast.ClassDef], name: str, prefix: str, start: int, found: Members) -> int:
    offset = start
    for call in _fields(classes[name]):
        kind = _name(call.func)
        if kind == "PadField":  # a nested one, padded to so many bytes
            inner = call.args[0]
            assert isinstance(inner, ast.Call)
            _collect(classes, _name(inner.args[2]), f"{prefix}{ast.literal_eval(inner.args[0])}.", offset, found)
            offset += 8 * ast.literal_eval(call.args[1])
            continue
        field = prefix + ast.literal_eval(call.args[0])
        if kind == "PacketField":
            offset = _collect(classes, _name(call.args[2]), f"{field}.", offset, found)
            continue
        width = _width(kind, call)
        found[field] = (offset, width)
        offset += width
    return offset


def _fields(node: ast.ClassDef) -> list[ast.Call]:
    for statement in node.body:
        if isinstance(statement, ast.Assign) and _name(statement.targets[0]) == "fields_desc":
            assert isinstance(statement.value, ast.List)
            return [call for call in statement.value.elts if isinstance(call, ast.Call)]
    raise AssertionError(f"{node.name} has no fields_desc")


def _name(node: ast.expr) -> str:
    assert isinstance(node, ast.Name)
    return node.id


def _width(kind: str, call: ast.Call) -> int:
    words = {keyword.arg: keyword.value for keyword in call.keywords}
    if kind == "BitField":
        return int(ast.literal_eval(call.args[2]))
    if kind == "StrFixedLenField":
        return 8 * int(ast.literal_eval(words.get("length") or call.args[2]))
    if kind in ("FieldListField", "PacketListField"):  # as many as the function of the packet says: a constant here
        count = words["count_from"]
        assert isinstance(count, ast.Lambda)
        each = call.args[2]
        return int(ast.literal_eval(count.body)) * (WIDTHS[_name(each.func)] if isinstance(each, ast.Call) else 0)
    return WIDTHS[kind]
