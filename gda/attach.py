# SPDX-License-Identifier: Apache-2.0
"""Puts the software ConnectX into this process: loads the simulator library and steers it (sim/steer.h).

A leaf: gda.nic attaches it when there is no real NIC, gda.run asks for its idle hook, gda.sim and tests steer it.
Works too in a process that was started with the preload library: then it is there already.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gda import config, notes
from gda.complaint import Complaint, ComplaintKind, complaint_of, kind_of
from gda.errors import ArgumentError, CheckError, UnavailableError
from gda.once import once

__all__ = [
    "ComplaintsSince",
    "SoftwareNic",
    "check_complaints",
    "check_faults",
    "fence_hook_address",
    "idle_hook_address",
    "loaded",
    "software_nic",
    "strictly",
]

_THREAD_MODES = {"off": 0, "adaptive": 1, "busy": 2}


class SoftwareNic:
    """The software NICs of this process, steered together; `software_nic()` and `loaded()` give the object.

    There are as many as GDA_SIM_NICS says, one by default. Arguments `nic` count them from 0, as their names do;
    arguments `port` count the ports of one from 1 (GDA_SIM_PORTS).
    """

    def __init__(self, library: ctypes.CDLL, path: str) -> None:
        self.path = path
        self.has_store_buffer = False
        self._library = library
        for name, answer, arguments in _PROTOTYPES:
            function = getattr(library, name)
            function.restype, function.argtypes = answer, list(arguments)

    def step(self) -> int:
        """Let the NIC work one round; how many things it did (0: idle)."""
        return int(self._library.gda_sim_step())

    def set_thread(self, mode: str) -> None:
        """How the background thread runs: "off" (only step() and pollers), "adaptive" (naps when idle), "busy"."""
        if mode not in _THREAD_MODES:
            raise ArgumentError(f"thread mode {mode!r} is not one of {', '.join(_THREAD_MODES)}")
        code = int(self._library.gda_sim_set_thread(_THREAD_MODES[mode]))
        if code:
            raise UnavailableError(f"the software NIC's thread cannot be set to {mode}: {_reason(self._library, code)}")

    @property
    def nics(self) -> int:
        """How many NICs the process has."""
        return int(self._library.gda_sim_nics())

    @property
    def ports(self) -> int:
        """How many ports each of them has."""
        return int(self._library.gda_sim_ports())

    def set_gid(self, index: int, gid: bytes | None, type: str = "RoCE v2", *, nic: int = 0, port: int = 1) -> None:
        """Change an entry of a port's GID table, as a network does: 16 bytes, or None to empty it.

        Every context of the NIC gets the event GID_CHANGE. Raises ArgumentError for what no table can hold.
        """
        versions = {"RoCE v1": 1, "RoCE v2": 2}
        if type not in versions or (gid is not None and len(gid) != 16):
            raise ArgumentError(f"GID {gid!r} of type {type!r}: 16 bytes, and one of {', '.join(versions)}")
        self._changed(self._library.gda_sim_set_gid(nic, port, index, gid, versions[type]), f"GID {index}", nic, port)

    def set_link(self, up: bool, *, nic: int = 0, port: int = 1) -> None:
        """Take the link behind a port down or up; contexts get PORT_ERR or PORT_ACTIVE."""
        self._changed(self._library.gda_sim_set_link(nic, port, int(up)), "link", nic, port)

    def set_mtu(self, bytes: int, *, nic: int = 0, port: int = 1) -> None:
        """Set the MTU of the network device behind a port. Longer IP packets are lost, without a word to the sender."""
        self._changed(self._library.gda_sim_set_mtu(nic, port, bytes), f"MTU {bytes}", nic, port)

    def _changed(self, code: int, what: str, nic: int, port: int) -> None:
        if code:
            raise ArgumentError(
                f"port {port} of the software NIC {nic} cannot change its {what}: {os.strerror(-code)}",
                f"NICs: 0 to {self.nics - 1}; ports: 1 to {self.ports}; GID indices: 0 to 15, each address and type "
                "once; MTU: 352 to 65535",
            )

    def set_virtual_time(self, on: bool) -> None:
        """Virtual time for all NICs of this process, or the system's clock again.

        Under virtual time only step() and pollers move a NIC, and a step that finds nothing to do lets time jump to
        the next timer: the longest timeout takes no time, and a run depends on its seeds alone. For NICs without
        traffic on the way.
        """
        self._library.gda_sim_set_virtual_time(int(on))

    def now_ns(self) -> int:
        """Nanoseconds of the NIC's clock, real or virtual."""
        return int(self._library.gda_sim_now_ns())

    def counter(self, name: str, *, nic: int | None = None, port: int | None = None) -> int:
        """One counter since the start, of one NIC or the sum of all. Raises ArgumentError for an unknown name.

        With `port`, that port's (of NIC 0 without `nic`); what the ports of a NIC share is told for each of them.
        """
        names = self._counter_names()
        if name not in names:
            raise ArgumentError(f"the software NIC has no counter {name!r}", f"one of: {', '.join(names)}")
        return self._counted(name, nic, port)

    def counters(self, *, nic: int | None = None, port: int | None = None) -> dict[str, int]:
        """All counters by name, of one NIC, of one port of it, or the sum of all."""
        return {name: self._counted(name, nic, port) for name in self._counter_names()}

    def _counted(self, name: str, nic: int | None, port: int | None) -> int:
        if port is not None:
            return int(self._library.gda_sim_port_counter(nic or 0, port, name.encode()))
        if nic is not None:
            return int(self._library.gda_sim_nic_counter(nic, name.encode()))
        return int(self._library.gda_sim_counter(name.encode()))

    def report(self) -> list[Complaint]:
        """What programs did wrong, oldest first: sentences with their kind and values."""
        kinds = self.complaint_kinds()
        return [complaint_of(line, kinds) for line in _lines(self._library.gda_sim_report())]

    def complaint_kinds(self) -> dict[str, ComplaintKind]:
        """Everything that the NIC can complain about, by name."""
        kinds = (kind_of(line) for line in _lines(self._library.gda_sim_complaint_kinds()))
        return {kind.name: kind for kind in kinds}

    def clear_report(self) -> None:
        """Forget all complaints."""
        self._library.gda_sim_clear_report()
        for watch in _strict:
            watch.start()

    def print_complaints(self, on: bool) -> None:
        """Whether complaints are printed to stderr when the process ends (GDA_SIM_COMPLAINTS says it at first)."""
        self._library.gda_sim_set_last_words(0 if on else 1)

    def last_doorbell(self, qpn: int) -> int | None:
        """The 8 bytes last rung for a queue pair, as the integer that lay in the register; None if never."""
        value = ctypes.c_uint64()
        return value.value if self._library.gda_sim_last_doorbell(qpn, ctypes.byref(value)) else None

    def set_faults(self, text: str) -> None:
        """Faults of the network from now on, such as "drop=5%,seed=7; drop answer psn=7 first=1"; "" ends them.

        The language: docs/simulator.md, "Faults". Raises ArgumentError naming the word that is not understood.
        """
        self._order(self._library.gda_sim_set_faults, text)

    def set_capture(self, path: str | os.PathLike[str]) -> None:
        """Append every packet to a pcapng file for Wireshark from now on; "" ends it.

        Raises ArgumentError when the file cannot be written or holds something else.
        """
        self._order(self._library.gda_sim_set_capture, os.fspath(path))

    def set_trace(self, directory: str | os.PathLike[str], *, log_events: int = 17, skip: int = 0) -> None:
        """Note what each NIC does in a file of this directory, the newest 2^log_events events; "" ends it.

        Requests with a bit of `skip` in their index are left out. `gda.trace` starts this and reads the files.
        Raises ArgumentError when a file cannot be made.
        """
        self._order(self._library.gda_sim_set_trace, os.fspath(directory), log_events, skip)

    def synchronize_trace(self) -> None:
        """Bring the clocks in the trace's files up to date, before they are read."""
        self._library.gda_sim_synchronize_trace()

    def _order(self, function: Callable[..., int], text: str, *more: int) -> None:
        code = function(_encoded(text), *more)
        if code == -errno.EINVAL:
            raise ArgumentError(_reason(self._library, code))
        if code:
            raise UnavailableError(f"there is no software NIC to steer: {_reason(self._library, code)}")

    def set_gpu_staging(self, on: bool) -> None:
        """Copy GPU memory through pinned host memory: needed while waiting kernels fill the GPU."""
        self._library.gda_sim_set_gpu_staging(int(on))

    def set_relaxed_ordering(self, on: bool, seed: int = 0) -> None:
        """Show what peers write to memory with relaxed ordering late and in random order, as PCI Express may.

        A strict write (also a completion) shows all that came before it. Off: everything is visible at once.
        """
        self._library.gda_sim_set_relaxed_ordering(int(on), seed)

    def store_buffer(self, on: bool) -> None:
        """Let the NIC read small memory regions as they were at the last fence of system scope of a kernel on the CPU.

        A fence that is missing between payload and doorbell then shows: old payload arrives, and the report says
        "fence-missing". For kernels that start afterwards; regions of up to 64 KiB. What the CPU posts itself while a
        kernel runs is read in the same way, and makes no such fences.
        """
        self._library.gda_sim_set_store_buffer(int(on))
        self.has_store_buffer = on

    def watch_sources(self, on: bool) -> None:
        """Complain ("source-changed") of payload that changes between the fetch of its request and its completion."""
        self._library.gda_sim_watch_sources(int(on))

    def objects(self) -> int:
        """Umems, protection domains, keys, queues and doorbell pages that exist in the NIC."""
        return int(self._library.gda_sim_objects())

    def _counter_names(self) -> list[str]:
        return _lines(self._library.gda_sim_counter_names())


