# SPDX-License-Identifier: Apache-2.0
"""Carriers over what other launchers bring: torch.distributed and mpi4py, imported when they are used.

Chosen by bootstrap.find(). Both gather the lengths first, then the records, each padded to the longest.
"""

from __future__ import annotations

import datetime
import importlib
import sys
import time
from typing import TYPE_CHECKING, Any

from gda import config
from gda.errors import BootstrapError, DeadlineError, UnavailableError

if TYPE_CHECKING:
    from gda.comm.bootstrap import Watch

__all__ = ["MpiCarrier", "TorchCarrier", "torch_is_initialized"]

_LOOK_S = 0.001  # between two looks at a request of MPI


def torch_is_initialized() -> bool:
    """Whether the program has a process group already; does not import torch."""
    distributed: Any = sys.modules.get("torch.distributed")
    return distributed is not None and distributed.is_available() and bool(distributed.is_initialized())


class TorchCarrier:
    """Over torch.distributed: the default process group, or one made (gloo) from torchrun's environment.

    A group that was made here is destroyed by close(), another stays.
    """

    def __init__(self, deadline_s: float) -> None:
        self._torch = _imported("torch", "torch.distributed", "pip install torch")
        self._distributed: Any = self._torch.distributed
        self._is_ours = not torch_is_initialized()
        if self._is_ours:
            if config.launcher() != "torchrun":
                raise UnavailableError(
                    "there is no process group of torch.distributed, nor torchrun's environment",
                    "start the program with torchrun, or call torch.distributed.init_process_group before gda.init",
                )
            self._distributed.init_process_group("gloo", timeout=datetime.timedelta(seconds=deadline_s))
        backend = str(self._distributed.get_backend())
        self._device = "cuda" if backend == "nccl" else "cpu"
        self.name = f"torch.distributed ({backend})"
        self.rank, self.size = self._distributed.get_rank(), self._distributed.get_world_size()

    def exchange(self, data: bytes, phase: int, deadline_s: float, watch: Watch) -> list[bytes]:
        """See Carrier."""
        torch = self._torch
        try:
            lengths = [int(one[0]) for one in self._gather(torch.tensor([len(data)]), deadline_s)]
            padded = torch.frombuffer(bytearray(data.ljust(max(lengths), b"\0")), dtype=torch.uint8)
            records = self._gather(padded, deadline_s)
        except RuntimeError as error:
            watch.look(range(self.size))
            raise BootstrapError(
                f"phase {phase}: torch.distributed could not exchange records: {error}", phase=phase,
                advice="a rank has ended, or makes other calls; look at what each said last",
            ) from error  # fmt: skip
        return [bytes(one[:length].tolist()) for one, length in zip(records, lengths, strict=True)]

    def close(self) -> None:
        """Destroy the group that was made here."""
        if self._is_ours and self._distributed.is_initialized():
            self._is_ours = False
            self._distributed.destroy_process_group()

    def _gather(self, tensor: Any, deadline_s: float) -> list[Any]:
        tensor = tensor.to(self._device)
        out = [self._torch.empty_like(tensor) for _ in range(self.size)]
        work = self._distributed.all_gather(out, tensor, async_op=True)
        work.wait(datetime.timedelta(seconds=deadline_s))
        return out


class MpiCarrier:
    """Over mpi4py: COMM_WORLD, or a communicator of the program's."""

    def __init__(self, communicator: Any = None) -> None:
        self._mpi = _imported("mpi4py.MPI", "mpi4py", "pip install mpi4py, and an MPI library")
        # A communicator of our own: our messages and the program's never meet.
        self._communicator: Any = (communicator or self._mpi.COMM_WORLD).Dup()
        self._abandoned: list[object] = []
        self.name = "mpi4py"
        self.rank, self.size = self._communicator.Get_rank(), self._communicator.Get_size()

    def exchange(self, data: bytes, phase: int, deadline_s: float, watch: Watch) -> list[bytes]:
        """See Carrier."""
        end = time.monotonic() + deadline_s
        lengths = self._gather(len(data).to_bytes(8, "little"), phase, end, deadline_s, watch)
        sizes = [int.from_bytes(one, "little") for one in lengths]
        records = self._gather(data.ljust(max(sizes), b"\0"), phase, end, deadline_s, watch)
        return [one[:size] for one, size in zip(records, sizes, strict=True)]

    def close(self) -> None:
        """Let go of our communicator; MPI frees it at its end, for freeing it is collective and closing is not."""
        self._communicator = None

    def _gather(self, data: bytes, phase: int, end: float, deadline_s: float, watch: Watch) -> list[bytes]:
        """Equally many bytes of all ranks. MPI does not say who is missing; those that were seen to end are named."""
        out = bytearray(len(data) * self.size)
        byte = self._mpi.BYTE
        request = self._communicator.Iallgather([data, len(data), byte], [out, len(data), byte])
        while not request.Test():
            try:
                watch.look(range(self.size))
                if time.monotonic() >= end:
                    raise DeadlineError(
                        f"phase {phase}: MPI did not bring the records of {self.size} ranks within {deadline_s:g} s",
                        advice="see that every rank makes the same calls in the same order",
                    )
            except BaseException:
                self._abandoned.append((request, data, out))  # MPI may still write there
                raise
            time.sleep(_LOOK_S)
        return [bytes(out[r * len(data) : (r + 1) * len(data)]) for r in range(self.size)]


def _imported(module: str, what: str, advice: str) -> Any:
    try:
        if module == "torch":
            importlib.import_module("torch.distributed")
        return importlib.import_module(module)
    except ImportError as error:
        raise UnavailableError(f"{what} is not here: {error}", advice) from error
