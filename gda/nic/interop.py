# SPDX-License-Identifier: Apache-2.0
"""pyverbs objects as ours and ours as pyverbs': for programs that mix both. Called by users; pyverbs is optional.

A context, protection domain or memory region is shared by libibverbs' own import calls (ibv_import_device(3),
ibv_import_pd(3), ibv_import_mr(3)): both sides have a C object of their own over one of the kernel, close theirs, and
the original must live longest. Completion queues and queue pairs cannot be imported; ours borrow the C struct of
pyverbs' (`_verbs.wrap_cq`, `_verbs.wrap_qp`), and the pyverbs object is kept alive as their owner.
"""

from __future__ import annotations

import ctypes
import gc
import os
import struct
from typing import Any

from gda import _verbs
from gda.errors import ArgumentError, UnavailableError

__all__ = ["c_pointer", "from_pyverbs", "to_pyverbs"]


def from_pyverbs(thing: Any, parent: Any = None) -> _verbs.Context | _verbs.PD | _verbs.MR | _verbs.CQ | _verbs.QP:
    """Our object for a pyverbs Context, PD, MR, CQ, CQEX or QP.

    A PD needs our Context of the same device as its parent, an MR our PD: what this function made of pyverbs' own.
    Close what was imported before the pyverbs original. A CQ or QP is borrowed: closing ours changes nothing.
    """
    kind = _kind(thing)
    if kind == "Context":
        return _verbs.ibv_import_device(os.dup(thing.cmd_fd))
    if kind == "PD":
        return _verbs.ibv_import_pd(_parent(parent, _verbs.Context, kind), thing.handle)
    if kind == "MR":
        return _verbs.ibv_import_mr(_parent(parent, _verbs.PD, kind), thing.handle)
    if kind == "QP":
        return _verbs.wrap_qp(c_pointer(thing), thing)
    return _verbs.wrap_cq(c_pointer(thing), thing)


def to_pyverbs(thing: _verbs.Context | _verbs.PD | _verbs.MR, parent: Any = None) -> Any:
    """The pyverbs object for our Context, PD or MR; parents as in from_pyverbs, but pyverbs' own.

    pyverbs frees the shared original if an imported PD or MR is closed without `unimport()` before.
    A CQ or QP cannot be given: pyverbs adopts no pointer. Other libraries can use its `c_pointer`.
    """
    try:
        from pyverbs.device import Context
        from pyverbs.mr import MR
        from pyverbs.pd import PD
    except ImportError as error:
        raise UnavailableError("pyverbs is not installed for this Python", "apt-get install python3-pyverbs") from error
    if isinstance(thing, _verbs.Context):
        return Context(cmd_fd=os.dup(thing.cmd_fd))
    if isinstance(thing, _verbs.PD):
        return PD(_parent(parent, Context, "PD"), handle=thing.handle)
    if isinstance(thing, _verbs.MR):
        return MR(_parent(parent, PD, "MR"), handle=thing.handle)
    raise ArgumentError(
        f"pyverbs cannot take over a {type(thing).__name__}",
        "it imports Context, PD and MR; other libraries can use the address c_pointer",
    )


def c_pointer(thing: Any) -> int:
    """Address of the C struct behind a pyverbs CQ, CQEX or QP.

    Newer pyverbs says it (`cq`, `qp`). Older ones hold it where Python does not see it: then it is the word of the
    object's own memory at which a struct lies that agrees with all that pyverbs says of it. Raises UnavailableError
    if there is no such word, or more than one.
    """
    kind = _kind(thing)
    if kind not in {"CQ", "CQEX", "QP"}:
        raise ArgumentError(f"a pyverbs {kind} is shared by handle, not by address", "see from_pyverbs")
    said = getattr(thing, "qp" if kind == "QP" else "cq", None)
    if isinstance(said, int):
        return said
    agrees = _is_qp if kind == "QP" else _is_cq
    contexts = {word for owner in _contexts(thing) for word in _words(owner)}
    found = {word for word in _words(thing) if word and word % 8 == 0 and agrees(word, thing, contexts)}
    if len(found) != 1:
        raise UnavailableError(
            f"{len(found)} addresses in this pyverbs {kind} could be its C struct",
            "it must be open; otherwise this pyverbs is laid out in a way that gda does not know",
        )
    return found.pop()


