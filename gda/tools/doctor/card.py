# SPDX-License-Identifier: Apache-2.0
"""Probes of the network card: on the bus, in libibverbs, its ports, addresses, firmware rights and doorbell pages."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gda.errors import GdaError
from gda.tools.doctor.doors import UAR_KINDS
from gda.tools.doctor.line import Line, Probe, missing, not_applicable, ok, problem, unknown
from gda.tools.doctor.machine import Machine

if TYPE_CHECKING:
    from gda.nic import Gid

__all__ = ["PROBES", "mlx5_devices"]

_PORT_STATES = {1: "down", 2: "init", 3: "armed", 4: "active", 5: "active, deferred"}  # enum ibv_port_state
_ACTIVE, _ETHERNET = 4, 2  # IBV_PORT_ACTIVE, IBV_LINK_LAYER_ETHERNET
_HEADERS = 96  # bytes of headers that a path MTU needs beside it on Ethernet
_MEMBER = 0x8000  # of a P_Key: full membership, without which two limited members do not hear each other


def mlx5_devices(machine: Machine) -> list[str]:
    """Names of the devices that kernels post to directly."""
    try:
        return sorted(name for name, mlx5 in machine.verbs.devices() if mlx5)
    except GdaError:
        return []


def usable_devices(machine: Machine) -> list[str]:
    """Those, and behind them the ones that kernels reach by the proxy."""
    names = mlx5_devices(machine)
    try:
        return names + sorted(machine.verbs.proxied())
    except GdaError:
        return names


def on_the_bus(machine: Machine) -> list[Line] | Line:
    """Cards by PCI."""
    cards = machine.cards()
    names = mlx5_devices(machine) if not cards else []
    if names and machine.verbs.is_software():
        return not_applicable("the software NIC is on no bus", "It stands in for a card.", cards=[])
    if names:
        return unknown(
            f"/sys shows no card, but libibverbs lists {', '.join(names)}", "The PCI bus is hidden from this process.",
            "in a container: mount /sys of the host", cards=[],
        )  # fmt: skip
    if not cards:
        return missing(
            "no ConnectX or BlueField on the PCI bus", "GPU-initiated sending to other hosts needs one.",
            "buy or borrow a ConnectX-6 Dx or newer, or use the software NIC: GDA_NIC=software", cards=[],
        )  # fmt: skip
    lines = []
    for card in cards:
        facts = {"address": card.address, "device": card.device, "numa": card.numa}
        line = ok(f"{_part(card.device)}, {card.link}, NUMA node {card.numa}", "On the PCI bus.", **facts)
        speed = re.match(r"[\d.]+", card.link_speed)
        if speed and card.link_width.isdigit() and int(card.link_width) < 8:
            line = problem(
                line.value, "Few PCIe lanes: they bound what the card can do.",
                "a slot with 16 lanes (or the card has come up with fewer: reseat it)", **facts,
            )  # fmt: skip
        line.name = f"card {card.address}"
        lines.append(line)
    return lines


def _part(device: int) -> str:
    try:
        from gda.nic.device import PARTS
    except GdaError:  # no libibverbs
        return f"mlx5 part 0x{device:x}"
    return PARTS.get(device, f"mlx5 part 0x{device:x}")


def device_files(machine: Machine) -> Line:
    """Whether this user may open the devices."""
    if machine.verbs.is_software():
        return not_applicable("the software NIC needs none")
    files = [n for n in machine.names("/dev/infiniband") if n.startswith("uverbs")]
    if not files:
        if not machine.cards():
            return not_applicable("no /dev/infiniband/uverbs*", "They come with a card and its modules.")
        return missing(
            "no /dev/infiniband/uverbs*", "Programs reach the card through these files.",
            "modprobe ib_uverbs mlx5_ib; in a container: --device=/dev/infiniband",
        )  # fmt: skip
    refused = [f for f in files if not machine.may_open(f"/dev/infiniband/{f}")]
    if refused:
        return problem(
            f"{', '.join(refused)} may not be opened", "This user has no rights to the card.",
            "chmod 666 /dev/infiniband/uverbs* (rdma-core's udev rules do), or join its group", files=files,
        )  # fmt: skip
    return ok(", ".join(files), "This user may open them.", files=files)


def devices(machine: Machine) -> list[Line] | Line:
    """What libibverbs lists."""
    found = machine.verbs.devices()
    if not found:
        advice = "modprobe mlx5_ib, and see the lines of the kernel" if machine.cards() else "see the card's line"
        make = missing if machine.cards() else not_applicable
        if make is not_applicable:
            return not_applicable("libibverbs lists none", "There is no card.", names=[])
        return missing("libibverbs lists none", "The card is on the bus, but not in libibverbs.", advice, names=[])
    lines = []
    for name, mlx5 in sorted(found):
        if not mlx5:
            line = _not_mlx5(machine, name)
        else:
            about = machine.verbs.device(name)
            ports = int(about["phys_port_cnt"])
            kind = "the software NIC" if machine.verbs.is_software() else f"firmware {about['fw_ver']}"
            line = ok(f"{kind}, {ports} port{'s' if ports > 1 else ''}", "gda can open it.", device=name, ports=ports)
        line.name = f"device {name}"
        lines.append(line)
    return lines


def _not_mlx5(machine: Machine, name: str) -> Line:
    if name not in machine.verbs.proxied():
        return not_applicable(
            f"{name} is no mlx5 device, and neither InfiniBand, RoCE nor iWARP", "gda cannot use it.", name=name
        )
    ports = int(machine.verbs.device(name)["phys_port_cnt"])
    return ok(
        f"no mlx5 device: by the proxy, {ports} port{'s' if ports > 1 else ''}",
        "gda can open it: a host thread posts what its kernels ask for (docs/proxy.md).", proxied=name, ports=ports,
    )  # fmt: skip


def _each_port(look: Callable[[Machine, str, int, dict[str, Any]], Line], what: str) -> Callable[[Machine], Any]:
    """A probe that looks at every port of every device."""

    def probe(machine: Machine) -> list[Line] | Line:
        lines = []
        for name in usable_devices(machine):
            for port in range(1, int(machine.verbs.device(name)["phys_port_cnt"]) + 1):
                line = look(machine, name, port, machine.verbs.port(name, port))
                line.name = f"{what} {name}/{port}"
                line.facts |= {"device": name, "port": port}
                lines.append(line)
        return lines or not_applicable("no device")

    return probe


def port(machine: Machine, name: str, number: int, attributes: dict[str, Any]) -> Line:
    """State and link layer."""
    state = int(attributes["state"])
    ethernet = "Ethernet (iWARP)" if name in machine.verbs.iwarp() else "Ethernet (RoCE)"
    layer = ethernet if attributes["link_layer"] == _ETHERNET else "InfiniBand"
    rate = machine.read(f"/sys/class/infiniband/{name}/ports/{number}/rate") or "rate unknown"
    value = f"{_PORT_STATES.get(state, f'state {state}')}, {layer}, {rate}"
    facts = {"active": state == _ACTIVE, "ethernet": attributes["link_layer"] == _ETHERNET}
    if state == _ACTIVE:
        return ok(value, "Packets can be sent.", **facts)
    advice = "plug a cable (a loop of two ports will do), ip link set up; gda bench needs only one card"
    return problem(value, "No packet leaves it. gda.open() passes it over.", advice, **facts)


def gids(machine: Machine, name: str, number: int, attributes: dict[str, Any]) -> Line:
    """The address table, and which entry would be used."""
    from gda.nic.addresses import Gid, choose, wanted_index

    if name in machine.verbs.iwarp():
        return _iwarp_address(machine, name)
    table = [Gid(*row) for row in machine.verbs.gids(name, number)]
    facts: dict[str, Any] = {"chosen": None, "gids": [[g.index, g.raw.hex(), g.type] for g in table]}
    try:
        asked = wanted_index(None)
        chosen = choose(table, asked, f"{name} port {number}")
    except GdaError as error:
        return problem(
            f"{len(table)} entries, none chosen: {error.message}", "Nothing can be connected on Ethernet without one.",
            "ip addr add ADDRESS dev DEVICE; unset GDA_GID_INDEX", **facts,
        )  # fmt: skip
    facts["chosen"] = chosen.index
    why = "GDA_GID_INDEX names it" if asked is not None else _why(chosen)
    value = f"{len(table)} entries, index {chosen.index} is chosen: {chosen} {chosen.type}, {why}"
    if "no better one" in why:
        return problem(
            value, "Works on one network only.", "give the network device an IPv4 address: ip addr add ...", **facts
        )
    return ok(value, "Each side picks its own; only addresses are exchanged.", **facts)


def _iwarp_address(machine: Machine, name: str) -> Line:
    try:
        address = machine.verbs.try_connector(name)
    except GdaError as error:
        return problem(
            error.message, "Queue pairs of iWARP devices are connected by the kernel's connection manager.",
            error.advice or "apt-get install librdmacm1; modprobe rdma_ucm",
        )  # fmt: skip
    return ok(f"{address}, by the connection manager", "Others connect to it there, over TCP.", address=address)


def _why(gid: Gid) -> str:
    """Why gda.nic.addresses.choose takes an entry."""
    if gid.type == "IB":
        return "the first of the InfiniBand port"
    if gid.type == "RoCE v1":
        return "which no router passes on: there is no better one"
    if gid.is_link_local:
        return "which ends at this network: there is no better one"
    return "routed, over IPv4, the first such" if gid.is_ipv4 else "routed; there is none over IPv4"


def mtu(machine: Machine, name: str, number: int, attributes: dict[str, Any]) -> Line:
    """The path MTU that the link carries, and that of the network device."""
    active, most = 128 << int(attributes["active_mtu"]), 128 << int(attributes["max_mtu"])
    netdev = _netdev(machine, name, number)
    size = machine.read(f"/sys/class/net/{netdev}/mtu") if netdev else None
    value = f"active {active}, at most {most}" + (f"; {netdev} {size}" if size else "")
    facts = {"active": active, "most": most, "netdev": netdev, "netdev_mtu": int(size or 0)}
    if active < most and attributes["link_layer"] == _ETHERNET:
        return problem(
            value, f"Messages are cut into packets of {active} bytes: more packets than need be.",
            f"ip link set {netdev or 'DEVICE'} mtu 9000, on every hop (not needed to begin)", **facts,
        )  # fmt: skip
    if size and int(size) < active + _HEADERS:
        return problem(
            value, "The network device drops what the card sends: packets are longer than it carries.",
            f"ip link set {netdev} mtu {active + _HEADERS} or more, on every hop", **facts,
        )  # fmt: skip
    return ok(value, f"Packets of {active} bytes.", **facts)


def _netdev(machine: Machine, name: str, number: int) -> str:
    base = f"/sys/class/infiniband/{name}/ports/{number}/gid_attrs/ndevs"
    for index in machine.names(base):
        try:
            text = machine.read(f"{base}/{index}")
        except PermissionError:
            text = None
        if text:
            return text
    devices = machine.names(f"/sys/class/infiniband/{name}/device/net")
    return devices[number - 1] if len(devices) >= number else ""


def pkeys(machine: Machine, name: str, number: int, attributes: dict[str, Any]) -> Line:
    """Partition keys."""
    if name in machine.verbs.iwarp():
        return not_applicable("iWARP has none")
    keys = machine.verbs.pkeys(name, number)
    known = {index: key for index, key in enumerate(keys) if key}
    value = ", ".join(f"{index}: 0x{key:04x}" for index, key in list(known.items())[:4]) or "none"
    value += f" and {len(known) - 4} more" if len(known) > 4 else ""
    facts = {"pkeys": keys[:16]}
    if not keys or not keys[0]:
        return problem(value, "gda uses index 0, which is empty.", "look at the subnet manager's partitions", **facts)
    if keys[0] & _MEMBER == 0:
        return problem(
            value, "Index 0 is a limited member: two such do not hear each other.",
            "make this port a full member in the subnet manager", **facts,
        )  # fmt: skip
    return ok(value, "gda uses index 0, a full member.", **facts)


def devx(machine: Machine) -> list[Line] | Line:
    """Whether firmware commands are allowed: really sent."""
    lines = []
    for name in mlx5_devices(machine):
        try:
            capabilities = machine.verbs.try_devx(name)
        except GdaError as error:
            line = problem(
                error.message.splitlines()[0], "Queues for kernels are made by firmware commands, which are refused.",
                "run with CAP_NET_RAW or as root; a virtual function needs DEVX rights from the host; or "
                "GDA_POSTING=proxy: a host thread posts for kernels, without DEVX", devx=False,
            )  # fmt: skip
        else:
            recordless = bool(capabilities.get("send_dbr_mode_no_dbr_ext"))
            depth = 1 << int(capabilities.get("log_max_qp_sz", 0))
            value = f"answered; queues up to {depth} blocks"
            value += "; queues without doorbell record" if recordless else ""
            line = ok(value, "Queues for kernels can be made.", devx=True, recordless=recordless)
        line.name = f"DEVX {name}"
        line.facts |= {"device": name}
        lines.append(line)
    return lines or not_applicable("no device", devx=False)


def uar(machine: Machine) -> list[Line] | Line:
    """Which kinds of doorbell pages there are: really allocated."""
    lines = []
    for name in mlx5_devices(machine):
        try:
            answers = machine.verbs.try_uar(name)
        except GdaError as error:
            answers = dict.fromkeys(UAR_KINDS, error.message.splitlines()[0])
        works = [kind for kind in UAR_KINDS if not answers[kind]]
        refusals = "; ".join(f"{kind}: {answers[kind]}" for kind in UAR_KINDS if answers[kind])
        if not works:
            line = problem(
                f"none: {refusals}", "Nothing can be rung.", "see the line of DEVX; close programs that hold many",
                kinds=[],
            )  # fmt: skip
        elif works == ["NC"]:
            line = problem(
                f"only NC: {refusals}", "All queues share one page: no queue without doorbell record.",
                "a newer rdma-core (45 or later has NC_DEDICATED)", kinds=works,
            )  # fmt: skip
        else:
            line = ok(", ".join(works), "A page for each queue. " + (f"({refusals})" if refusals else ""), kinds=works)
        line.name = f"doorbell pages {name}"
        line.facts |= {"device": name}
        lines.append(line)
    return lines or not_applicable("no device", kinds=[])


def modes(machine: Machine) -> list[Line] | Line:
    """In which ways kernels can tell the card of their requests: each is tried."""
    lines = []
    for name in mlx5_devices(machine):
        try:
            answers = machine.verbs.try_doorbell_modes(name)
        except GdaError as error:
            answers = [("record", error.message.splitlines()[0])]
        works = [mode for mode, reason in answers if not reason]
        refusals = "; ".join(f"{mode}: {reason.splitlines()[0]}" for mode, reason in answers if reason)
        if "record" in works:
            meaning = "The first is used unless a queue pair asks for another." + (f" ({refusals})" if refusals else "")
            line = ok(", ".join(works), meaning, modes=works)
        elif works:
            line = problem(
                f"only {', '.join(works)}; {refusals}", "Queue pairs must ask for such a mode.",
                f'nic.queue_pair(doorbell="{works[-1]}"); docs/doorbells.md', modes=works,
            )  # fmt: skip
        else:
            line = problem(f"none: {refusals}", "Kernels cannot send.", "see DEVX and doorbell pages", modes=[])
        line.name = f"doorbell modes {name}"
        line.facts |= {"device": name}
        lines.append(line)
    return lines or not_applicable("no device", modes=[])


PROBES = (
    Probe("network card", "card on the bus", on_the_bus),
    Probe("network card", "device files", device_files),
    Probe("network card", "devices", devices),
    Probe("network card", "port", _each_port(port, "port")),
    Probe("network card", "addresses", _each_port(gids, "addresses")),
    Probe("network card", "MTU", _each_port(mtu, "MTU")),
    Probe("network card", "P_Keys", _each_port(pkeys, "P_Keys")),
    Probe("network card", "DEVX", devx),
    Probe("network card", "doorbell pages", uar),
    Probe("network card", "doorbell modes", modes),
)
