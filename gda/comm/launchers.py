# SPDX-License-Identifier: Apache-2.0
"""Carriers over what other launchers bring: torch.distributed and mpi4py, imported when they are used.

Chosen by bootstrap.find(), or made of a communicator or process group that the program gives to gda.init(). Both gather
the lengths first, then the records, each padded to the longest.
"""

from __future__ import annotations

import datetime
import importlib
import sys
import time
from typing import TYPE_CHECKING, Any

from gda import config
from gda.errors import ArgumentError, BootstrapError, DeadlineError, UnavailableError

if TYPE_CHECKING:
    from gda.comm.bootstrap import Carrier, Watch

__all__ = ["MpiCarrier", "TorchCarrier", "carrier_of", "torch_is_initialized"]

_LOOK_S = 0.001  # between two looks at a request of MPI
_PATIENCE_S = 2.0  # for what a rank gave before it ended: others may have to pass it on
_NOTHING = object()  # what nobody passes


def torch_is_initialized() -> bool:
    """Whether the program has a process group already; does not import torch."""
    distributed: Any = sys.modules.get("torch.distributed")
    return distributed is not None and distributed.is_available() and bool(distributed.is_initialized())


def carrier_of(thing: Any, deadline_s: float) -> Carrier:
    """The carrier over a communicator of mpi4py or a process group of torch, whose ranks become the team's.

    Raises ArgumentError for anything else, and for one that has no members here, or no longer.
    """
    mpi: Any = sys.modules.get("mpi4py.MPI")
    if mpi is not None and isinstance(thing, mpi.Comm):
        return MpiCarrier(deadline_s, thing)
    distributed: Any = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available():
        member: Any = getattr(distributed, "GroupMember", None)
        # What new_group() gives to those outside: an int in newer versions, an object in older ones.
        if thing is getattr(member, "NON_GROUP_MEMBER", _NOTHING) or isinstance(thing, distributed.ProcessGroup):
            return TorchCarrier(deadline_s, thing)
    advice = "pass a communicator of mpi4py, a process group of torch.distributed, or one of gda.comm.threads(n)"
    if hasattr(thing, "get_group"):
        advice = "of a device mesh, pass the group of one dimension: mesh.get_group(name)"
    raise ArgumentError(f"the ranks of a team cannot be taken from a {type(thing).__name__}", advice)


class TorchCarrier:
    """Over torch.distributed: a process group of the program's, the default one, or one made (gloo) from torchrun's
    environment, which close() destroys; another stays.
    """

    def __init__(self, deadline_s: float, group: Any = None) -> None:
        self._torch = _imported("torch", "torch.distributed", "pip install torch")
        self._distributed: Any = self._torch.distributed
        self._group = group
        self._is_ours = group is None and not torch_is_initialized()
        if self._is_ours:
            if config.launcher() != "torchrun":
                raise UnavailableError(
                    "there is no process group of torch.distributed, nor torchrun's environment",
                    "start the program with torchrun, or call torch.distributed.init_process_group before gda.init",
                )
            self._distributed.init_process_group("gloo", timeout=datetime.timedelta(seconds=deadline_s))
        try:
            backend = str(self._distributed.get_backend(group))
            rank, size = int(self._distributed.get_rank(group)), int(self._distributed.get_world_size(group))
        except (KeyError, RuntimeError, ValueError) as error:
            if self._outside(group):
                rank = size = -1
            else:
                raise ArgumentError(
                    f"this process group is of no use: {error}",
                    "it was destroyed, or all of torch.distributed was; pass one that is open",
                ) from error
        if rank < 0:
            raise ArgumentError(
                "this process is not in that process group", "call gda.init() only on the ranks that new_group() named"
            )
        self._device = "cuda" if backend == "nccl" else "cpu"  # others, of several backends too, take CPU tensors
        self.name = f"torch.distributed ({backend})"
        self.rank, self.size = rank, size

    def exchange(self, data: bytes, phase: int, deadline_s: float, watch: Watch) -> list[bytes]:
        """See Carrier."""
        torch = self._torch
        try:
            lengths = [int(one[0]) for one in self._gather(torch.tensor([len(data)]), deadline_s)]
            padded = torch.frombuffer(bytearray(data.ljust(max(lengths), b"\0")), dtype=torch.uint8)
            records = self._gather(padded, deadline_s)
        except (RuntimeError, ValueError) as error:
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

    def _outside(self, group: Any) -> bool:
        return group is getattr(getattr(self._distributed, "GroupMember", None), "NON_GROUP_MEMBER", _NOTHING)

    def _gather(self, tensor: Any, deadline_s: float) -> list[Any]:
        tensor = tensor.to(self._device)
        out = [self._torch.empty_like(tensor) for _ in range(self.size)]
        work = self._distributed.all_gather(out, tensor, group=self._group, async_op=True)
        work.wait(datetime.timedelta(seconds=deadline_s))
        return out


