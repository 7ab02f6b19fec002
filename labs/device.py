# SPDX-License-Identifier: Apache-2.0
"""A learner's device code, compiled for the CPU with a witness (witness.h) that sees what it tells the NIC.

Used by the graders of labs 3 to 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from grading import Wrong

import gda
from gda import formats
from gda.errors import CompileError, DeadlineError

WITNESS = Path(__file__).with_name("witness.h")
MOST_STEPS, RING_BYTES = 512, 1024  # as there
REQUEST_BARRIER, RECORD_BARRIER, SYSTEM_FENCE, DEVICE_FENCE, RECORD, DOORBELL, SHARED_STORE, ADD = range(1, 9)
_STEP = np.dtype([
    ("kind", "<u8"), ("address", "<u8"), ("value", "<u8"), ("gpu_scope", "<u8"), ("record", "<u8"), ("thread", "<u8"),
    ("ring", "u1", RING_BYTES),
])  # fmt: skip


@dataclass(frozen=True)
class Step:
    """One step of the learner's code, with the send queue and its record as they were then."""

    kind: int
    address: int
    value: int
    is_gpu_scope: bool
    record: int  # the send counter
    thread: int
    ring: bytes

    def slot(self, index: int, depth: int) -> bytes:
        """The 64 bytes of a request's slot."""
        at = index % depth * 64
        return self.ring[at : at + 64]

    @property
    def end(self) -> int:
        """What a record or doorbell tells: the index behind the last request, modulo 2^16."""
        if self.kind == RECORD:
            return swapped(self.value)
        fields = formats.send_doorbell.unpack(self.value.to_bytes(8, "little"))
        return int(fields["wqe_index"] + (fields["ds"] + 3) // 4) % 0x10000


def swapped(dword: int) -> int:
    """A dword of memory, read as the NIC does."""
    return int.from_bytes((dword & 0xFFFFFFFF).to_bytes(4, "little"), "big")


class Witnessed:
    """A learner's file, compiled. Raises Wrong with the compiler's first words."""

    def __init__(self, path: Path, *, whole_library: bool = False, witness: bool = True) -> None:
        text = path.read_text()
        if not whole_library and "gda/gda.h" in text:
            raise Wrong(
                f"{path.name} includes <gda/gda.h>: this lab is to do without the library; formats, handle.h and "
                "target.h are enough"
            )
        before = WITNESS.read_text().replace("#pragma once", "") if witness else ""
        try:
            self.kernel = gda.Kernel(f'{before}\n#line 1 "{path.name}"\n{text}', target="host")
        except CompileError as error:
            said = str(error).splitlines()
            own = [line for line in said if line.startswith(f"{path.name}:") and " In function" not in line]
            lines = [line for line in said if ": error:" in line][:2]
            lines += [line for line in own if line not in lines][:1]  # where the macro was used
            raise Wrong(*(f"it does not compile: {line.strip()}" for line in lines or said[:3])) from None
        self.kernel.deadline_s = 5.0
        self.path = path

    def launch(self, name: str, grid: int, block: int, *arguments: Any) -> None:
        """Run one kernel to its end. Raises Wrong when it does not come to one."""
        if name not in self.kernel.names:
            raise Wrong(f"{self.path.name} has no kernel {name} any more; it has {', '.join(self.kernel.names)}")
        try:
            self.kernel[name][grid, block](*arguments)
        except DeadlineError as error:
            if "given up" not in str(error):
                raise
            raise Wrong(
                f"kernel {name} did not end within {self.kernel.deadline_s:g} s and was given up: "
                "which of its loops has no deadline?"
            ) from None

    def watch(self, queue: gda.QueuePair) -> None:
        """Note steps of this queue from now on."""
        self.kernel.lab_watch[1, 1](queue)

    def steps(self) -> list[Step]:
        """What was done since, in order."""
        out, count = np.zeros(MOST_STEPS, _STEP), np.zeros(1, np.uint64)
        self.kernel.lab_steps[1, 1](out.view(np.uint8).reshape(-1), count)
        return [
            Step(int(s["kind"]), int(s["address"]), int(s["value"]), bool(s["gpu_scope"]), swapped(int(s["record"])),
                 int(s["thread"]), s["ring"].tobytes())
            for s in out[: min(int(count[0]), MOST_STEPS)]
        ]  # fmt: skip
