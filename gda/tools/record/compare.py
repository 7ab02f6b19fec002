# SPDX-License-Identifier: Apache-2.0
"""The differences of two records, in the order of what they mean. Called by `python -m gda record diff`.

Capabilities come first, since they explain what follows; then commands, then what each step led to: outcome, data,
completions, requests. Numbers that differ from run to run are compared by their place: the first queue pair number of
a step is qpn#1, the second qpn#2, so that a completion that names another queue pair is still seen. What is not
compared at all is listed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gda.errors import ArgumentError
from gda.tools.record.journal import SCHEMA

__all__ = ["NOT_COMPARED", "NUMBERED", "Comparison", "Difference", "compare"]

# Fields compared by the order of first appearance, by what they number.
NUMBERED: dict[str, str] = {
    **dict.fromkeys(("qpn", "remote_qpn", "qp_or_sq", "input_qpn", "rqpn"), "qpn"),
    **dict.fromkeys(("cqn", "cqn_snd", "cqn_rcv"), "cqn"),
    **dict.fromkeys(("lkey", "rkey"), "key"),
    **dict.fromkeys(("mkey_index",), "mkey"),
    **dict.fromkeys(("addr", "raddr"), "address"),
    **dict.fromkeys(("cq_umem_id", "wq_umem_id", "dbr_umem_id"), "umem"),
    **dict.fromkeys(("user_index", "srqn_uidx"), "user"),
    **dict.fromkeys(("rgid_rip", "source_l3_address"), "gid"),
    **dict.fromkeys(("rmac_47_32", "source_mac_47_32"), "mac-high"),
    **dict.fromkeys(("rmac_31_0", "source_mac_31_0"), "mac-low"),
    "pd": "pd", "uar_page": "page", "c_eqn_or_apu_element": "eqn",
}  # fmt: skip
# Fields that mean nothing in another run, and why.
NOT_COMPARED: dict[str, str] = {
    "ns": "times: how long a command or step took", "timestamp": "the card's clock in completions",
    "made": "when it was recorded", "hex": "bytes: their fields are compared", "in": "bytes of commands",
    "out": "bytes of answers", "text": "what was printed, or an error's words",
    "udp_sport": "made of queue pair numbers", "signature": "a checksum over fields that differ",
    "machine": "the host", "name of the NIC": "as the system counts",
    "node_guid": "the card's own number", "sys_image_guid": "the card's own number",
}  # fmt: skip
_MISSING = "nothing"


@dataclass(frozen=True)
class Difference:
    """One difference: where (capabilities, commands, steps), of what, and the two values."""

    area: str
    where: str
    first: Any
    second: Any

    def __str__(self) -> str:
        return f"{self.where}: {_shown(self.first)} / {_shown(self.second)}"

    @property
    def kind(self) -> tuple[Any, ...]:
        """The same for differences that are one and the same at several places."""
        place = re.sub(r"\[[^\]]*\]| \d+", "", self.where)
        return self.area, place, repr(self.first), repr(self.second)


@dataclass(frozen=True)
class Comparison:
    """All differences in order, how many values were compared, and which kinds of fields were not."""

    differences: list[Difference]
    compared: int
    not_compared: dict[str, str]


def compare(first: dict[str, Any], second: dict[str, Any]) -> Comparison:
    """Compare two records. Raises ArgumentError for what is none, or is of another schema."""
    for record in (first, second):
        if not isinstance(record, dict) or "schema" not in record or "steps" not in record:
            raise ArgumentError("this is no record of gda", "python -m gda record --out FILE makes one")
        if record["schema"] != SCHEMA:
            raise ArgumentError(
                f"a record of schema {record['schema']}, not {SCHEMA}", "record again with this version of gda"
            )
    flat = [_Flat(record) for record in (first, second)]
    found, compared = [], 0
    for area in ("nic", "capabilities", "commands", "steps"):
        a, b = (f.areas[area] for f in flat)
        for where in [*a, *(w for w in b if w not in a)]:
            compared += 1
            one, other = a.get(where, _MISSING), b.get(where, _MISSING)
            if one != other:
                found.append(Difference(area, where, one, other))
    return Comparison(_without_consequences(found), compared, NOT_COMPARED)


def _without_consequences(found: list[Difference]) -> list[Difference]:
    """A command, step, request or completion that only one record has is one difference, not one of each field."""
    lone = {d.where for d in found if _MISSING in (d.first, d.second) and d.where.endswith("]")}
    return [d for d in found if not any(d.where != w and d.where.startswith(w) for w in lone)]


def _shown(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int):
        return str(value)
    return f"{value}" if value < 10 else f"{value} ({value:#x})"


class _Flat:
    """A record as {where: value} for each area; numbers that differ from run to run are replaced by their order."""

    def __init__(self, record: dict[str, Any]) -> None:
        self._seen: dict[str, dict[str, dict[Any, int]]] = {}  # by step and kind: which number stands for which
        self._step = ""
        # Keys and addresses of registered memory stand for themselves: one in another's place is seen.
        regions = record.get("regions", [])
        self._known = {
            "key": {r["key"]: i for i, r in enumerate(regions, 1)},
            "address": {r["address"]: i for i, r in enumerate(regions, 1)},
        }
        self.areas: dict[str, dict[str, Any]] = {
            "nic": {"the other end": record.get("peer"), **dict(self._nic(record.get("nic", {})))},
            "capabilities": {
                f"capability {group}.{name}": value
                for group, fields in record.get("capabilities", {}).items() for name, value in fields.items()
            },
            "commands": dict(self._commands(record.get("commands", []))),
            "steps": dict(self._steps(record.get("steps", []))),
        }  # fmt: skip

    def _nic(self, nic: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        for name, value in nic.items():
            if name == "name":
                continue
            if name == "gids":
                yield "nic gids", [kind for _, kind in value]
            else:
                yield from self._leaves(f"nic {name}", value)

    def _commands(self, commands: list[dict[str, Any]]) -> Iterator[tuple[str, Any]]:
        ordinal: dict[tuple[str, str], int] = {}
        for command in commands:
            self._step = command["step"]
            key = (command["step"], command["name"])
            ordinal[key] = ordinal.get(key, 0) + 1
            where = f"command {command['name']} {ordinal[key]} of step [{command['step']}]"
            yield where, "issued"
            # What was answered first: it tells more than what was asked.
            yield from self._leaves(f"{where} answer", command["out_fields"])
            yield from self._leaves(f"{where} field", command["in_fields"])

    def _steps(self, steps: list[dict[str, Any]]) -> Iterator[tuple[str, Any]]:
        for step in steps:
            where, self._step = f"step [{step['name']}]", step["name"]
            yield where, "tried"
            for name in ("outcome", "data", "fetched", "state"):
                if name in step:
                    yield f"{where} {name}", step[name]
            for name, value in step.get("error", {}).items():
                yield from self._leaves(f"{where} error {name}", value, name)
            for kind in ("completions", "receives"):
                for number, entry in enumerate(step.get(kind, [])):
                    inner = f"{where} {kind.removesuffix('s')} [{number}]"
                    yield inner, entry["kind"]
                    yield from self._leaves(inner, entry.get("fields", {}))
            for number, request in enumerate(step.get("requests", [])):
                inner = f"{where} request [{number}]"
                yield inner, "posted"
                for at, part in enumerate(request["parts"]):
                    yield from self._leaves(f"{inner} {part['format']} {at}", part["fields"])

    def _numbers(self, kind: str) -> dict[Any, int]:
        seen = self._seen.setdefault(self._step, {})
        return seen.setdefault(kind, dict(self._known.get(kind, {})))

    def _leaves(self, where: str, value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
        if name in NOT_COMPARED or name == "command":
            return
        if isinstance(value, dict):
            for key, inner in value.items():
                yield from self._leaves(f"{where} {key}", inner, key)
        elif name in NUMBERED and value not in (0, "", None) and not _is_zero(value):
            kind = NUMBERED[name]
            numbers = self._numbers(kind)
            yield where, f"{kind}#{numbers.setdefault(value, len(numbers) + 1)}"
        else:
            yield where, value


def _is_zero(value: Any) -> bool:
    return isinstance(value, str) and not value.strip("0")
