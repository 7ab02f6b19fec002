# SPDX-License-Identifier: Apache-2.0
"""Opens a NIC and says what it can do. The first call of every program: `gda.open()`.

GDA_NIC decides: "real" takes a device of this machine, "software" the software ConnectX, "auto" (default) a real one
with an active port if there is one, else the software one, attached to this process. mlx5 devices come first: kernels
post to them directly. To others (Linux's soft-RoCE, cards of other makers) a host thread posts for them, and
GDA_POSTING=proxy asks for that on an mlx5 device, too: docs/proxy.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gda import _verbs, attach, config, formats
from gda.errors import ArgumentError, CommandError, UnavailableError, VerbsError
from gda.nic import command, counters, doorbell_modes, lint
from gda.nic.addresses import Gid, choose, wanted_index
from gda.nic.batch import KnownMemory
from gda.nic.carrier import check_posting
from gda.nic.connector import Connector
from gda.nic.doorbell import DoorbellPages
from gda.nic.gpu import Gpu, use_gpu
from gda.nic.host_queue import HostQueuePair
from gda.nic.lifetime import Owner, Resources, working
from gda.nic.memory import Memory
from gda.nic.proxy import Proxy
from gda.nic.queue import QueuePair, connect
from gda.nic.ringer import Ringer
from gda.nic.shared import SharedRegions

__all__ = ["PARTS", "Capabilities", "Gid", "Nic", "Port", "can_be_proxied", "is_iwarp", "open"]

PARTS = {  # PCI device ids (pci-ids.ucw.cz, vendor 15b3)
    0x1017: "ConnectX-5", 0x1019: "ConnectX-5 Ex", 0x101B: "ConnectX-6", 0x101D: "ConnectX-6 Dx",
    0x101F: "ConnectX-6 Lx", 0x1021: "ConnectX-7", 0x1023: "ConnectX-8", 0xA2D6: "BlueField-2", 0xA2DC: "BlueField-3",
}  # fmt: skip

_MELLANOX = (0x02C9, 0x15B3)  # vendor ids: by OUI as libibverbs tells it, and by PCI


def open(name: str | None = None, *, port: int = 1, gpu: int = 0, posting: str | None = None) -> Nic:
    """Open a NIC: the one of that name, or the first that fits GDA_NIC. `gpu` is the device that kernels run on.

    `posting` says who posts what its queue pairs' kernels ask for: "direct" the kernels themselves, "proxy" a host
    thread. Left out, GDA_POSTING says it; by default "direct" on mlx5 devices and "proxy" on others.
    Raises ArgumentError for an unknown name (with the names that exist), UnavailableError when there is no NIC, or when
    kernels cannot post to the one named.
    """
    mode = config.get("GDA_NIC")
    wanted = config.get("GDA_POSTING")
    posting = check_posting(posting, "direct") if posting is not None else None if wanted == "auto" else wanted
    software = attach.loaded() is not None
    if mode == "real" and software:
        raise UnavailableError(
            "GDA_NIC=real, but the software NIC is attached to this process", "open real NICs in a process of their own"
        )
    devices = [] if mode == "software" and not software else _devices()
    chosen = _pick(devices, name, port, software or mode == "real", posting)
    if chosen is None and mode != "real" and not software:
        seen = devices
        attach.software_nic()
        devices = _devices()
        chosen = _pick(devices, name, port, True, posting)
        devices = [*seen, *devices]
    if chosen is None:
        raise _no_device(name, devices, mode)
    return Nic(chosen, port=port, gpu=gpu, posting=posting)


def _devices() -> list[_verbs.Device]:
    try:
        return _verbs.ibv_get_device_list()
    except VerbsError:  # a kernel without InfiniBand
        return []


def _pick(
    devices: list[_verbs.Device], name: str | None, port: int, any_state: bool, posting: str | None
) -> str | None:
    if name is not None:
        return next((d.name for d in devices if d.name == name), None)
    # In the order of their names: libibverbs lists them in that of a directory.
    ordered = sorted(devices, key=lambda d: (not d.mlx5, is_iwarp(d), len(d.name), d.name))
    candidates = [d.name for d in ordered if d.mlx5 or (posting != "direct" and can_be_proxied(d))]
    if any_state:
        return candidates[0] if candidates else None
    return next((c for c in candidates if _is_active(c, port)), None)


def can_be_proxied(device: _verbs.Device) -> bool:
    """InfiniBand's verbs, or iWARP's."""
    is_ib = device.transport_type == _verbs.IBV_TRANSPORT_IB and device.node_type == _verbs.IBV_NODE_CA
    return is_ib or is_iwarp(device)


def is_iwarp(device: _verbs.Device) -> bool:
    """Whether it is connected by the kernel's connection manager instead of ibv_modify_qp."""
    return device.transport_type == _verbs.IBV_TRANSPORT_IWARP and device.node_type == _verbs.IBV_NODE_RNIC


