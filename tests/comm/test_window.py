# SPDX-License-Identifier: Apache-2.0
"""Windows: which bytes an index means, transfers in pieces, arrays of other libraries, regions that are shared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gda.comm import Part, Team, Window
from gda.comm.part import pieces, same_pieces
from gda.errors import ArgumentError, OutOfBoundsError
from tests.comm.conftest import teams
from tests.nic.arrays import OnlyDlpack

SHAPE = (4, 6)


def the(library: str) -> Any:
    """It, imported."""
    return pytest.importorskip(library, reason=f"not run: {library} is not installed")


def layouts() -> dict[str, np.ndarray[Any, Any]]:
    data = np.arange(24, dtype=np.int32)
    return {"rows": data.reshape(SHAPE), "columns": data.reshape(SHAPE[::-1]).T, "cube": data.reshape(2, 3, 4)}


INDICES: list[Any] = [
    2, -1, slice(1, 3), slice(None, None, 2), slice(1, None, 2), (slice(None), 3), (slice(None), slice(1, 4)),
    (2, slice(None, None, 3)), (3, 2), ..., (..., 0), (slice(3, 1), 0), (slice(1, 2), slice(2, 3)), (), slice(9, 12),
]  # fmt: skip


@pytest.mark.parametrize("layout", ["rows", "columns", "cube"])
@pytest.mark.parametrize("index", INDICES, ids=str)
def test_an_index_means_what_numpy_says(layout: str, index: Any) -> None:
    array = layouts()[layout]
    memory = np.frombuffer(array.tobytes("A"), np.uint8)
    whole = index if isinstance(index, tuple) else (index,)
    try:
        expected = array[whole if ... in whole else (*whole, ...)]
    except IndexError:
        with pytest.raises(OutOfBoundsError):
            pieces(array.shape, array.strides, 4, index)
        return
    try:
        offset, length, count, stride = pieces(array.shape, array.strides, 4, index)
    except ArgumentError:
        assert layout != "rows", "every part of a matrix in rows that has one step is pieces at one distance"
        return
    assert count >= 1 and length * count == expected.nbytes
    seen = b"".join(memory[offset + i * stride : offset + i * stride + length].tobytes() for i in range(count))
    assert sorted(np.frombuffer(seen, np.int32)) == sorted(expected.ravel())


@pytest.mark.parametrize(
    "index, words",
    [
        (slice(None, None, -1), "goes backwards"),
        (True, "whole numbers and slices"),
        ([1, 2], "whole numbers and slices"),
        (None, "whole numbers and slices"),
        (np.array([True, False]), "whole numbers and slices"),
        ("a", "whole numbers and slices"),
        ((slice(None, None, 2), slice(None, None, 2)), r"at 2 distances \(8, 48 bytes\)"),
    ],
    ids=str,
)
def test_an_index_that_is_no_pieces(index: Any, words: str) -> None:
    array = layouts()["rows"]
    with pytest.raises(ArgumentError, match=words):
        pieces(array.shape, array.strides, 4, index)
    for behind in (4, -5, (0, 6), (0, 0, 0)):
        with pytest.raises(OutOfBoundsError, match=r"shape \(4, 6\)"):
            pieces(array.shape, array.strides, 4, behind)


def test_pieces_of_both_sides(nothing_left) -> None:
    def part(bytes: int, count: int = 1, stride: int = 0) -> Part:
        return Part(None, 0, bytes, count, stride)  # type: ignore[arg-type]

    assert same_pieces(part(24), part(24)) == (1, 24, 24, 24)
    assert same_pieces(part(4, 6, 8), part(24)) == (6, 4, 8, 4)
    assert same_pieces(part(24), part(4, 6, 8)) == (6, 4, 4, 8)
    assert same_pieces(part(4, 6, 8), part(4, 6, 100)) == (6, 4, 8, 100)
    with pytest.raises(ArgumentError, match="pieces of 8 bytes here, of 4 bytes there"):
        same_pieces(part(4, 6, 8), part(8, 3, 16))
    with pytest.raises(ArgumentError, match="20 bytes here, 24 bytes there"):
        same_pieces(part(24), part(20))


def test_put_and_get_in_pieces(nothing_left) -> None:
    def work(team: Team) -> None:
        own = np.arange(40, dtype=np.int64).reshape(5, 8) + 100 * team.rank
        array = own.copy()
        window, signals = team.window(array), team.signals(1)
        column = team.nic.allocate(40)
        right = (team.rank + 1) % team.size
        team.barrier()
        window.get(right, window[:, 3], column)  # a column there, one piece here
        assert column.array.view(np.int64).tolist() == (own[:, 3] + 100 * (right - team.rank)).tolist()
        team.barrier()
        window.put(right, window[:, 7], window[:, 6])
        window.put(right, window[1:4:2, 2:4], window[0, 1:5])
        signals.put_signal(right, 0, window[:, 0], window[0, 1:6])
        signals.wait_next(0)
        team.barrier()
        left = (team.rank - 1) % team.size
        theirs, after = own + 100 * (left - team.rank), own.copy()
        after[:, 7] = theirs[:, 6]
        after[1, 2:4], after[3, 2:4] = theirs[0, 1:3], theirs[0, 3:5]
        after[:, 0] = theirs[0, 1:6]
        assert (array == after).all()
        parts = window.part(8, 16, count=3, stride=32)
        assert (parts.bytes, parts.count) == (48, 3)
        before = [queue.read_handle()["reserved"] for queues in team.queues for queue in queues]
        with pytest.raises(OutOfBoundsError):
            window.part(0, 8, count=6, stride=64)
        with pytest.raises(ArgumentError, match="may not overlap"):
            window.part(0, 8, count=2, stride=7)
        with pytest.raises(ArgumentError, match="pieces of 16 bytes here"):
            window.put(right, window[:4, 1], window[:2, 0:2])
        assert before == [queue.read_handle()["reserved"] for queues in team.queues for queue in queues]

    teams(3, work, depth=4)


def test_every_piece_is_a_message(nothing_left) -> None:
    def work(team: Team) -> None:
        window = team.window(np.zeros((6, 4), np.uint8))
        (queue,) = team.queues[0]
        for part, messages in ((window[:, 1], 6), (window[::3], 2), (window[2:5], 1), (window[:, :], 1)):
            before = queue.read_handle()["reserved"]
            window.put(0, part)
            assert queue.read_handle()["reserved"] - before == messages

    teams(1, work)


@pytest.mark.parametrize("kind", ["numpy", "fortran", "dlpack", "torch"])
def test_windows_over_arrays_of_other_libraries(nothing_left, kind: str) -> None:
    def work(team: Team) -> None:
        base = np.zeros((4, 6), np.float32, order="F" if kind == "fortran" else "C")
        base[...] = team.rank
        array: Any = base
        if kind == "dlpack":
            array = OnlyDlpack(base)
        elif kind == "torch":
            array = the("torch").from_numpy(base)
        window = team.window(array)
        assert (window.memory.shape, window.memory.strides) == (base.shape, base.strides)
        team.barrier()
        peer = 1 - team.rank
        window.put(peer, window[:, 2], window[:, 1])
        window.put(peer, window[3, 3:], window[0, 3:])
        team.barrier()
        assert (base[:, 2] == peer).all() and (base[3, 3:] == peer).all()
        assert (base[:, :2] == team.rank).all() and (base[:3, 3:] == team.rank).all()

    teams(2, work)


def test_two_tensors_of_one_allocation_share_a_region(nothing_left) -> None:
    """Each window has its own bounds; the region lives until the last of them is closed."""

    def work(team: Team) -> None:
        pool = np.zeros(8192, np.uint8)
        first, second = pool[:4000], pool[4096:].view(np.float64)
        one, other = team.window(first, shared=True), team.window(second, shared=True)
        assert one.memory.raw is other.memory.raw and one.memory.users == 2
        assert (one.bytes, other.bytes) == (4000, 4096)
        alone = team.window(first)
        assert alone.memory.raw is not one.memory.raw and alone.memory.users == 1
        with pytest.raises(OutOfBoundsError):
            one.part(0, 4096)
        second[:] = team.rank
        team.barrier()
        one.close()
        assert other.memory.users == 1
        other.put(1 - team.rank, other[0:4], other[8:12])
        team.barrier()
        assert second[:5].tolist() == [1 - team.rank] * 4 + [team.rank] and not first.any()
        other.close()
        assert team.window(second, shared=True).memory.users == 1

    teams(2, work)


def gpu_array(library: str, shape: tuple[int, ...]) -> Any:
    """All zero."""
    if library == "cupy":
        return the("cupy").zeros(shape, np.float32)
    torch = the("torch")
    if not torch.cuda.is_available():
        pytest.skip("not run: this torch has no CUDA")
    return torch.zeros(shape, dtype=torch.float32, device="cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("library", ["cupy", "torch"])
def test_windows_over_gpu_arrays(monkeypatch: pytest.MonkeyPatch, library: str) -> None:
    monkeypatch.setenv("GDA_TARGET", "gpu")

    def work(team: Team) -> None:
        array = gpu_array(library, (4, 6))
        array[...] = team.rank + 1
        halves = gpu_array(library, (2, 64))
        window = team.window(array)
        assert window.memory.is_gpu and window.memory.shape == (4, 6)
        one, other = team.window(halves[0], shared=True), team.window(halves[1], shared=True)
        assert one.memory.raw is other.memory.raw
        team.barrier()
        peer = 1 - team.rank
        window.put(peer, window[:, 2], window[:, 1])
        other.put(peer, other[1:3], other[8:10])
        team.barrier()
        seen = np.frombuffer(window.memory.read(0, 96), np.float32).reshape(4, 6)
        assert (seen[:, 2] == peer + 1).all() and (seen[:, 3:] == team.rank + 1).all()

    teams(2, work)


def test_windows_say_what_they_are(nothing_left) -> None:
    def work(team: Team) -> None:
        window: Window = team.window(64)
        assert window.memory.shape == (64,) and window[8:16] == window.part(8, 8)
        assert window[::2] == window.part(0, 1, 32, 2)

    teams(1, work)