class MpiCarrier:
    """Over mpi4py: COMM_WORLD, or a communicator of the program's: split, Cartesian, of some ranks only."""

    def __init__(self, deadline_s: float, communicator: Any = None) -> None:
        self._mpi = _imported("mpi4py.MPI", "mpi4py", "pip install mpi4py, and an MPI library")
        if not self._mpi.Is_initialized() or self._mpi.Is_finalized():
            when = "no longer" if self._mpi.Is_initialized() else "not yet"
            raise ArgumentError(f"MPI does {when} run in this process", "call gda.init() between its Init and Finalize")
        parent = self._mpi.COMM_WORLD if communicator is None else communicator
        if parent == self._mpi.COMM_NULL:
            raise ArgumentError(
                "a null communicator: it was freed, or this process is in none that was made",
                "call gda.init() only on ranks that have one (after Split or Create compare with MPI.COMM_NULL)",
            )
        if parent.Is_inter():
            raise ArgumentError(
                f"an intercommunicator, of {parent.Get_size()} ranks here and {parent.Get_remote_size()} there, has no "
                "one order of ranks", "pass what its Merge() gives",
            )  # fmt: skip
        self._abandoned: list[object] = []
        self.name = "mpi4py"
        self.rank, self.size = parent.Get_rank(), parent.Get_size()
        # A communicator of our own: our messages and the program's never meet, and the program may free its own.
        self._communicator, request = parent.Idup()
        self._wait(request, "all ranks", 0, deadline_s, used=parent)

    def exchange(self, data: bytes, phase: int, deadline_s: float, watch: Watch) -> list[bytes]:
        """See Carrier."""
        lengths = self._gather(len(data).to_bytes(8, "little"), phase, deadline_s, watch)
        sizes = [int.from_bytes(one, "little") for one in lengths]
        records = self._gather(data.ljust(max(sizes), b"\0"), phase, deadline_s, watch)
        return [one[:size] for one, size in zip(records, sizes, strict=True)]

    def close(self) -> None:
        """Let go of our communicator; MPI frees it at its end, for freeing it is collective and closing is not."""
        self._communicator = None

    def _gather(self, data: bytes, phase: int, deadline_s: float, watch: Watch) -> list[bytes]:
        """Equally many bytes of all ranks. MPI does not say who is missing; those that were seen to end are named."""
        out = bytearray(len(data) * self.size)
        byte = self._mpi.BYTE
        request = self._communicator.Iallgather([data, len(data), byte], [out, len(data), byte])
        what = f"the records of {self.size} ranks"
        self._wait(request, what, phase, deadline_s, watch, used=(data, out))
        return [bytes(out[r * len(data) : (r + 1) * len(data)]) for r in range(self.size)]

    def _wait(
        self, request: Any, what: str, phase: int, deadline_s: float, watch: Watch | None = None, *, used: object
    ) -> None:
        """Until MPI has done it; `used` is kept for it if it never does."""
        end = time.monotonic() + deadline_s
        try:
            while not request.Test():
                if watch is not None:  # some may have what this rank waits for, and have gone on to their end
                    watch.look(range(self.size), _PATIENCE_S, but_left=True)
                if time.monotonic() >= end:
                    raise DeadlineError(
                        f"phase {phase}: MPI did not bring {what} within {deadline_s:g} s",
                        advice="see that every rank makes the same calls in the same order",
                    )
                time.sleep(_LOOK_S)
        except self._mpi.Exception as error:
            self._abandoned.append((request, used))
            if watch is not None:
                watch.look(range(self.size))
            raise BootstrapError(
                f"phase {phase}: MPI could not bring {what}: {error}", phase=phase,
                advice="a rank has ended, or makes other calls; look at what each said last",
            ) from error  # fmt: skip
        except BaseException:
            self._abandoned.append((request, used))  # MPI may still write there
            raise


def _imported(module: str, what: str, advice: str) -> Any:
    try:
        if module == "torch":
            importlib.import_module("torch.distributed")
        return importlib.import_module(module)
    except ImportError as error:
        raise UnavailableError(f"{what} is not here: {error}", advice) from error