def _is_active(name: str, port: int) -> bool:
    try:
        with _verbs.ibv_open_device(name) as context:
            return _verbs.ibv_query_port(context, port)["state"] == _verbs.IBV_PORT_ACTIVE
    except VerbsError:
        return False


def _no_device(name: str | None, devices: list[_verbs.Device], mode: str) -> Exception:
    names = ", ".join(dict.fromkeys(d.name for d in devices)) or "none"
    if name is not None:
        return ArgumentError(f"there is no NIC named {name!r}; NICs here: {names}", "gda.open() takes the first one")
    if mode == "real":
        return UnavailableError(
            f"GDA_NIC=real, but libibverbs lists no device that would do (devices here: {names})",
            "check `ibv_devices` and that /dev/infiniband/uverbs* exists; GDA_NIC=software needs no hardware",
        )
    return UnavailableError(f"libibverbs lists no device that would do (devices here: {names})", "see `ibv_devices`")


# ------------------------------------------------------------------------------------------------- what a NIC can do
@dataclass(frozen=True)
class Capabilities:
    """QUERY_HCA_CAP, current values, with the PRM's field names: `capabilities.log_max_qp_sz`.

    `groups` has them by group: "general", "general_2", "atomic", "roce". A group that the NIC lacks is all zero.
    """

    groups: Mapping[str, dict[str, int]]

    def __getattr__(self, name: str) -> int:
        for values in self.__dict__.get("groups", {}).values():
            if name in values:
                return int(values[name])
        raise AttributeError(f"no capability group has a field {name!r}")

    @classmethod
    def query(cls, context: _verbs.Context) -> Capabilities:
        """Ask the firmware for all groups that it offers."""

        def group(number: int, format: str, offered: int) -> dict[str, int]:
            layout = formats.structs[format]
            if not offered:
                return dict.fromkeys(layout.fields, 0)
            return layout.unpack(command.query_hca_cap(context, number)[: layout.bytes])

        general = group(formats.HCA_CAP_GENERAL, "cmd_hca_cap", 1)
        return cls(
            {
                "general": general,
                "general_2": group(formats.HCA_CAP_GENERAL_2, "cmd_hca_cap_2", general["hca_cap_2"]),
                "atomic": group(formats.HCA_CAP_ATOMIC, "atomic_caps", general["atomic"]),
                "roce": group(formats.HCA_CAP_ROCE, "roce_cap", general["roce"]),
            }
        )

    @classmethod
    def of_verbs(cls, context: _verbs.Context) -> Capabilities:
        """What libibverbs tells of a device without such firmware, under the same names; all else is zero."""
        device: dict[str, Any] = _verbs.ibv_query_device(context)
        known = {
            "log_max_qp_sz": _log(device["max_qp_wr"]), "log_max_ra_req_qp": _log(device["max_qp_init_rd_atom"]),
            "log_max_ra_res_qp": _log(device["max_qp_rd_atom"]), "atomic": int(device["atomic_cap"] != 0),
            "log_max_msg": 30, "max_wqe_sz_sq": 512,
        }  # fmt: skip
        groups = {"general": "cmd_hca_cap", "general_2": "cmd_hca_cap_2", "atomic": "atomic_caps", "roce": "roce_cap"}
        empty = {group: dict.fromkeys(formats.structs[format].fields, 0) for group, format in groups.items()}
        return cls(empty | {"general": empty["general"] | known})


def _log(value: int) -> int:
    return max(0, int(value).bit_length() - 1)


@dataclass(frozen=True)
class Port:
    """A port when the NIC was opened. `mtu` is the active one as commands carry it: 1 (256 bytes) to 5 (4096)."""

    number: int
    is_active: bool
    is_ethernet: bool
    mtu: int
    lid: int
    max_message_bytes: int
    gid_table_size: int

    @property
    def mtu_bytes(self) -> int:
        """Payload bytes of one packet."""
        return 128 * int(2**self.mtu)


