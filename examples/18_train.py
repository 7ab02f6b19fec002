# SPDX-License-Identifier: Apache-2.0
"""A small network is trained by all ranks, each on its share of the data: gradients are added by the device all-reduce.

What it teaches: data-parallel training is one all-reduce a step. Every rank gets the same bits, so their weights stay
equal without being sent; the losses are those of one process alone up to rounding, for sums of floats depend on order.
With torch its autograd makes the gradients, without it NumPy and the chain rule do.

    python -m gda launch -n 4 examples/18_train.py       (mpirun -n 4 python ..., torchrun --nproc-per-node 4 ...)

Started alone it launches four ranks of itself.
"""

import importlib.util
import subprocess
import sys

import numpy as np

import gda

SAMPLES, HIDDEN, STEPS, RATE = 240, 16, 20, 0.1
SHAPES = [(2, HIDDEN), (HIDDEN,), (HIDDEN, 1), (1,)]
SIZES = [int(np.prod(shape)) for shape in SHAPES]
TOLERANCE = 1e-4  # relative, of a loss
HAS_TORCH = importlib.util.find_spec("torch") is not None


def split(flat: np.ndarray) -> list[np.ndarray]:
    """The layers' weights, as views."""
    parts = np.split(flat, np.cumsum(SIZES)[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, SHAPES, strict=True)]


def by_numpy(weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float]:
    """Sums over the samples: gradient, and squared error."""
    a, b, c, d = split(weights)
    hidden = np.tanh(x @ a + b)
    error = hidden @ c + d - y
    inner = 2 * error @ c.T * (1 - hidden**2)
    parts = [x.T @ inner, inner.sum(0), hidden.T @ (2 * error), (2 * error).sum(0)]
    return np.concatenate([part.ravel() for part in parts]), float((error**2).sum())


def by_torch(weights: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float]:
    """The same."""
    import torch

    flat = torch.from_numpy(weights).clone().requires_grad_()
    parts = torch.split(flat, SIZES)
    a, b, c, d = (part.reshape(shape) for part, shape in zip(parts, SHAPES, strict=True))
    loss = ((torch.tanh(torch.from_numpy(x) @ a + b) @ c + d - torch.from_numpy(y)) ** 2).sum()
    loss.backward()
    return flat.grad.numpy(), float(loss)


def train(x: np.ndarray, y: np.ndarray, team: gda.Team | None = None) -> tuple[np.ndarray, list[float]]:
    """The weights in the end, and the loss of each step; with a team on this rank's share of the samples."""
    gradients = by_torch if HAS_TORCH else by_numpy
    weights = np.random.default_rng(7).standard_normal(sum(SIZES)).astype(np.float32)  # the same on all ranks
    shared = np.zeros(weights.size + 1, np.float32)
    if team is not None:
        window = team.window(shared.nbytes)  # memory that kernels reach, wherever they run
        shared, reduce = window.memory.array.view(np.float32), team.all_reduce(window, dtype="float32")
        x, y = x[team.rank :: team.size], y[team.rank :: team.size]
    losses = []
    for _ in range(STEPS):
        shared[:-1], shared[-1] = gradients(weights, x, y)
        if team is not None:
            reduce(deadline_s=30)
        weights -= RATE / SAMPLES * shared[:-1]
        losses.append(float(shared[-1]) / SAMPLES)
    return weights, losses


def main() -> bool:
    """Whether there was anybody to share the data with."""
    x = np.random.default_rng(1).uniform(-1, 1, (SAMPLES, 2)).astype(np.float32)
    y = x[:, :1] * x[:, 1:]  # to be learnt: the product of two numbers
    with gda.init() as team:
        if team.size == 1:
            return False
        weights, losses = train(x, y, team)
        assert len(set(team.bootstrap.allgather(weights.tobytes()))) == 1, "all ranks have the same bits"
        _, alone = train(x, y)
        np.testing.assert_allclose(losses, alone, rtol=TOLERANCE)
        assert losses[-1] < losses[0] / 5
        if team.rank == 0:
            apart = max(abs(a - b) / b for a, b in zip(losses, alone, strict=True))
            print(f"loss {losses[0]:.4f} to {losses[-1]:.4f} on {team.size} ranks; one alone: {alone[-1]:.4f}, "
                  f"at most {apart:.0e} apart ({'torch' if HAS_TORCH else 'NumPy'})")  # fmt: skip
        team.barrier()  # nobody leaves while others may still send to it
    return True


if __name__ == "__main__" and not main():
    subprocess.run([sys.executable, "-m", "gda", "launch", "-n", "4", __file__], check=True, timeout=100)
    print("training: ok")
