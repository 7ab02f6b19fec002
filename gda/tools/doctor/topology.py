# SPDX-License-Identifier: Apache-2.0
"""Probes of PCI Express: how far a card is from a GPU, and whether switches send their traffic by the root (ACS).

Source: PCI Express Base Specification, "Access Control Services" and "Configuration Space"; nvidia-smi's words for
distances (PIX, PXB, PHB, NODE, SYS).
"""

from __future__ import annotations

import struct

from gda.tools.doctor.line import Line, Probe, not_applicable, ok, problem, unknown
from gda.tools.doctor.machine import Machine, PciFunction

__all__ = ["PROBES", "distance"]

_EXTENDED, _ACS = 256, 0x000D  # where extended capabilities start; the one of ACS
_REDIRECTS = {4: "request redirect", 8: "completion redirect", 16: "upstream forwarding"}  # of the control register
_WORDS = {
    "PIX": "behind one PCIe switch: the shortest way",
    "PXB": "behind several PCIe switches of one root port",
    "PHB": "by the CPU's root complex",
    "NODE": "by two root complexes of one NUMA node",
    "SYS": "by the link between CPUs",
}


def distance(machine: Machine, a: PciFunction, b: PciFunction) -> str:
    """How far two functions are from each other, as nvidia-smi calls it."""
    shared = 0
    for x, y in zip(a.above, b.above, strict=False):
        if x != y or a.host_bridge != b.host_bridge:
            break
        shared += 1
    if shared:
        # Below the last shared bridge each goes by one port of the switch; more bridges are more switches.
        beyond = max(len(a.above), len(b.above)) - shared
        return "PIX" if beyond <= 1 else "PXB"
    if a.host_bridge == b.host_bridge:
        return "PHB"
    return "NODE" if a.numa == b.numa and a.numa >= 0 else "SYS"


def distances(machine: Machine) -> list[Line] | Line:
    """The nearest GPU of each card."""
    cards, gpus = machine.cards(), machine.gpus()
    if not cards or not gpus:
        return not_applicable("no card and GPU on one machine", "A card and a GPU on one switch serve each other best.")
    lines = []
    order = list(_WORDS)
    for card in cards:
        ways = {gpu.address: distance(machine, card, gpu) for gpu in gpus}
        near, way = min(ways.items(), key=lambda item: (order.index(item[1]), item[0]))
        facts = {"card": card.address, "distances": ways}
        value = f"{card.address} to GPU {near}: {way}"
        if way in {"PIX", "PXB"}:
            line = ok(value, f"{_WORDS[way][0].upper()}{_WORDS[way][1:]}.", **facts)
        else:
            line = problem(
                value, f"The nearest GPU is reached {_WORDS[way]}: less bandwidth, and on some machines none at all.",
                "choose a slot on the GPU's switch, or another card; measure with python -m gda bench", **facts,
            )  # fmt: skip
        line.name = f"distance of {card.address}"
        lines.append(line)
    return lines


def acs(machine: Machine) -> Line:
    """Whether a bridge over card or GPU sends traffic between them up to the root."""
    functions = [*machine.cards(), *machine.gpus()]
    bridges = sorted({bridge for f in functions for bridge in machine.bridges(f)})
    if not functions or not bridges:
        return not_applicable("no bridge over a card or GPU", "Switches can send peers' traffic by the CPU.", on=[])
    on: dict[str, list[str]] = {}
    unread = []
    for bridge in bridges:
        control = _acs_control(machine.read_bytes(f"/sys/bus/pci/devices/{bridge}/config"))
        if control is None:
            unread.append(bridge)
        elif control:
            words = [word for bit, word in _REDIRECTS.items() if control & bit]
            if words:
                on[bridge] = words
    if on:
        what = "; ".join(f"{bridge}: {', '.join(words)}" for bridge, words in on.items())
        return problem(
            f"on at {len(on)} of {len(bridges)} bridges ({what})",
            "What card and GPU send each other goes up to the CPU and back: slow, or refused.",
            "switch ACS off in the BIOS, or with setpci on these bridges (not under virtual machines)", on=sorted(on),
        )  # fmt: skip
    if unread:
        return unknown(
            f"{len(unread)} of {len(bridges)} bridges show only 64 bytes of their configuration",
            "Only root may read the rest.", "sudo python -m gda doctor, or sudo lspci -vvv | grep ACSCtl", on=[],
        )  # fmt: skip
    return ok(f"off at all {len(bridges)} bridges", "Switches pass traffic between card and GPU directly.", on=[])


def _acs_control(config: bytes) -> int | None:
    """The control register of Access Control Services; 0 where a bridge has none; None where it cannot be read."""
    if len(config) <= 64:
        return None
    at, seen = _EXTENDED, set()
    while _EXTENDED <= at <= len(config) - 8 and at not in seen:
        seen.add(at)
        header, version_next = struct.unpack_from("<HH", config, at)
        if header == _ACS:
            return int(struct.unpack_from("<H", config, at + 6)[0])
        at = version_next // 16  # the low 4 bits are the version
    return 0


PROBES = (
    Probe("PCI Express", "distance card to GPU", distances),
    Probe("PCI Express", "ACS", acs),
)
