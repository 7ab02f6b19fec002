# SPDX-License-Identifier: Apache-2.0
"""A collective as an operator of torch: all_gather(tensor), which its current stream orders on a GPU.

What it teaches: a tensor goes in as it is, and a kernel of this library takes its place between torch's own: behind
what computed the tensor, before what reads the result, without a wait on the CPU. On the CPU the same kernel runs as
C++. The operator has no gradient; torch.compile sees it as one node.

    python -m gda launch -n 2 examples/19_torch.py       (torchrun --nproc-per-node 2 examples/19_torch.py)

Started alone it launches two ranks of itself. With a GPU the tensors lie there; ranks that share one take turns on it.
"""

import subprocess
import sys

import gda
from gda.run.cuda import why_no_gpu

try:
    import torch
except ImportError:
    print("not run: torch is not installed")
    sys.exit()

COUNT, ROUNDS = 10_000, 5


class Gather:
    """What the operator needs, made once: registered memory for all pieces, signals, the kernel."""

    def __init__(self, team: gda.Team, like: torch.Tensor) -> None:
        self.team, self.launches = team, []
        self.rows = like.new_zeros(team.size, *like.shape)
        self.made = team.all_gather(self.rows)
        self.kernel = gda.Kernel("#include <gda/kernels/all_gather.h>\n").gda_kernel_all_gather

    def __call__(self, piece: torch.Tensor) -> torch.Tensor:
        """All ranks' pieces, in a tensor of their own."""
        self.rows[self.team.rank].copy_(piece)
        if piece.is_cuda:
            made = self.made
            self.launches.append(self.kernel.on(torch.cuda.current_stream())[made.channels, 1](
                self.team, made.window, made.piece_bytes, made.piece_bytes, made.signals, 10**10
            ))  # fmt: skip
        else:
            self.made(deadline_s=30)
        return self.rows.clone()


gathers: list[Gather] = []


@torch.library.custom_op("gda_example::all_gather", mutates_args=())
def all_gather(piece: torch.Tensor) -> torch.Tensor:
    """Every rank's tensor, along a new first axis."""
    return gathers[0](piece)


@all_gather.register_fake
def _(piece: torch.Tensor) -> torch.Tensor:
    return piece.new_empty(gathers[0].team.size, *piece.shape)


def main() -> bool:
    """Whether there was anybody to gather from."""
    with gda.init() as team:
        if team.size == 1:
            return False
        on_gpu = torch.cuda.is_available() and not why_no_gpu()
        piece = torch.zeros(COUNT, device="cuda" if on_gpu else "cpu")
        gathers.append(Gather(team, piece))
        total = torch.zeros((), device=piece.device)
        for round in range(ROUNDS):
            piece = torch.full_like(piece, round + team.rank)
            total += torch.ops.gda_example.all_gather(piece).sum()  # behind full_like, before sum
        for launch in gathers[0].launches:
            launch.wait()  # raises what a kernel reported
        expected = COUNT * sum(round + rank for round in range(ROUNDS) for rank in range(team.size))
        assert float(total) == expected, (float(total), expected)
        if team.rank == 0:
            print(f"{ROUNDS} rounds of {team.size} tensors on {piece.device}, sum {float(total):.0f}")
        team.barrier()  # nobody leaves while others may still send to it
    return True


if __name__ == "__main__" and not main():
    subprocess.run([sys.executable, "-m", "gda", "launch", "-n", "2", __file__], check=True, timeout=100)
    print("torch: ok")
