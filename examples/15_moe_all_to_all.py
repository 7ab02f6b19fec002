# SPDX-License-Identifier: Apache-2.0
"""A layer of experts, one on each rank: tokens go to the expert that a router chose for each, and their results back.

What it teaches: the all-to-all-v of a mixture of experts. Only the sender knows how many rows go where: the counts
travel by signals, receivers need no call in between, and rows come back to the places that they were sent from.

    python -m gda launch -n 4 examples/15_moe_all_to_all.py
    (mpirun -n 4 python ..., torchrun --nproc-per-node 4 ...)

Started alone it launches four ranks of itself.
"""

import subprocess
import sys

import numpy as np

import gda

TOKENS, WIDTH, BATCHES = 64, 32, 3


def weights(expert: int) -> np.ndarray:
    """Of one expert; in a real program only its rank has them. Here the others check the result."""
    return np.random.default_rng(expert).standard_normal((WIDTH, WIDTH)).astype(np.float32)


def main() -> bool:
    """Whether there was more than one expert."""
    with gda.init() as team:
        if team.size == 1:
            return False
        own = weights(team.rank)
        random = np.random.default_rng(1000 + team.rank)
        source, back = (np.zeros((TOKENS, WIDTH), np.float32) for _ in range(2))
        # All tokens of all ranks may choose the same expert.
        target, results = (np.zeros((team.size * TOKENS, WIDTH), np.float32) for _ in range(2))
        exchange = team.all_to_all_v(source, target, back, results=results)
        for batch in range(BATCHES):
            tokens = random.standard_normal((TOKENS, WIDTH)).astype(np.float32)
            popular = random.random(TOKENS) < 0.5  # half of them go to one expert: loads differ
            chosen = np.where(popular, batch % team.size, random.integers(0, team.size, TOKENS))
            order = np.argsort(chosen, kind="stable")  # rows for one expert lie side by side
            source[:] = tokens[order]
            counts = np.bincount(chosen, minlength=team.size).tolist()

            came = exchange.dispatch(counts, deadline_s=30)
            for rows in came:  # of each rank
                part = slice(rows.start, rows.start + rows.count)
                results[part] = np.maximum(target[part] @ own, 0)
            exchange.combine(deadline_s=30)

            output = np.empty_like(tokens)
            output[order] = back
            for token, expert, result in zip(tokens, chosen, output, strict=True):
                np.testing.assert_allclose(result, np.maximum(token @ weights(expert), 0), rtol=1e-4, atol=1e-4)
            loads = [int(load) for load in team.bootstrap.allgather(b"%d" % sum(rows.count for rows in came))]
            assert sum(loads) == team.size * TOKENS
            if team.rank == 0:
                print(f"batch {batch}: {team.size * TOKENS} tokens, by expert {loads}")
        team.barrier()  # nobody leaves while others may still send to it
    return True


if __name__ == "__main__" and not main():
    subprocess.run([sys.executable, "-m", "gda", "launch", "-n", "4", __file__], check=True, timeout=100)
    print("experts: ok")
