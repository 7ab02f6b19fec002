# SPDX-License-Identifier: Apache-2.0
"""Kernels that are traced leave an event of each step; others are the same machine code as without the words."""

from __future__ import annotations

import itertools
import re
import shutil
import time
from pathlib import Path

import pytest

from gda import formats, notes
from gda.errors import ArgumentError, GdaError, UnavailableError
from gda.run import Kernel, compile
from gda.run.compile import compile_for_gpu, include_directory, nvrtc_version
from gda.run.traces import GROUP, LOG_EVENTS
from gda.tools.trace.events import kind, kind_name
from gda.tools.trace.rings import ring_events

from .toy_queue import QPN, ToyMemory, ToyQueue

TEXT = r"""
#include <gda/gda.h>
GDA_KERNEL(post)(gda_qp* qp, gda_mr dst, gda_mr src, uint32_t times) {
    for (uint32_t i = 0; i < times; ++i) gda_put(qp, dst, 0, src, 0, 48);
}
GDA_KERNEL(own)(gda_qp* qp, gda_mr dst, gda_mr src, uint32_t times) {
    gda_owner queue(qp);
    for (uint32_t i = 0; i < times; ++i) queue.put(dst, 0, src, 0, 48);
    queue.close();
}
GDA_KERNEL(swap)(gda_qp* qp, gda_mr dst, gda_mr src) {
    gda_masked_compare_swap<uint64_t>(qp, dst, 0, src, 0, 1, 2, 3, 4);
}
GDA_KERNEL(wait)(gda_qp* qp, gda_ticket ticket, gda_status* status) { *status = gda_wait(qp, ticket, GDA_MS(50)); }
GDA_KERNEL(flush)(gda_qp* qp) { gda_flush(qp, GDA_MS(50)); }
"""


@pytest.fixture(scope="module")
def traced() -> Kernel:
    return Kernel(TEXT, target="host", trace=True)


def noted(kernel: Kernel) -> list[tuple[str, int, int, int, int]]:
    """Kind, index, bytes, opcode and thread of each event."""
    _, events, lost = ring_events(kernel._module.trace(), LOG_EVENTS)
    assert lost == 0
    assert set(events["qpn"].tolist()) <= {QPN}
    assert all(events["time"][:-1] <= events["time"][1:])
    fields = ("kind", "index", "bytes", "opcode", "lane")
    rows = zip(*(events[name].tolist() for name in fields), strict=True)
    return [(kind_name(what), *rest) for what, *rest in rows]


WRITE = int(formats.MLX5_OPCODE_RDMA_WRITE)


@pytest.mark.parametrize("function", ["post", "own"])
def test_steps_of_a_put_in_their_order(traced: Kernel, function: str) -> None:
    traced._module.start_trace(0)
    queue = ToyQueue(16, owned=function == "own")
    traced[function][1, 1](queue, ToyMemory(64), ToyMemory(64), 2)
    once = [("reserve", 0, 0, 0, 0), ("write", 0, 48, WRITE, 0), ("ring", 0, 0, 0, 0)]
    assert noted(traced) == [*once, *((what, 1, *rest) for what, _, *rest in once)]


def test_lanes_of_a_warp_write_each_their_own(traced: Kernel) -> None:
    traced._module.start_trace(0)
    traced.post[1, 4](ToyQueue(16), ToyMemory(64), ToyMemory(64), 1)
    events = noted(traced)
    assert [e for e in events if e[0] != "write"] == [("reserve", 0, 0, 0, 0), ("ring", 3, 0, 0, 0)]
    assert sorted(e for e in events if e[0] == "write") == [("write", i, 48, WRITE, i) for i in range(4)]


def test_a_request_of_two_blocks(traced: Kernel) -> None:
    traced._module.start_trace(0)
    traced.swap[1, 1](ToyQueue(16), ToyMemory(64), ToyMemory(64))
    opcode = int(formats.MLX5_OPCODE_ATOMIC_MASKED_CS)
    assert noted(traced) == [("reserve", 0, 0, 0, 0), ("write", 0, 8, opcode, 0), ("ring", 1, 0, 0, 0)]


def test_every_so_many_th_request(traced: Kernel) -> None:
    traced._module.start_trace(3)
    traced.post[1, 1](ToyQueue(16), ToyMemory(64), ToyMemory(64), 9)
    assert sorted({index for _, index, *_ in noted(traced)}) == [0, 4, 8]
    traced._module.start_trace(0)


def test_a_wait_without_an_end_is_noted_with_its_status(traced: Kernel) -> None:
    traced._module.start_trace(0)
    queue = ToyQueue(16)
    traced.post[1, 1](queue, ToyMemory(64), ToyMemory(64), 1)
    traced.flush[1, 1](queue)
    _, events, _ = ring_events(traced._module.trace(), LOG_EVENTS)
    assert (events["kind"][-1], events["aux"][-1]) == (kind("DONE"), formats.GDA_TIMEOUT)


def test_the_ring_keeps_the_newest_and_counts_what_is_lost() -> None:
    kernel = Kernel(TEXT, target="host", options=("-DGDA_TRACE=4",))
    queue = ToyQueue(16, deadline_ns=1_000_000)
    kernel.post[1, 1](queue, ToyMemory(64), ToyMemory(64), 10)
    module = kernel._module
    assert module.has_trace()
    import ctypes

    memory = (ctypes.c_uint8 * (128 + 32 * 16)).in_dll(module._library, "gda_trace_memory")  # type: ignore[attr-defined]
    ctypes.c_uint32.from_buffer(memory, GROUP).value = int(formats.TRACE_GROUP)
    _, events, lost = ring_events(bytes(memory), 4)
    # Ten times two events, the first of which stands for two: 20 places of 24 in three groups, of which two are there.
    assert lost == 8
    assert events["index"].tolist() == [i for i in range(4, 10) for _ in range(3)]
    assert all(events["time"][:-1] <= events["time"][1:])


