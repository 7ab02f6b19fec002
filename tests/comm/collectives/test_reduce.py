# SPDX-License-Identifier: Apache-2.0
"""Reduce-scatter and all-reduce with each protocol, for 1 to 9 ranks: the bytes are those of the steps in NumPy."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import gda
from gda.comm import AllReduce, ReduceScatter, Team
from gda.comm.collectives.reduce import PROTOCOLS, elements_sent, instance_of, reference, steps_of
from gda.comm.collectives.steps import pieces, share
from gda.comm.kernels import kernels_of
from gda.errors import ArgumentError, BootstrapError, ClosedError, DeadlineError
from gda.sim import faults
from tests.comm.conftest import teams, world

ALGORITHMS = ("scatter", "ring", "doubling")


def compiled(algorithm: str, protocol: str, op: str = "sum", dtype: str = "float32") -> None:
    """Before ranks run that wait for each other."""
    kernel = "reduce_scatter" if algorithm == "scatter" else f"all_reduce_{algorithm}"
    kernels_of("reduce", instance_of(kernel, protocol, dtype, op), target="host")


@pytest.fixture(scope="module", autouse=True)
def kernels() -> None:
    for algorithm in ALGORITHMS:
        for protocol in PROTOCOLS:
            compiled(algorithm, protocol)


def made(team: Team, array: Any, algorithm: str, op: str = "sum", **options: Any) -> ReduceScatter | AllReduce:
    if algorithm == "scatter":
        return team.reduce_scatter(array, op, **options)
    return team.all_reduce(array, op, algorithm=algorithm, **options)


def inputs(size: int, count: int, dtype: str = "float32", seed: int = 0) -> list[np.ndarray]:
    """Different on every rank. Floats of very different size, so that another order of additions has other bits."""
    found = []
    for rank in range(size):
        chance = np.random.default_rng(1000 * seed + rank)
        if np.dtype(dtype).kind == "f":
            found.append((chance.standard_normal(count) * 2.0 ** chance.integers(-9, 9, count)).astype(dtype))
        else:
            found.append(np.frombuffer(chance.bytes(count * np.dtype(dtype).itemsize), dtype).copy())
    return found


def check(
    team: Team, count: int, algorithm: str, op: str = "sum", *, dtype: str = "float32", calls: int = 2, **options: Any
) -> None:
    """Calls one after the other, each on what the last one left, with nothing between."""
    begin = inputs(team.size, count, dtype, seed=count)
    array = begin[team.rank].copy()
    with made(team, array, algorithm, op, **options) as reduce:
        for _ in range(calls):
            reduce(deadline_s=30)
    for _ in range(calls):
        begin = reference(begin, op, algorithm)
    assert array.tobytes() == begin[team.rank].tobytes(), (count, algorithm, op, dtype, options)


# ------------------------------------------------------------------------------------------------- the steps as data
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("size", [*range(1, 18), 31, 40])
def test_steps_add_every_rank_once(size: int, algorithm: str) -> None:
    steps = [steps_of(rank, size, algorithm) for rank in range(size)]
    for at in zip(*steps, strict=True):
        for rank, one in enumerate(at):
            if one.to is not None:
                there = at[one.to]
                assert (there.source, there.receives) == (rank, one.sends)
    count = size + 3
    begin = [np.full(count, 1 << rank, np.int64) for rank in range(size)]
    for rank, array in enumerate(reference(begin, "sum", algorithm)):
        mine = pieces(count, size)[rank] if algorithm == "scatter" else slice(None)
        assert (array[mine] == 2**size - 1).all()


@pytest.mark.parametrize("size", range(1, 17))
def test_no_rank_sends_more_than_the_bound(size: int) -> None:
    count = 720720  # every size up to 16 divides it
    for rank in range(size):
        assert elements_sent(rank, size, count, "scatter") == count * (size - 1) // size
        assert elements_sent(rank, size, count, "ring") == 2 * count * (size - 1) // size
        if size & (size - 1) == 0:
            assert elements_sent(rank, size, count, "doubling") == count * (size.bit_length() - 1)


def test_all_ranks_have_the_same_bits_in_the_order_that_the_headers_tell() -> None:
    x = inputs(5, 10)
    ring = reference(x, "sum", "ring")
    assert len({array.tobytes() for array in ring}) == 1
    assert ring[0][0] == (((x[1][0] + x[2][0]) + x[3][0]) + x[4][0]) + x[0][0]
    doubling = reference(x[:4], "sum", "doubling")
    assert len({array.tobytes() for array in doubling}) == 1
    assert (doubling[0] == (x[0] + x[1]) + (x[2] + x[3])).all()
    folded = reference(x, "sum", "doubling")
    assert (folded[4] == ((x[0] + x[4]) + x[1]) + (x[2] + x[3])).all()


# -------------------------------------------------------------------------------------------------- on the software NIC
@pytest.mark.parametrize("size", range(1, 10))
def test_bytes_are_those_of_numpy(nothing_left, size: int) -> None:
    def work(team: Team) -> None:
        for algorithm in ALGORITHMS:
            for protocol in PROTOCOLS:
                for count, slot in ((0, None), (1, None), (size + 1, None), (1237, 256), (40001, None)):
                    check(team, count, algorithm, protocol=protocol, slot_bytes=slot)

    teams(size, work)


@pytest.mark.parametrize(
    "algorithm, protocol, op, dtype",
    [("ring", "simple", "max", "int8"), ("ring", "ll", "sum", "int64"), ("doubling", "ll128", "prod", "float16"),
     ("scatter", "ll128", "min", "float64")],
)  # fmt: skip
def test_types_and_operations(nothing_left, algorithm: str, protocol: str, op: str, dtype: str) -> None:
    compiled(algorithm, protocol, op, dtype)

    def work(team: Team) -> None:
        for count in (1, 5, 1001, 3000):
            check(team, count, algorithm, op, dtype=dtype, protocol=protocol, slot_bytes=512)

    teams(3, work)


def test_bfloat16(nothing_left) -> None:
    begin = inputs(2, 777, "uint16")
    expected = reference(begin, "sum", "ring", "bfloat16")
    compiled("ring", "simple", "sum", "bfloat16")

    def work(team: Team) -> None:
        array = begin[team.rank].copy()
        team.all_reduce(array, dtype="bfloat16", algorithm="ring")()
        nan = (expected[0] & 0x7FFF) > 0x7F80
        assert (((array & 0x7FFF) > 0x7F80) == nan).all() and (array[~nan] == expected[0][~nan]).all()

    teams(2, work)


@pytest.mark.parametrize("size", [2, 4])
def test_four_mebibytes(nothing_left, size: int) -> None:
    def work(team: Team) -> None:
        for protocol in PROTOCOLS:
            check(team, 1 << 20, "ring", protocol=protocol, calls=1)
        check(team, 1 << 20, "doubling", protocol="ll", calls=1)

    teams(size, work)


@pytest.mark.parametrize("queues", [1, 3])
def test_channels_carry_parts(nothing_left, queues: int) -> None:
    def work(team: Team) -> None:
        for algorithm in ALGORITHMS:
            for protocol in PROTOCOLS:
                for count in (2, 4999):
                    check(team, count, algorithm, protocol=protocol, channels=3, slot_bytes=1024)

    teams(3, work, queues_per_peer=queues)


def test_all_threads_of_a_block_compute(nothing_left) -> None:
    def work(team: Team) -> None:
        for algorithm in ("ring", "doubling"):
            for protocol in PROTOCOLS:
                check(team, 4999, algorithm, protocol=protocol, threads=67, slot_bytes=1024)

    teams(2, work)


def test_a_network_that_loses_packets(nothing_left) -> None:
    def work(team: Team) -> None:
        for algorithm in ALGORITHMS:
            for protocol in PROTOCOLS:
                for count in (3, 30000):
                    check(team, count, algorithm, protocol=protocol, slot_bytes=4096)

    with faults("drop=1%,seed=4"):
        teams(3, work)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_memory_is_there_until_the_last_acknowledgement(nothing_left, protocol: str) -> None:
    """What had arrived was sent again from memory that was closed already, where the answer was lost."""

    def work(team: Team) -> None:
        check(team, 3, "ring", protocol=protocol, calls=1)
        time.sleep(0.3)  # the queue pairs stay: what they still have to say again, they say

    with faults("drop ack first=9"):
        teams(3, work)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_fast_rank_overwrites_nothing_that_a_slow_one_reads(nothing_left, protocol: str) -> None:
    """On a ring the left neighbour of one that is late comes N - 1 steps ahead of it: more than there are slots."""
    size = 7

    def work(team: Team) -> None:
        array = np.zeros(1400, np.float32)
        with made(team, array, "ring", protocol=protocol, slot_bytes=512) as reduce:
            for late in range(size):
                array[:] = np.arange(1400) % 19 + team.rank
                if team.rank == late:
                    time.sleep(0.05)
                reduce(deadline_s=10)
                assert (array == size * (np.arange(1400) % 19) + size * (size - 1) // 2).all()

    teams(size, work)


@pytest.mark.parametrize("start", [2**64 - 3, 2**32 - 3, 2**31 - 2, 5 * 2**30 - 1])
def test_counts_and_flags_go_round(nothing_left, start: int) -> None:
    def work(team: Team) -> None:
        for algorithm in ("ring", "doubling"):
            for protocol in PROTOCOLS:
                check(team, 600, algorithm, protocol=protocol, slot_bytes=256, start=start, calls=4)

    teams(3, work)


def test_flags_of_a_lap_before_are_renewed_in_time(nothing_left) -> None:
    """Words that carried nothing for 2^32 steps would still show the flag that is waited for now."""
    def work(team: Team) -> None:
        start, array = 2**30 - 5, np.ones(512, np.float32)
        # Every thread waits for lines of its own: else the first, which each step uses, would hold back all.
        with team.all_reduce(array, algorithm="doubling", protocol="ll", start=start, threads=32) as reduce:
            slot, words = reduce.slot_bytes, np.frombuffer(reduce.staging.memory.array, np.uint64)
            for at in range(4):  # of link 0: behind the first line as if it had last been used a lap ago
                step = next(s for s in range(2**30 + 4, 2**30 + 8) if s % 4 == at)
                words[at * slot // 8 + 2 : (at + 1) * slot // 8] = np.uint64((step + 1) << 32 | 0x7FC00000)
            array[1:] = 0
            team.barrier()
            for _ in range(9):  # one line of each, over the step at which slots are renewed
                small = reduce.count
                reduce.count = 2
                reduce()
                reduce.count = small
            assert (array[:2] == [2**9, 0]).all()
            for _ in range(4):  # and now all lines: those of the lap before are not taken for these
                array[:] = team.rank + 1
                team.barrier()
                reduce()
                assert (array == 3).all()

    teams(2, work)


@pytest.mark.parametrize("algorithm, protocol", [("ring", "simple"), ("ring", "ll"), ("ring", "ll128"),
                                                 ("doubling", "simple"), ("scatter", "simple")])  # fmt: skip
def test_bytes_on_the_wire_are_the_algorithms(nothing_left, algorithm: str, protocol: str) -> None:
    size, count = 4, 3840
    line, of_line = PROTOCOLS[protocol][1:3]

    def work(team: Team) -> None:
        array = np.ones(count, np.float32)
        with made(team, array, algorithm, protocol=protocol) as reduce:
            team.barrier()
            before = team.nic.counters()
            team.barrier()
            reduce()
            team.barrier()
            seen = {name: value - before[name] for name, value in team.nic.counters().items()}
            if seen["packets_resent"] == 0:  # a machine that stood still
                data = size * elements_sent(0, size, count, algorithm) * 4 // of_line * line
                steps = size * len([one for one in steps_of(0, size, algorithm) if one.to is not None])
                signals = seen["write_requests"] - steps
                assert seen["bytes_sent"] == data + 8 * signals
                assert signals <= (steps if protocol == "simple" else 0) + (steps + size) // 2 + size

    teams(size, work)


# --------------------------------------------------------------------------------------- more than 4 GiB, nothing moved
MODEL = r"""
#include <gda/collectives/all_reduce.h>
GDA_KERNEL(parts)(uint64_t count, uint32_t rank, uint32_t size, uint32_t channel, uint32_t channels, uint64_t most,
                  uint64_t chunk, uint64_t* out) {
    gda::ring r = {{0, count}, rank, size, channel, channels, most};
    for (uint32_t back = 0; back < size; back++) {
        out[2 * back] = r.part(back, chunk).begin;
        out[2 * back + 1] = r.part(back, chunk).count;
    }
    out[2 * size] = r.chunks();
}
"""


@pytest.mark.parametrize("count", [0, 3, 1 << 20, (5 << 30) + 7, 1 << 40])
@pytest.mark.parametrize("size, channels", [(1, 1), (3, 1), (8, 5)])
def test_offsets_beyond_four_gibibytes(count: int, size: int, channels: int) -> None:
    kernel, most = gda.Kernel(MODEL, target="host"), max(1, count // 50)
    out, rank = np.zeros(2 * size + 1, np.uint64), size - 1
    for channel in range(channels):
        chunk = 0
        covered = [0] * size
        while chunk == 0 or chunk < int(out[-1]):
            kernel.parts[1, 1](count, rank, size, channel, channels, most, chunk, out)
            for back in range(size):
                piece = share(pieces(count, size)[(rank - back) % size], channel, channels)
                begin = min(piece.start + chunk * most, piece.stop)
                assert [int(v) for v in out[2 * back : 2 * back + 2]] == [begin, min(most, piece.stop - begin)]
                covered[back] += int(out[2 * back + 1])
            chunk += 1
        lengths = [share(piece, channel, channels) for piece in pieces(count, size)]
        assert sorted(covered) == sorted(piece.stop - piece.start for piece in lengths)


# ------------------------------------------------------------------------------------------------------------- refusals
def test_a_rank_that_does_not_come_is_named_within_the_deadline(nothing_left) -> None:
    def work(team: Team) -> None:
        for protocol in PROTOCOLS:
            reduce = team.all_reduce(np.ones(4, np.float32), algorithm="ring", protocol=protocol)
            if team.rank != 1:
                begin = time.monotonic()
                with pytest.raises(DeadlineError) as caught:
                    reduce(deadline_s=0.2)
                assert f"at the other end is {team.ranks[(team.rank - 1) % 3]}" in str(caught.value)
                assert caught.value.rank == (team.rank - 1) % 3 and time.monotonic() - begin < 20
                with pytest.raises(ClosedError, match="failed before"):
                    reduce()
            team.barrier()

    teams(3, work)


@pytest.mark.parametrize("what", ["op", "count", "protocol", "algorithm"])
def test_ranks_that_do_not_do_the_same(nothing_left, what: str) -> None:
    compiled("ring", "simple", "max")
    carriers = gda.comm.threads(2)

    def work(rank: int) -> None:
        options: dict[str, Any] = {"algorithm": "ring"}
        if rank and what in ("op", "protocol", "algorithm"):
            options[what] = {"op": "max", "protocol": "ll", "algorithm": "doubling"}[what]
        with gda.init(carriers[rank], deadline_s=20) as team:
            team.all_reduce(np.zeros(4 + (rank and what == "count"), np.float32), **options)

    answers = world(2, work)
    assert all(isinstance(answer, BootstrapError) and what in str(answer) for answer in answers)


def test_what_is_refused(nothing_left) -> None:
    def work(team: Team) -> None:
        array = np.zeros(4, np.float32)
        refused: list[tuple[dict[str, Any], str]] = [
            ({"op": "xor"}, "sum, prod"), ({"protocol": "fast"}, "simple, ll"), ({"algorithm": "tree"}, "auto, ring"),
            ({"slot_bytes": 0}, "slot_bytes"), ({"channels": 0}, "channels"),
        ]  # fmt: skip
        for options, words in refused:
            with pytest.raises(ArgumentError, match=words):
                team.all_reduce(array, **options)
        with pytest.raises(ArgumentError, match="whole number of elements"):
            team.all_reduce(bytearray(7), dtype="int16")
        with pytest.raises(ArgumentError, match="a list is no array"):
            team.all_reduce([1.0], dtype="float64")
        assert team.all_reduce(array).algorithm == "doubling"
        assert team.all_reduce(np.zeros(1 << 18, np.float32)).algorithm == "ring"
        window = team.window(array)
        assert team.all_reduce(window, dtype="float32").window is window
        reduce = team.reduce_scatter(array)
        assert reduce.own == slice(0, 4) and "reduce-scatter of 1 ranks" in repr(reduce)
        reduce.close()
        with pytest.raises(ClosedError):
            reduce()

    teams(1, work)


# ------------------------------------------------------------------------------------------------------------- on a GPU
@pytest.mark.gpu
@pytest.mark.parametrize("algorithm, protocol", [("ring", "simple"), ("ring", "ll"), ("doubling", "simple")])
def test_two_ranks_on_one_gpu(nothing_left, algorithm: str, protocol: str) -> None:
    """Each is a thread with a stream of its own; arrays, staging and signals lie in GPU memory."""
    cupy: Any = pytest.importorskip("cupy")
    begin = [inputs(2, count) for count in (1, 1000, 1 << 16)]

    def work(team: Team) -> None:
        for start in begin:
            array = cupy.asarray(start[team.rank])
            with made(team, array, algorithm, protocol=protocol, channels=2) as reduce:
                team.barrier()
                reduce(deadline_s=20)
                reduce(deadline_s=20)
            expected = reference(reference(start, "sum", algorithm), "sum", algorithm)[team.rank]
            assert array.get().tobytes() == expected.tobytes()

    teams(2, work)


@pytest.mark.gpu
def test_no_lines_in_gpu_memory_of_the_software_nic(nothing_left) -> None:
    cupy: Any = pytest.importorskip("cupy")

    def work(team: Team) -> None:
        with pytest.raises(ArgumentError, match="order of its addresses"):
            team.all_reduce(cupy.zeros(4, cupy.float32), protocol="ll128")

    teams(1, work)