class ComplaintsSince:
    """What the NIC of this process complained about since a moment: that of making, or the last start()."""

    def __init__(self, nic: SoftwareNic) -> None:
        self._nic = nic
        self._before: dict[str, int] = {}
        self.start()

    def start(self) -> None:
        """Begin anew."""
        self._before = {str(one): one.times for one in self._nic.report()}

    def new(self) -> list[Complaint]:
        """What came since, oldest first; also what had been said before and happened again."""
        return [one for one in self._nic.report() if one.times > self._before.get(str(one), 0)]


# Those that want an exception, the innermost last: gda.sim.strict().
_strict: list[ComplaintsSince] = []


@contextmanager
def strictly(nic: SoftwareNic) -> Iterator[ComplaintsSince]:
    """Let check_complaints() raise inside the `with`: gda.sim.strict()."""
    watch = ComplaintsSince(nic)
    _strict.append(watch)
    try:
        yield watch
    finally:
        _strict.remove(watch)


def check_complaints() -> None:
    """Under gda.sim.strict(), raise CheckError when the NIC has complained. Called by whatever users call."""
    if _strict and (complaints := _strict[-1].new()):
        _strict[-1].start()  # told: once is enough
        raise CheckError(tuple(complaints))


def software_nic() -> SoftwareNic:
    """Attach the software NIC to this process's libibverbs; again gives the same one.

    Raises UnavailableError when its library is not built or it cannot attach here.
    """
    present = loaded()
    if present is not None:
        return present
    _load_verbs()
    library, _ = _library()
    code = int(library.gda_sim_attach())
    if code:
        raise UnavailableError(
            f"the software NIC could not attach to this process: {_reason(library, code)}",
            "run the program under it instead: python -m gda sim run -- PROGRAM",
        )
    recording = notes.active()
    if recording is not None and not config.get("GDA_TRACE"):  # which NICs read by themselves
        _wrapped().set_trace(recording.directory, skip=recording.skip)
    return _wrapped()


