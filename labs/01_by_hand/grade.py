# SPDX-License-Identifier: Apache-2.0
"""Grades exercise.py (or the file named on the command line): each field first, then the NIC itself.

usage: python labs/01_by_hand/grade.py [FILE]
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from fields import problems_of  # noqa: E402
from grading import complaints, describe, grade, load  # noqa: E402

import gda  # noqa: E402
from gda import formats  # noqa: E402

EXAMPLE = {"index": 0x1234, "qpn": 0xABCDEF, "remote_address": 0x1122334455667788, "rkey": 0x0A0B0C0D,
           "local_address": 0x0102030405060708, "lkey": 0x1A2B3C4D, "length": 0x300}  # fmt: skip
WAIT_S = 2.0


def check_bytes(module: ModuleType) -> list[str]:
    """Problems of the three functions' bytes; empty when all are right."""
    request = module.work_request(**EXAMPLE)
    if not isinstance(request, bytes) or len(request) != 48:
        return [f"work_request must return 48 bytes, not {describe(request)}"]
    problems = problems_of(request, EXAMPLE)
    for written, right_bytes in ((1, b"\0\0\0\1"), (0x10002, b"\0\0\0\2")):
        got_bytes = module.doorbell_record(written)
        if got_bytes != right_bytes:
            problems.append(
                f"doorbell_record({written}) is {describe(got_bytes)}, should be {right_bytes.hex()}: "
                "32 bits big-endian, the counter modulo 2^16"
            )
    ring = module.doorbell(bytes(range(48)))
    if ring != bytes(range(8)):
        problems.append(f"doorbell is {describe(ring)}: it is the first eight bytes of the work request")
    return problems


def run_on_nic(module: ModuleType) -> list[str]:
    """Posts the work request by hand on a real queue; problems, with what the NIC said."""
    with gda.open() as nic:
        source = nic.allocate(64)
        target = nic.allocate(64)
        source.write(0, b"written by hand, byte by byte.".ljust(64, b"."))
        queue, _ = nic.loopback_pair()
        request = module.work_request(
            index=0, qpn=queue.qpn, remote_address=target.address, rkey=target.rkey,
            local_address=source.address, lkey=source.lkey, length=64,
        )  # fmt: skip
        queue.write_wqe(0, request)
        queue.write_record(module.doorbell_record(1))
        queue.ring(module.doorbell(request))
        deadline = time.monotonic() + WAIT_S
        while queue.read_cqe()[63] >> 4 == formats.MLX5_CQE_INVALID:
            if time.monotonic() > deadline:
                return [f"no completion within {WAIT_S:g} s", *complaints()]
        completion = formats.decode_cqe(queue.read_cqe())
        if queue.read_cqe()[63] >> 4 != formats.MLX5_CQE_REQ:
            return ["the NIC answered with an error:", completion, *complaints()]
        if target.read(0, 64) != source.read(0, 64):
            return ["a completion came, but the data is not there"]
        print(completion)
    return []


if __name__ == "__main__":
    CHECKS = (
        ("each field", lambda path: check_bytes(load(path))),
        ("all fields are right; now the NIC runs them", lambda path: run_on_nic(load(path))),
    )
    sys.exit(grade(1, HERE, "exercise.py", CHECKS, sys.argv[1:]))