class Nic(Owner):
    """An open NIC: memory and queue pairs are made from it. Closing it closes them first.

    `name`, `firmware` and `library` are text; `is_software` says which kind; `posting` who posts for kernels ("direct"
    or "proxy"); `is_iwarp` whether its queue pairs are connected over TCP; `capabilities` and `port`, one of its
    `ports` many, were read when it was opened; `context` and `pd` are the raw objects of gda._verbs; `gpu` is where its
    kernels run, or None.
    """

    def __init__(self, name: str, *, port: int = 1, gpu: int = 0, posting: str | None = None) -> None:
        resources = Resources(f"NIC {name}")
        self._own(resources)
        self.name = name
        self.is_software = attach.loaded() is not None
        self.known_memory = KnownMemory()
        self.shared_regions = SharedRegions()
        self.gpu: Gpu | None
        self.gpu, self.no_gpu_reason = use_gpu(gpu)
        self.posting = _posting_of(name, posting)
        is_direct = self.posting == "direct"
        self.is_iwarp = not is_direct and any(is_iwarp(d) for d in _devices() if d.name == name)
        try:
            # The proxy asks for nothing that only mlx5 has.
            self.context = (
                _verbs.mlx5dv_open_device(name, _verbs.MLX5DV_CONTEXT_FLAGS_DEVX)
                if is_direct else _verbs.ibv_open_device(name)
            )  # fmt: skip
            resources.callback(self.context.close)
            device = _verbs.ibv_query_device(self.context)
            self.firmware = str(device["fw_ver"])
            self.part = _part(device)
            self.library = _library_version()
            self.ports = int(device["phys_port_cnt"])
            self.port = self._query_port(port, self.ports)
            self.capabilities = (Capabilities.query if is_direct else Capabilities.of_verbs)(self.context)
            resources.callback(lint.remember(self))
            self.pd = _verbs.ibv_alloc_pd(self.context)
            resources.callback(self.pd.close)
            self.proxy = Proxy(self.gpu)
            self.connector: Connector | None = None
            if self.is_iwarp:
                self.connector = Connector(name)
                resources.callback(self.connector.close)
            self.ringer = Ringer(self.gpu)
            self.doorbell_pages = DoorbellPages(self.context, self.is_software, self.gpu, resources)
            if is_direct:
                self.pdn = _verbs.mlx5dv_init_obj_pd(self.pd)
                self.completion_page = self.doorbell_pages.shared()
                resources.callback(self.completion_page.close)
                self.eqn = _verbs.mlx5dv_devx_query_eqn(self.context, 0)
        except BaseException:
            resources.close()
            raise
        self._user_indices = itertools.count(1)

    def __repr__(self) -> str:
        return f"<Nic {self.name}: {self.description}>"

    @property
    def description(self) -> str:
        """One line for people: what it is and behind which library."""
        what = "software ConnectX" if self.is_software else f"{self.part} (firmware {self.firmware})"
        return f"{what} behind {self.library}" + (", through the proxy" if self.posting == "proxy" else "")

    @property
    def port_name(self) -> str:
        """The port as messages call it: the name of the NIC, with the number where there are several."""
        return f"{self.name} port {self.port.number}" if self.ports > 1 else self.name

    @property
    @working
    def port_state(self) -> str:
        """ "ACTIVE", or what else the port is now."""
        state = _verbs.ibv_query_port(self.context, self.port.number)["state"]
        names = {1: "DOWN", 2: "INIT", 3: "ARMED", 4: "ACTIVE", 5: "ACTIVE_DEFER"}  # enum ibv_port_state
        return names.get(state, f"state {state}")

    @property
    @working
    def gids(self) -> list[Gid]:
        """The GID table of the port, valid entries only; read anew each time, for it changes with the network."""
        entries = _verbs.ibv_query_gid_table(self.context, self.ports * self.port.gid_table_size)  # of all ports
        types = {_verbs.IBV_GID_TYPE_ROCE_V1: "RoCE v1", _verbs.IBV_GID_TYPE_ROCE_V2: "RoCE v2"}
        return [Gid(e.gid_index, e.gid, types.get(e.gid_type, "IB")) for e in entries if e.port_num == self.port.number]

    def pick_gid(self, index: int | None = None) -> tuple[int, Gid]:
        """Index and GID to connect with: that of `index` (or of GDA_GID_INDEX), else the best of the table.

        The best is RoCE v2 over IPv4, then IPv6, then link-local, then v1. Each side picks for itself: only GIDs are
        exchanged. Raises GidError for an empty index, UnavailableError for an empty table.
        """
        gid = choose(self.gids, wanted_index(index), self.port_name)
        return gid.index, gid

    @property
    @working
    def active_mtu(self) -> int:
        """Path MTU that the port's link carries now, as commands carry it: 1 (256 bytes) to 5 (4096)."""
        return int(_verbs.ibv_query_port(self.context, self.port.number)["active_mtu"])

    def register(self, buffer: Any, *, access: tuple[str, ...] | None = None, shared: bool = False) -> Memory:
        """Register a buffer: anything with the buffer protocol, or a GPU array. It is kept alive while registered.

        `access` names rights (see Memory); default: all for writable memory, reading for read-only memory.
        Each call makes a region of its own that ends where the buffer ends. With `shared` buffers in one allocation
        (two views of an array, two tensors in one block of CuPy's or torch's pool) have one region around all of it,
        as long as one of them is open: cheaper to make, but whoever gets the rkey reaches the whole allocation. Other
        rights make another region. Raises ArgumentError for empty, non-contiguous or wrongly typed buffers.
        """
        return Memory.register(self, buffer, access, shared=shared)

    def allocate(self, bytes: int, placement: str = "host", *, access: tuple[str, ...] | None = None) -> Memory:
        """Allocate and register zeroed memory of whole pages, in "host" or "gpu" memory; freed when closed.

        `access` as in register(). Raises ArgumentError for a size below 1, UnavailableError for "gpu" without a GPU.
        """
        return Memory.allocate(self, bytes, placement, access)

    def queue_pair(self, **options: Any) -> QueuePair:
        """A reliable queue pair in reset, to be connected. Options: see QueuePair."""
        return QueuePair(self, **options)

    def host_queue_pair(self, **options: Any) -> HostQueuePair:
        """A reliable queue pair in reset that the CPU posts to. Options: see HostQueuePair."""
        return HostQueuePair(self, **options)

    def loopback_pair(self, **options: Any) -> tuple[QueuePair, QueuePair]:
        """Two queue pairs with the same options, connected to each other."""
        first = QueuePair(self, **options)
        try:
            second = QueuePair(self, **options)
            try:
                connect(first, second)
            except BaseException:
                second.close()
                raise
        except BaseException:
            first.close()
            raise
        return first, second

    @working
    def doorbell_modes(self, placement: str | Mapping[str, str] | None = None) -> doorbell_modes.DoorbellModes:
        """In which modes queue pairs of this placement can tell the NIC, and why not in others; prints as a table.

        Each is tried: a doorbell page is taken, mapped for the GPU where there is one, and given back.
        """
        return doorbell_modes.available(self, placement)

    @working
    def mac(self, gid_index: int) -> bytes:
        """MAC address behind a GID index, as the NIC uses it; zeros where it does not say."""
        if self.posting == "proxy":
            return bytes(6)
        try:
            entry = command.query_roce_address(
                self.context, roce_address_index=gid_index, vhca_port_num=self.port.number
            )
        except (CommandError, VerbsError):
            return bytes(6)
        return int(entry["source_mac_47_32"]).to_bytes(2, "big") + int(entry["source_mac_31_0"]).to_bytes(4, "big")

    def counters(self) -> dict[str, int]:
        """What the port has counted since the NIC started, by name: all its queue pairs together.

        On a card, those of its hw_counters and port counters that have a meaning here; the software NIC has more.
        """
        self._resources.check()
        return counters.read(self.name, self.port.number)

    def _user_index(self) -> int:
        return next(self._user_indices) % (1 << 24)

    def _query_port(self, number: int, count: int) -> Port:
        if not 1 <= number <= count:
            raise ArgumentError(f"{self.name} has no port {number}", f"its ports count from 1 to {count}")
        port = _verbs.ibv_query_port(self.context, number)
        return Port(
            number,
            port["state"] == _verbs.IBV_PORT_ACTIVE,
            port["link_layer"] == _verbs.IBV_LINK_LAYER_ETHERNET,
            port["active_mtu"],
            port["lid"],
            port["max_msg_sz"],
            port["gid_tbl_len"],
        )