def loaded() -> SoftwareNic | None:
    """The software NIC if it is attached (or preloaded) in this process, else None. Loads nothing."""
    if _library.made == 0 and not hasattr(ctypes.CDLL(None), "gda_sim_attached"):
        return None
    library, _ = _library()
    return _wrapped() if library.gda_sim_attached() else None


def check_faults(text: str) -> None:
    """Raise ArgumentError unless the software NIC would understand these faults. Needs no NIC."""
    library, _ = _library()
    library.gda_sim_check_faults.argtypes = [ctypes.c_char_p]
    if library.gda_sim_check_faults(_encoded(text)):
        raise ArgumentError(_reason(library, -errno.EINVAL))


def idle_hook_address() -> int:
    """Address of `int gda_sim_step(void)` for device code that spins on the CPU; 0 without a software NIC."""
    nic = loaded()
    if nic is None:
        return 0
    return ctypes.cast(_library()[0].gda_sim_step, ctypes.c_void_p).value or 0


def fence_hook_address() -> int:
    """Address of `void gda_sim_fence(int)` for device code on the CPU; 0 unless the store-buffer mode is on."""
    nic = loaded()
    if nic is None or not nic.has_store_buffer:
        return 0
    return ctypes.cast(_library()[0].gda_sim_fence, ctypes.c_void_p).value or 0


def _load_verbs() -> None:
    """Load what the software NIC sits behind; a program may attach it before its first verbs call."""
    for name, package in (("libibverbs.so.1", "libibverbs1"), ("libmlx5.so.1", "ibverbs-providers")):
        try:
            ctypes.CDLL(name)
        except OSError as error:
            raise UnavailableError(f"{name} is missing ({error})", f"apt-get install {package}") from error


