# SPDX-License-Identifier: Apache-2.0
"""Firmware commands by keyword, with the PRM's field names: `create_cq(context, cq_context={"cc": 1, "oi": 1})`.

Used by device.py and queue.py, and by whoever wants to speak to the NIC directly. Fields, nested formats and numbers
are packed from the declarations of cuda/gda/formats/command.h; nothing here knows a bit position. Values are checked by
lint.py before the NIC hears of them; to send wrong ones on purpose, pack them with gda.formats and use gda._verbs.
Source: ConnectX Programmer's Reference Manual, "Command Reference"; carried by DEVX (mlx5dv_devx_general_cmd(3)).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from gda import _verbs, attach, formats
from gda.errors import CommandError
from gda.nic import lint

__all__ = [
    "create_cq",
    "create_mkey",
    "create_qp",
    "init2rtr_qp",
    "observed",
    "qp_2err",
    "qp_2rst",
    "query_cq",
    "query_hca_cap",
    "query_qp",
    "query_roce_address",
    "rst2init_qp",
    "rtr2rts_qp",
]

# Commands whose opcode constant is not simply their name.
_OPCODES = {"qp_2err": "MLX5_CMD_OP_2ERR_QP", "qp_2rst": "MLX5_CMD_OP_2RST_QP"}


def query_hca_cap(context: _verbs.Context, group: int, *, maximum: bool = False) -> bytes:
    """Capabilities of one group (formats.hca_cap_type) as bytes: current values, or the most that could be set."""
    op_mod = 2 * group + (0 if maximum else 1)  # PRM: type in the upper bits, "current" in the lowest
    return bytes(_general(context, "query_hca_cap", op_mod=op_mod)["capability"])


def query_roce_address(context: _verbs.Context, **fields: Any) -> dict[str, Any]:
    """A GID table entry as the NIC uses it (format roce_addr_layout)."""
    return dict(_general(context, "query_roce_address", **fields)["roce_address"])


def create_cq(context: _verbs.Context, **fields: Any) -> tuple[_verbs.DevxObj, int]:
    """Create a completion queue; the object that holds it and its cqn."""
    return _create(context, "create_cq", "cqn", fields)


def create_qp(context: _verbs.Context, **fields: Any) -> tuple[_verbs.DevxObj, int]:
    """Create a queue pair; the object that holds it and its qpn."""
    return _create(context, "create_qp", "qpn", fields)


def create_mkey(context: _verbs.Context, **fields: Any) -> tuple[_verbs.DevxObj, int]:
    """Create a memory key; the object that holds it and its index (the key without its low 8 bits)."""
    return _create(context, "create_mkey", "mkey_index", fields)


def rst2init_qp(queue: _verbs.DevxObj, **fields: Any) -> None:
    """Move a queue pair from reset to init."""
    _modify(queue, "rst2init_qp", fields)


def init2rtr_qp(queue: _verbs.DevxObj, **fields: Any) -> None:
    """Move a queue pair from init to ready-to-receive."""
    _modify(queue, "init2rtr_qp", fields)


def rtr2rts_qp(queue: _verbs.DevxObj, **fields: Any) -> None:
    """Move a queue pair from ready-to-receive to ready-to-send."""
    _modify(queue, "rtr2rts_qp", fields)


def qp_2err(queue: _verbs.DevxObj, **fields: Any) -> None:
    """Move a queue pair to the error state: what is outstanding is flushed."""
    _modify(queue, "qp_2err", fields)


def qp_2rst(queue: _verbs.DevxObj, **fields: Any) -> None:
    """Move a queue pair to reset: the NIC forgets its indices."""
    _modify(queue, "qp_2rst", fields)


def query_qp(queue: _verbs.DevxObj, **fields: Any) -> dict[str, Any]:
    """The queue pair's context (format qpc)."""
    return dict(_query(queue, "query_qp", fields)["qpc"])


def query_cq(queue: _verbs.DevxObj, **fields: Any) -> dict[str, Any]:
    """The completion queue's context (format cqc)."""
    return dict(_query(queue, "query_cq", fields)["cq_context"])


Observer = Callable[[str, bytes, bytes, int], None]
_observers: list[Observer] = []


