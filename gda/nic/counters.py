# SPDX-License-Identifier: Apache-2.0
"""What a NIC has counted, under one set of names for a card and for the software NIC. Used by device.py and queue.py.

A card's are files below /sys/class/infiniband/NAME/ports/N: Linux, Documentation/ABI/stable/sysfs-class-infiniband,
and the hw_counters of mlx5_ib. The software NIC is asked itself, for it counts things that no card shows.
"""

from __future__ import annotations

from pathlib import Path

from gda import attach

__all__ = ["read"]

SYSFS = Path("/sys/class/infiniband")

# Name here -> file of a card. Names are the software NIC's where it counts the same.
_FILES = {
    "ack_timeouts": "hw_counters/local_ack_timeout_err",
    "sequence_naks": "hw_counters/packet_seq_err",
    "missed_responses": "hw_counters/implied_nak_seq_err",
    "rnr_retries": "hw_counters/rnr_nak_retry_err",
    "rnr_naks_sent": "hw_counters/out_of_buffer",
    "duplicates": "hw_counters/duplicate_request",
    "out_of_order": "hw_counters/out_of_sequence",
    "accesses_refused": "hw_counters/resp_remote_access_errors",
    "lengths_exceeded": "hw_counters/resp_local_length_error",
    "wire_bad_icrc": "hw_counters/rx_icrc_encapsulated",
    "link_downed": "counters/link_downed",
    "receive_errors": "counters/port_rcv_errors",
    "transmit_discards": "counters/port_xmit_discards",
}


def read(name: str, port: int) -> dict[str, int]:
    """Counters of a port of a NIC since it started. A counter that this NIC does not have is missing, not zero."""
    software = attach.loaded()
    if software is None:
        return _of_card(SYSFS / name / "ports" / str(port))
    number = name.removeprefix("mlx5_")
    return software.counters(nic=int(number) if number.isdecimal() else 0, port=port)


def _of_card(directory: Path) -> dict[str, int]:
    found = {}
    for name, file in _FILES.items():
        try:
            found[name] = int((directory / file).read_text())
        except (OSError, ValueError):  # an older driver, or a counter that is not readable: "N/A (no PMA)"
            continue
    return found