@once
def _library() -> tuple[ctypes.CDLL, str]:
    everything = ctypes.CDLL(None)
    if hasattr(everything, "gda_sim_attach"):  # preloaded: a second copy would be a second NIC
        return everything, "preloaded"
    config.get("GDA_SIM_NICS")  # refused here: the library makes of a number that is none the next one that is
    path = config.get("GDA_SIM_LIBRARY") or str(Path(__file__).resolve().parent / "lib" / "libgda_sim.so")
    if not Path(path).exists():
        raise UnavailableError(
            f"the software NIC's library {path} does not exist",
            "build it: python setup.py build_ext --inplace (or make demo); GDA_SIM_LIBRARY names another build",
        )
    try:
        return ctypes.CDLL(path), path
    except OSError as error:
        raise UnavailableError(f"the software NIC's library does not load: {error}", "build it again") from error


@once
def _wrapped() -> SoftwareNic:
    nic = SoftwareNic(*_library())
    if config.get("GDA_SIM_COMPLAINTS") == "strict":
        _strict.append(ComplaintsSince(nic))
    return nic


def _reason(library: ctypes.CDLL, code: int) -> str:
    library.gda_sim_message.restype = ctypes.c_char_p
    message: bytes | None = library.gda_sim_message()
    return message.decode(errors="replace") if message else os.strerror(abs(code))


def _encoded(text: str) -> bytes:
    # C reads up to a zero byte: what follows it would be overlooked.
    if "\0" in text:
        raise ArgumentError(f"{text!r} has a zero character", "leave it out")
    try:
        return os.fsencode(text)  # a file's name may hold bytes that are no text
    except UnicodeEncodeError as error:
        raise ArgumentError(f"{text!r} is no text: {error}") from error


def _lines(text: bytes | None) -> list[str]:
    return [line for line in (text or b"").decode(errors="replace").split("\n") if line]


# name, answer, arguments: sim/steer.h
_PROTOTYPES: tuple[tuple[str, object, tuple[object, ...]], ...] = (
    ("gda_sim_attached", ctypes.c_int, ()),
    ("gda_sim_message", ctypes.c_char_p, ()),
    ("gda_sim_step", ctypes.c_int, ()),
    ("gda_sim_set_thread", ctypes.c_int, (ctypes.c_int,)),
    ("gda_sim_nics", ctypes.c_int, ()),
    ("gda_sim_ports", ctypes.c_int, ()),
    ("gda_sim_set_gid", ctypes.c_int, (ctypes.c_int, ctypes.c_uint32, ctypes.c_int, ctypes.c_char_p, ctypes.c_int)),
    ("gda_sim_set_link", ctypes.c_int, (ctypes.c_int, ctypes.c_uint32, ctypes.c_int)),
    ("gda_sim_set_mtu", ctypes.c_int, (ctypes.c_int, ctypes.c_uint32, ctypes.c_uint32)),
    ("gda_sim_set_virtual_time", None, (ctypes.c_int,)),
    ("gda_sim_now_ns", ctypes.c_uint64, ()),
    ("gda_sim_counter", ctypes.c_uint64, (ctypes.c_char_p,)),
    ("gda_sim_nic_counter", ctypes.c_uint64, (ctypes.c_int, ctypes.c_char_p)),
    ("gda_sim_port_counter", ctypes.c_uint64, (ctypes.c_int, ctypes.c_uint32, ctypes.c_char_p)),
    ("gda_sim_counter_names", ctypes.c_char_p, ()),
    ("gda_sim_report", ctypes.c_char_p, ()),
    ("gda_sim_complaint_kinds", ctypes.c_char_p, ()),
    ("gda_sim_clear_report", None, ()),
    ("gda_sim_set_last_words", ctypes.c_int, (ctypes.c_int,)),
    ("gda_sim_last_doorbell", ctypes.c_int, (ctypes.c_uint32, ctypes.POINTER(ctypes.c_uint64))),
    ("gda_sim_set_faults", ctypes.c_int, (ctypes.c_char_p,)),
    ("gda_sim_set_capture", ctypes.c_int, (ctypes.c_char_p,)),
    ("gda_sim_set_trace", ctypes.c_int, (ctypes.c_char_p, ctypes.c_uint32, ctypes.c_uint32)),
    ("gda_sim_synchronize_trace", None, ()),
    ("gda_sim_set_gpu_staging", None, (ctypes.c_int,)),
    ("gda_sim_set_relaxed_ordering", None, (ctypes.c_int, ctypes.c_uint64)),
    ("gda_sim_set_store_buffer", None, (ctypes.c_int,)),
    ("gda_sim_watch_sources", None, (ctypes.c_int,)),
    ("gda_sim_objects", ctypes.c_uint64, ()),
)