def _posting_of(name: str, wanted: str | None) -> str:
    """Who posts for kernels on a device: what was asked for, else what it can."""
    device = next((d for d in _devices() if d.name == name), None)
    if wanted == "direct" and device is not None and not device.mlx5:
        raise UnavailableError(
            f"{name} is no mlx5 device: kernels cannot post to it directly",
            'leave posting (and GDA_POSTING) out: a host thread then posts for them; docs/proxy.md',
        )
    if device is not None and not device.mlx5 and not can_be_proxied(device):
        raise UnavailableError(
            f"{name} is a device of another kind than InfiniBand, RoCE and iWARP (node type {device.node_type}, "
            f"transport {device.transport_type}): nobody here knows how its queue pairs are connected",
            "use another device: `ibv_devices`",
        )
    return wanted or ("direct" if device is None or device.mlx5 else "proxy")


def _part(device: dict[str, Any]) -> str:
    """What people call it."""
    vendor, part = int(device["vendor_id"]), int(device["vendor_part_id"])
    return PARTS.get(part, f"mlx5 part 0x{part:x}") if vendor in _MELLANOX else f"device 0x{vendor:x}:0x{part:x}"


def _library_version() -> str:
    """rdma-core's release, which its libraries carry at the end of their file names: libibverbs.so.1.14.44.0."""
    verbs, _ = _verbs.library_paths()
    parts = Path(verbs).resolve().name.partition(".so.")[2].split(".")
    return f"libibverbs {'.'.join(parts[2:])}" if len(parts) >= 3 else "libibverbs (release unknown)"
