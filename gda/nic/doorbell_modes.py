# SPDX-License-Identifier: Apache-2.0
"""The ways in which device code can tell a NIC of its requests, and which of them work here.

Used by queue.py and, through Nic.doorbell_modes(), by people. What each does and costs: docs/doorbells.md; the device's
side of it: cuda/gda/tell.h.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gda import formats
from gda.errors import ArgumentError, CudaError, UnavailableError
from gda.nic.placement import choose

if TYPE_CHECKING:
    from gda.nic.device import Nic

__all__ = [
    "MODES", "DoorbellMode", "DoorbellModes", "available", "check_name", "kernel_flags", "refuse",
    "refuse_placement",
]  # fmt: skip

# What a put that comes alone pays besides its reservation, by mode.
MODES = {
    "record": "2 barriers, 1 record, 1 MMIO write",
    "doorbell-first": "2 barriers, 1 record, 2 MMIO writes; the first after 1 barrier",
    "no-record": "1 barrier, 1 MMIO write",
    "blueflame": "2 barriers, 1 record, 1 MMIO write of 64 bytes",
    "cpu": "1 barrier, 1 write to host memory; a host thread: 1 record, 1 MMIO write",
}
_FLAGS = {
    "record": (),
    "doorbell-first": ("GDA_QP_DOORBELL_FIRST",),
    "no-record": ("GDA_QP_RECORDLESS",),
    "blueflame": ("GDA_QP_BLUEFLAME",),
    "cpu": ("GDA_QP_RECORDLESS", "GDA_QP_ASSISTED"),
    "proxy": ("GDA_QP_RECORDLESS", "GDA_QP_ASSISTED"),
}


@dataclass(frozen=True)
class DoorbellMode:
    """One of MODES. `reason` says why it is not available and `advice` what to try; both empty where it is."""

    name: str
    available: bool
    reason: str
    advice: str
    costs: str


class DoorbellModes(list[DoorbellMode]):
    """All modes, printed as a table."""

    def __str__(self) -> str:
        lines = []
        for mode in self:
            what = mode.costs if mode.available else f"{mode.reason}; {mode.advice}"
            lines.append(f"{mode.name:<16}{'yes' if mode.available else 'no':<5}{what}")
        return "\n".join(lines)


def check_name(doorbell: str | None, record: bool | None, posting: str) -> str:
    """The mode that a queue pair's options ask for: `record` is the short word for the two common ones.

    Where the proxy posts there is one mode only, "proxy".
    """
    if posting == "proxy":
        if doorbell not in (None, "proxy") or record is not None:
            asked = f"record={record}" if doorbell is None else f"doorbell={doorbell!r}"
            raise UnavailableError(
                f"{asked}: kernels of a proxied queue pair tell a host thread, which reads a word in host memory",
                'leave doorbell and record out, or make it with posting="direct" on an mlx5 device',
            )
        return "proxy"
    if doorbell is None:
        return "no-record" if record is False else "record"
    if doorbell not in MODES:
        raise ArgumentError(f"doorbell={doorbell!r} is not one of {', '.join(MODES)}")
    if record is not None and record != (doorbell != "no-record"):
        raise ArgumentError(f"doorbell={doorbell!r} and record={record} contradict each other", "leave record out")
    return doorbell


def kernel_flags(mode: str) -> int:
    """The bits of enum gda_qp_flags by which device code knows the mode."""
    return sum(int(formats.constants[name]) for name in _FLAGS[mode])


def refuse(nic: Nic, mode: str, placement: Mapping[str, str]) -> None:
    """Raise UnavailableError where a queue pair of this mode and placement cannot be; nothing is allocated."""
    if nic.posting == "proxy" and mode != "proxy":
        raise UnavailableError(
            f"{nic.name} is served by the proxy: kernels cannot tell it anything themselves",
            'open an mlx5 device with posting="direct"; docs/proxy.md',
        )
    if mode == "no-record" and not nic.capabilities.send_dbr_mode_no_dbr_ext:
        raise UnavailableError(
            f"{nic.name} has no queue pairs without doorbell record (capability send_dbr_mode_no_dbr_ext)",
            'use doorbell="record"',
        )
    log_bytes = nic.capabilities.log_bf_reg_size
    if mode == "blueflame" and 1 << log_bytes != 2 * formats.UAR_BLUEFLAME_HALF_BYTES:
        has = f"registers of {1 << log_bytes} bytes" if log_bytes else "no BlueFlame registers"
        raise UnavailableError(
            f"{nic.name} has {has}; BlueFlame here means registers of {2 * formats.UAR_BLUEFLAME_HALF_BYTES} bytes "
            f"(capability log_bf_reg_size is {log_bytes})",
            'use doorbell="record"',
        )
    if mode == "cpu" and placement.get("records") == "gpu":
        raise UnavailableError(
            "the host thread that rings for kernels writes the doorbell record, which lies in GPU memory",
            'leave "records" out of placement: it then lies in host memory',
        )


def refuse_placement(mode: str, placement: Mapping[str, str]) -> None:
    """Raise UnavailableError where a host thread would have to read or write what lies in GPU memory."""
    parts = [part for part in ("sq", "cq", "receive_cq", "records") if placement[part] == "gpu"]
    if mode == "proxy" and parts:
        raise UnavailableError(
            f"the proxy reads and writes queues in host memory, but {', '.join(parts)} would lie in GPU memory",
            'leave placement out, or placement="host": kernels on the GPU reach it there',
        )


def available(nic: Nic, placement: str | Mapping[str, str] | None) -> DoorbellModes:
    """Try each mode: a doorbell page of its kind is taken, mapped where kernels need it, and given back."""
    named = placement if isinstance(placement, Mapping) else {}
    choose(placement, "host", nic.gpu, nic.no_gpu_reason)
    modes = DoorbellModes()
    for name, costs in MODES.items():
        reason = advice = ""
        try:
            refuse(nic, name, named)
            nic.doorbell_pages.allocate(name).close()
        except (UnavailableError, CudaError) as error:
            reason, advice = error.message, error.advice
        modes.append(DoorbellMode(name, not reason, reason, advice, costs))
    return modes