@contextmanager
def observed(observer: Observer) -> Iterator[None]:
    """Call `observer(name, command, answer, nanoseconds)` for each command inside the `with`, refused ones too.

    The answer is empty where the driver did not pass the command on. Commands that libmlx5 and the kernel send by
    themselves (destroying, for example) are not among them.
    """
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)


def _general(context: _verbs.Context, name: str, **fields: Any) -> dict[str, Any]:
    def run(body: bytes, answer_bytes: int) -> bytes:
        return _verbs.mlx5dv_devx_general_cmd(context, body, answer_bytes)

    return _issued(context, name, fields, run)


def _create(context: _verbs.Context, name: str, number: str, fields: Mapping[str, Any]) -> tuple[_verbs.DevxObj, int]:
    created: list[_verbs.DevxObj] = []

    def run(body: bytes, answer_bytes: int) -> bytes:
        created.append(_verbs.mlx5dv_devx_obj_create(context, body, answer_bytes))
        return created[0].output

    answer = _issued(context, name, fields, run)
    return created[0], int(answer[number])


def _modify(queue: _verbs.DevxObj, name: str, fields: Mapping[str, Any]) -> None:
    def run(body: bytes, answer_bytes: int) -> bytes:
        return _verbs.mlx5dv_devx_obj_modify(queue, body, answer_bytes)

    _issued(queue.context, name, fields, run)


def _query(queue: _verbs.DevxObj, name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    def run(body: bytes, answer_bytes: int) -> bytes:
        return _verbs.mlx5dv_devx_obj_query(queue, body, answer_bytes)

    return _issued(queue.context, name, fields, run)


def _issued(
    context: _verbs.Context, name: str, fields: Mapping[str, Any], run: Callable[[bytes, int], bytes]
) -> dict[str, Any]:
    """Check, pack, run and unpack; the answer's fields."""
    lint.check_command(lint.limits_of(context), fields)
    body, out = _packed(name, fields)
    answer, start = b"", time.perf_counter_ns()
    try:
        answer = run(body, out.bytes)
    except _verbs.DevxError as error:
        answer = error.output
        raise _refused(name, fields, out, error) from error
    finally:
        for observer in _observers:
            observer(name, body, answer, time.perf_counter_ns() - start)
    return _checked(name, fields, out, answer)


def _packed(name: str, fields: Mapping[str, Any]) -> tuple[bytes, formats.Struct]:
    opcode = formats.constants[_OPCODES.get(name, f"MLX5_CMD_OP_{name.upper()}")]
    return formats.structs[f"{name}_in"].pack(opcode=opcode, **fields), formats.structs[f"{name}_out"]


def _checked(name: str, fields: Mapping[str, Any], out: formats.Struct, answer: bytes) -> dict[str, Any]:
    values = out.unpack(answer)
    if values["status"]:  # a kernel that answers success although firmware refused
        raise _error(name, fields, int(values["status"]), int(values["syndrome"]))
    return values


def _refused(name: str, fields: Mapping[str, Any], out: formats.Struct, error: _verbs.DevxError) -> Exception:
    """The firmware's refusal, or the original error when the command never reached it."""
    status, syndrome = int(out.get(error.output, "status")), int(out.get(error.output, "syndrome"))
    if status:
        return _error(name, fields, status, syndrome)
    error.add_note(f"while running the firmware command {_called(name, fields)}, which the driver did not pass on")
    return error


def _error(name: str, fields: Mapping[str, Any], status: int, syndrome: int) -> CommandError:
    meaning = formats.command_status_meaning(status)
    software = attach.loaded()
    report = software.report() if software else []
    # The software NIC says in a sentence what it refused; it names the syndrome.
    sentence = next((s for s in reversed(report) if f"syndrome 0x{syndrome:x}" in s), "")
    text = f"{meaning.words}: {meaning.text}"
    if sentence:
        text += f"; the NIC says: {sentence.partition(' (status')[0].partition(': ')[2]}"
    return CommandError(_called(name, fields), status, syndrome, text, meaning.advice)


def _called(name: str, fields: Mapping[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={_short(value)}' for key, value in fields.items())})"


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_short(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, (bytes, bytearray)):
        return value.hex() if len(value) <= 16 else f"{len(value)} bytes"
    return hex(value) if isinstance(value, int) and value > 9 else str(value)