class _Qp(ctypes.Structure):
    """The beginning of struct ibv_qp (infiniband/verbs.h), part of libibverbs' stable interface."""

    _fields_ = [
        ("context", ctypes.c_uint64), ("qp_context", ctypes.c_uint64), ("pd", ctypes.c_uint64),
        ("send_cq", ctypes.c_uint64), ("recv_cq", ctypes.c_uint64), ("srq", ctypes.c_uint64),
        ("handle", ctypes.c_uint32), ("qp_num", ctypes.c_uint32), ("state", ctypes.c_uint32),
        ("qp_type", ctypes.c_uint32),
    ]  # fmt: skip


class _Cq(ctypes.Structure):
    """The beginning of struct ibv_cq, and of struct ibv_cq_ex."""

    _fields_ = [
        ("context", ctypes.c_uint64), ("channel", ctypes.c_uint64), ("cq_context", ctypes.c_uint64),
        ("handle", ctypes.c_uint32), ("cqe", ctypes.c_int32),
    ]  # fmt: skip


def _is_qp(address: int, thing: Any, contexts: set[int]) -> bool:
    data = _read(address, ctypes.sizeof(_Qp))
    if data is None:
        return False
    qp = _Qp.from_buffer_copy(data)
    return qp.context in contexts and (qp.qp_num, qp.qp_type) == (thing.qp_num, thing.qp_type)


def _is_cq(address: int, thing: Any, contexts: set[int]) -> bool:
    data = _read(address, ctypes.sizeof(_Cq))
    if data is None:
        return False
    cq = _Cq.from_buffer_copy(data)
    entries = getattr(thing, "cqe", cq.cqe)
    return cq.context in contexts and cq.cqe == entries and cq.cqe > 0


def _contexts(thing: Any) -> list[Any]:
    """The pyverbs Context that the object holds: directly, or by its protection domain."""
    held = gc.get_referents(thing)
    held += [other for one in held if "pyverbs" in type(one).__module__ for other in gc.get_referents(one)]
    return [one for one in held if _names(one) >= {"Context", "PyverbsObject"}]


def _words(thing: Any) -> tuple[int, ...]:
    size = type(thing).__basicsize__ // 8 * 8
    return struct.unpack(f"{size // 8}Q", ctypes.string_at(id(thing), size))


def _read(address: int, bytes: int) -> bytes | None:
    """Memory of this process, or None if it is not mapped: no guess may be followed blindly."""
    with open("/proc/self/mem", "rb", buffering=0) as memory:  # noqa: PTH123
        try:
            data = os.pread(memory.fileno(), bytes, address)
        except (OSError, OverflowError):
            return None
    return data if len(data) == bytes else None


def _names(thing: Any) -> set[str]:
    return {kind.__name__ for kind in type(thing).__mro__ if kind.__module__.startswith("pyverbs.")}


def _kind(thing: Any) -> str:
    names = _names(thing)
    for kind in ("Context", "PD", "MR", "CQEX", "CQ", "QP"):
        if kind in names:
            return kind
    raise ArgumentError(
        f"{type(thing).__module__}.{type(thing).__name__} is no object of pyverbs that gda shares",
        "these are: Context, PD, MR, CQ, CQEX, QP",
    )


def _parent(parent: Any, wanted: type, kind: str) -> Any:
    if not isinstance(parent, wanted):
        raise ArgumentError(
            f"{'an' if kind == 'MR' else 'a'} {kind} needs a parent of type {wanted.__module__}.{wanted.__name__}, "
            f"not {type(parent).__name__}"
        )
    return parent