def test_moments_tie_the_kernels_clock_to_the_monotonic_one(traced: Kernel) -> None:
    first, second = traced._module.moment(), traced._module.moment()
    assert first[0] <= second[0]
    assert first[1] <= second[1]


def test_who_is_traced() -> None:
    """Off unless asked for, or a recording is under way."""
    plain = Kernel(TEXT, target="host")
    assert not plain._module.has_trace()
    notes.begin()
    try:
        assert Kernel(TEXT, target="host")._module.has_trace()
        assert not Kernel(TEXT, target="host", trace=False)._module.has_trace()
    finally:
        notes.end()
    with pytest.raises(ArgumentError, match="nothing to trace"):
        Kernel("extern \"C\" __global__ void nothing() {}\n", target="host", trace=True)


# ---- off costs nothing


def without_the_words(directory: Path) -> Path:
    """The device library as if nobody had ever thought of traces."""
    root = shutil.copytree(include_directory(), directory / "include", ignore=shutil.ignore_patterns("host"))
    calls = 0
    for path in (root / "gda").glob("*.h"):
        if path.name in ("trace.h", "trace_ring.h"):
            continue
        call = r"^ *(if \(\S+ != 0\) |if \(!?later\) )?trace\((\S+ != 0 \? )?prm::TRACE_\w+[^;]*;.*\n"
        text, n = re.subn(call, "", path.read_text(), flags=re.M)
        text = re.sub(r"traced_end\(q\.qpn, \w+, (.*?)(, found)?\);", r"\1;", text)
        text = text.replace("#include <gda/trace.h>\n", "")
        assert "trace(" not in text.replace("gda/trace", "")
        path.write_text(text)
        calls += n
    assert calls >= 5
    return root


@pytest.mark.parametrize("form", ["ptx", "cubin"])
def test_off_is_the_same_code_as_without_the_words(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        nvrtc_version()
    except UnavailableError as error:
        pytest.skip(f"not run: {error}")
    arch = "compute_90" if form == "ptx" else "sm_90"
    names = ("post", "own", "swap", "wait", "flush")
    off = compile_for_gpu(TEXT, arch=arch, names=names)
    on = compile_for_gpu(TEXT, arch=arch, names=names, options=("-DGDA_TRACE=15",))
    root = without_the_words(tmp_path)
    monkeypatch.setattr(compile, "include_directory", lambda: root)
    never = compile_for_gpu(TEXT, arch=arch, names=names)
    assert b"gda_trace" not in off
    assert off == never, "a kernel that is not traced pays for traces"
    assert on != never, "the comparison compares nothing"


def test_on_is_other_code(tmp_path: Path) -> None:
    """So the comparison above compares something; and traced code compiles for a GPU."""
    try:
        on = compile_for_gpu(TEXT, arch="compute_90", options=("-DGDA_TRACE=15",))
    except UnavailableError as error:
        pytest.skip(f"not run: {error}")
    assert b"gda_trace_memory" in on
    assert b"globaltimer" in on


@pytest.mark.gpu
def test_a_gpus_kernels_leave_the_same_events() -> None:
    """On a GPU with the software NIC: every stage of each put, on one time base to a few microseconds."""
    import gda
    from gda import trace
    from gda.sim import current
    from gda.tools.trace.puts import STAGES

    current()
    kernel = Kernel("#include <gda/kernels/put.h>\n", target="gpu", trace=True)
    with gda.open() as nic, trace.record() as t:
        source, target = nic.allocate(1 << 16), nic.allocate(1 << 16)
        a, _b = nic.loopback_pair()
        kernel.gda_kernel_put[1, 32](a, target, 0, source, 0, 512, 5_000_000_000)
        kernel.gda_kernel_put[1, 1](a, target, 0, source, 0, 512, 5_000_000_000)
    assert len(t.puts) == 33
    slack_ns = 20_000
    for earlier, later in itertools.pairwise(STAGES):
        assert (t.puts[earlier] > 0).all(), earlier
        assert (t.puts[later] - t.puts[earlier] > -slack_ns).all(), (earlier, later)
    (actor,) = [actor for actor in t.actors if actor.source == "kernel"]
    assert actor.clock["rate"] == pytest.approx(1, abs=0.01)


@pytest.mark.gda_complaints("retries-exceeded")
@pytest.mark.gpu
def test_the_ring_of_a_waiting_gpu_kernel_can_be_read() -> None:
    """Nobody completes the put: its events are there while the kernel still waits."""
    from gda.run.traces import RING_BYTES
    from gda.sim import current, faults

    current()
    import gda

    kernel = Kernel("#include <gda/kernels/put.h>\n", target="gpu", trace=True)
    with gda.open() as nic, faults("drop request"):
        source, target = nic.allocate(4096), nic.allocate(4096)
        a, _b = nic.loopback_pair()
        launch = kernel.gda_kernel_put.start[1, 1](a, target, 0, source, 0, 512, 2_000_000_000)
        end = time.monotonic() + 1.5
        while len(kernel._module.trace()) < RING_BYTES + 3 * 32 and time.monotonic() < end:
            pass
        assert not launch.done()
        assert [kind_name(e["kind"]) for e in ring_events(kernel._module.trace(), LOG_EVENTS)[1]][:3] == [
            "reserve", "write", "ring",
        ]  # fmt: skip
        with pytest.raises(GdaError):
            launch.wait()
