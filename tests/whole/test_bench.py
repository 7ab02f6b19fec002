# SPDX-License-Identifier: Apache-2.0
"""`python -m gda bench COMMAND`: every command measures, prints, writes what it is asked to, and refuses clearly."""

from __future__ import annotations

import argparse
import ctypes
import json
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gda
from gda.__main__ import main
from gda.errors import DeviceStatusError, GdaError, UnavailableError
from gda.nic.doorbell_modes import MODES
from gda.nic.plain import PlainQueue
from gda.tools.bench import collectives as bench_collectives
from gda.tools.bench import measure_post
from gda.tools.bench.load import CpuLoad
from gda.tools.bench.post import _check, count_post, shapes
from gda.tools.bench.processes import answer_of
from gda.tools.bench.reduce_rank import times_kernel
from gda.tools.bench.steps import measure_stages
from gda.tools.bench.sweep import SWEEPS, points
from gda.tools.bench.triggers import KERNELS as TRIGGERS
from gda.tools.bench.triggers import Streamed

ROWS = [shape.row for shape in shapes(4, 64)]


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GDA_TARGET", "host")
    monkeypatch.setenv("GDA_NIC", "software")


def png_size(file: Path) -> tuple[int, int]:
    data = file.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and data[12:16] == b"IHDR"
    return int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")


def matplotlib_or_skip() -> None:
    pytest.importorskip("matplotlib", reason='not run: matplotlib is missing (pip install "gda[plot]")')


def test_post_measures_twelve_rows_with_and_without_record_and_checks(
    on_cpu: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "post.json"
    assert main(["bench", "post", "--launches", "1", "--unchecked", "--json", str(file)]) == 0
    shown = capsys.readouterr().out
    assert "all checks on" in shown and "GDA_UNCHECKED" in shown and "1 thread, own queue" in shown
    data: dict[str, Any] = json.loads(file.read_text())
    assert data["command"] == "bench post" and data["stack"] == "gda" and data["depth"] == 32768
    kinds = [(row["row"], row["record"], row["checks"]) for row in data["rows"]]
    assert kinds == [(row, record, checks) for checks in (True, False) for row in ROWS for record in (True, False)]
    for row in data["rows"]:
        assert row["ns_per_post"] > 0 and row["posts_per_second"] == pytest.approx(1e9 / row["ns_per_post"])
        assert row["posts"] >= 16384 and row["launches"] == 1


def test_post_counts_what_each_put_takes(on_cpu: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "post.json"
    rows = ["thread_owned", "thread_shared", "warps_own"]
    assert main(["bench", "post", "--launches", "1", "--json", str(file), *(f"--row={row}" for row in rows)]) == 0
    assert "each put, without record" in capsys.readouterr().out
    counts = {(c["row"], c["record"]): c for c in json.loads(file.read_text())["counts"]}
    assert list(counts) == [(row, record) for row in rows for record in (True, False)]
    for (row, record), c in counts.items():
        assert c["records"] == (c["doorbells"] if record else 0)
        assert c["posts"] == (4 * 32768 if row == "warps_own" else 32768)
    alone, shared, warps = (counts[row, True] for row in rows)
    assert (alone["doorbells"], alone["atomics"], alone["fences"]) == (1, 0, 2)
    assert (shared["doorbells"], shared["atomics"]) == (1, 2)
    assert (warps["doorbells"], warps["atomics"]) == (1 / 32, 0)


def test_post_measures_each_doorbell_mode(on_cpu: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the order asked for, each with what docs/doorbells.md says that the owner of a queue pays (on a CPU)."""
    file = tmp_path / "post.json"
    asked = ["cpu", "blueflame", "record", "doorbell-first", "no-record", "cpu"]
    arguments = [word for mode in asked for word in ("--doorbell", mode)]
    assert main(["bench", "post", "--launches", "1", "--row", "thread_owned", *arguments, "--json", str(file)]) == 0
    shown = capsys.readouterr().out
    assert 'each put, "blueflame"' in shown and "each put, without record" in shown
    data = json.loads(file.read_text())
    assert [row["doorbell"] for row in data["rows"]] == asked[:-1] and set(asked) == set(MODES)
    paid = {c["doorbell"]: (c["fences"], c["doorbells"], c["records"]) for c in data["counts"]}
    assert paid == {
        "cpu": (1, 1, 0), "blueflame": (2, 1, 1), "record": (2, 1, 1), "doorbell-first": (3, 2, 1),
        "no-record": (2, 1, 0),
    }  # fmt: skip
    with pytest.raises(SystemExit):
        main(["bench", "post", "--doorbell", "smoke"])
    refused = capsys.readouterr().err
    assert all(mode in refused for mode in MODES), refused


def test_post_shows_another_stack_beside(on_cpu: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.json"
    slow = {"row": "thread_owned", "record": True, "checks": True, "ns_per_post": 1e9}
    other.write_text(json.dumps({"stack": "Another", "rows": [slow]}))
    assert main(["bench", "post", "--launches", "1", "--row", "thread_owned", "--beside", str(other)]) == 0
    shown = capsys.readouterr().out
    assert "┃ Another" in shown
    with_record, without = (
        next(line for line in shown.split("; posting alone")[n].splitlines() if "own queue" in line) for n in (1, 2)
    )
    assert with_record.rstrip().endswith("x │") and "1,000.00 ms" in with_record
    assert without.count(" ms") == 0 and not without.rstrip().endswith("x │")
    other.write_text("[]")
    assert main(["bench", "post", "--beside", str(other)]) == 1
    assert "is no table of posting costs" in capsys.readouterr().err


def test_post_in_the_second_lap(on_cpu: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its ring is full of completed requests: measure_post checks that all the same every put was told to the NIC."""
    file = tmp_path / "lap.json"
    assert main(["bench", "post", "--launches", "1", "--second-lap", "--json", str(file)]) == 0
    assert "second lap" in capsys.readouterr().out
    data = json.loads(file.read_text())
    assert data["second_lap"] is True and [r["row"] for r in data["rows"][::2]] == ROWS
    assert main(["bench", "post", "--launches", "1", "--beside", str(file)]) == 1
    assert "was measured in the second lap" in capsys.readouterr().err


def test_post_draws(on_cpu: None, tmp_path: Path) -> None:
    matplotlib_or_skip()
    file = tmp_path / "post.png"
    rows = ["--row", "thread_owned", "--row", "thread_shared"]
    assert main(["bench", "post", "--launches", "1", *rows, "--plot", str(file)]) == 0
    assert min(png_size(file)) > 100


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--row", "nobody"], "rows: thread_owned"),
        (["--launches", "0"], "at least one"),
        (["--json", "/nonexistent/x.json"], "folder does not exist"),
        (["--plot", "x.svg"], "PNG"),
        (["--beside", "/nonexistent"], "no table"),
    ],
)
def test_post_refuses(on_cpu: None, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "post", *arguments]) == 1
    assert message in capsys.readouterr().err


def test_a_picture_without_matplotlib_names_the_extra(
    on_cpu: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    assert main(["bench", "post", "--plot", "x.png"]) == 1
    assert 'pip install "gda[plot]"' in capsys.readouterr().err


def test_a_queue_that_lost_a_request_gives_no_figure() -> None:
    with PlainQueue(None, depth=64) as queue, pytest.raises(DeviceStatusError, match="should stand at 5"):
        _check(queue, 5, "thread_owned")


WAYS = ["CPU, built", "CPU, prepared", "CPU proxy", "stream, prepared", "kernel, prepared", "kernel",
        "kernel, own queue"]  # fmt: skip
BURSTS = ["CPU, built", "CPU proxy", "kernel", "kernel, own queue"]


def check_triggers(data: dict[str, Any], shown: str, *, missing: str = "stream, prepared") -> None:
    """What `bench latency` says of who triggers, and of the steps."""
    turns = data["triggers"]
    besides = list(dict.fromkeys(turn["beside"] for turn in turns))
    ways = [way for way in WAYS if way != missing]
    assert [(t["beside"], t["burst"], t["who"]) for t in turns] == [
        (beside, burst, who) for beside in besides for burst, of in ((1, ways), (64, BURSTS)) for who in of
    ]
    assert [line.split(":")[0] for line in data["not_measured"]] == [missing] * bool(missing)
    for turn in turns:
        assert 0 < turn["fastest_ns"] <= turn["median_ns"] <= turn["p99_ns"]
        assert sum(turn["counts"]) == turn["rounds"] >= 20 and len(turn["edges_ns"]) == len(turn["counts"]) + 1
        assert turn["edges_ns"] == sorted(turn["edges_ns"]) and turn["edges_ns"][0] == turn["fastest_ns"]
    assert shown.count("times what the CPU proxy takes") == 2 * len(besides)
    of = [step for step in data["steps"] if step["record"]]
    assert [step["step"] for step in of] == ["build", "barrier", "ring", "nic", "look", "clock"]
    assert all(step["p99_ns"] >= step["median_ns"] >= 0 for step in data["steps"])
    moments = ["reserve", "write", "ring", "seen", "fetch", "wire", "peer", "ack", "cqe", "done"]
    stages = [(stage["begin"], stage["end"]) for stage in data["stages"]]
    assert stages == [*pairwise(moments), ("reserve", "done")]
    assert all(stage["puts"] > 100 and stage["p99_ns"] >= stage["median_ns"] for stage in data["stages"])
    assert sum(step["mean_ns"] for step in of) > 0 and "barrier before the record" in shown


TRANSFERS = ["latency", "rate", "bandwidth", "cpu"]


class CpuStream:
    """Does at once what a GPU's stream would do in order: the same bytes at the same places."""

    target = "host"

    def __init__(self) -> None:
        self.done: list[tuple[str, int]] = []
        self.status = np.zeros(1, np.uint64)

    def hold(self) -> None:
        self.done.append(("hold", 0))

    def release(self) -> None:
        self.done.append(("release", 0))

    def write32(self, address: int, value: int) -> None:
        ctypes.c_uint32.from_address(address).value = value
        self.done.append(("record", value))

    def write64(self, address: int, value: int) -> None:
        ctypes.c_uint64.from_address(address).value = value
        self.done.append(("doorbell", value))

    def launch(self, kernel: Any, *arguments: Any) -> None:
        kernel[1, 1](*arguments, self.status)
        self.done.append(("kernel", int(arguments[1])))

    def finish(self) -> int:
        return int(self.status[0])


def test_what_a_stream_writes_rings_for_prepared_requests(on_cpu: None) -> None:
    """Each kernel waits for the request that the doorbell before it told of; more than a lap of the ring."""
    with gda.open() as nic:
        stream = CpuStream()
        way = Streamed(nic, 8, "host", gda.Kernel(TRIGGERS), "host", stream=stream)
        try:
            for _ in range(11):  # 64 rounds, then 36, of a ring of 1,024
                assert (way.rounds(8, 100, 1) >= 0).all()
        finally:
            way.close()
    assert [what for what, _ in stream.done[:6]] == ["hold", "kernel", "record", "doorbell", "kernel", "record"]
    assert [ticket for what, ticket in stream.done if what == "kernel"][:3] == [0, 1, 2]
    assert stream.done[2] == ("record", int.from_bytes((1).to_bytes(4, "big"), "little")) and stream.status[0] == 0
    assert [what for what, _ in stream.done].count("doorbell") == 1100


def test_stages_in_a_traced_process_leave_its_trace_alone(on_cpu: None) -> None:
    with gda.trace.record(), gda.open() as nic:
        assert measure_stages(nic) == []


@pytest.mark.parametrize("measure", ["latency", "bandwidth", "cpu"])
def test_a_kernel_beside_the_cpu(
    on_cpu: None, measure: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "out.json"
    assert main(["bench", measure, "--seconds", "0.001", "--idle", "--json", str(file)]) == 0
    shown = capsys.readouterr().out
    assert "software ConnectX" in shown and "who posts" in shown
    data: dict[str, Any] = json.loads(file.read_text())
    assert data["command"] == f"bench {measure}" and data["nic"].startswith("software ConnectX")
    assert {"kernel", "CPU"} <= {row["who"] for row in data["rows"]}
    for row in data["rows"]:
        assert row["beside"] == "" and row["load_flops"] == 0
        assert 0 < row["fastest_ns"] <= row["median_ns"] <= row["p99_ns"] and row["per_second"] > 0
        assert row["cpu_ns_per_put"] > 0 and row["nic_cpu_ns_per_put"] >= 0 and row["sm_ns_per_put"] == 0
    if measure == "latency":
        assert "posting alone takes" in shown and "times the CPU's" in shown
        check_triggers(data, shown)
    if measure == "bandwidth":
        assert "ceiling: one copy by a CPU core" in shown
        assert "4 MiB puts by the kernel have" in shown
    if measure == "cpu":
        assert "no GPU was used" in shown and "seconds a GB" in shown and "CPU by thread" in shown
        for row in data["rows"]:
            assert sum(row["threads"].values()) == pytest.approx(row["cpu_ns_per_put"] + row["nic_cpu_ns_per_put"])
            # Who posts is a thread of its own, but for Python itself.
            assert row["threads"].get("main" if row["who"] == "CPU" else "ended", 0) > 0


def test_rate_changes_one_thing_at_a_time(on_cpu: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "out.json"
    assert main(["bench", "rate", "--seconds", "0.001", "--idle", "--json", str(file)]) == 0
    shown = capsys.readouterr().out
    assert "puts a second by queues" in shown and "posting alone, 1 thread" in shown and "a CPU proxy" in shown
    data: dict[str, Any] = json.loads(file.read_text())
    by_kernel = [(r["sweep"], r["value"]) for r in data["rows"] if r["who"] == "kernel"]
    assert by_kernel == [(point.sweep, point.value) for point in points(0)] and set(SWEEPS) == {s for s, _ in by_kernel}
    assert [r["sweep"] for r in data["rows"] if r["who"] == "CPU"] == ["bytes"] * 5 + ["in flight"] * 4
    for row in data["rows"]:
        assert 0 < row["per_second"] <= row["fastest_per_second"] and row["puts"] >= 20
        assert row["bytes_per_second"] == pytest.approx(row["per_second"] * row["bytes"])
    assert data["proxy_per_second"] > 0 and [int(size) for size in data["nic_alone_per_second"]] == [
        8,
        64,
        512,
        4096,
        65536,
    ]


def test_collectives_by_algorithm_protocol_and_size(
    on_cpu: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Real processes, a small part of it; mpi4py is told to be missing where it is."""
    monkeypatch.setattr(bench_collectives, "RANKS", (2,))
    monkeypatch.setattr(bench_collectives, "SIZES", (8, 65536))
    file = tmp_path / "out.json"
    assert main(["bench", "collectives", "--seconds", "0.01", "--json", str(file)]) == 0
    shown, data = capsys.readouterr().out, json.loads(file.read_text())
    of = [(r["algorithm"], r["protocol"], r["bytes"]) for r in data["rows"] if r["who"] == "kernel"]
    assert of == [(a, p, b) for b in (8, 65536) for a in ("doubling", "ring") for p in ("simple", "ll", "ll128")]
    assert all(0 < r["fastest_ns"] <= r["median_ns"] and r["rounds"] >= 5 for r in data["rows"])
    mpi = [r["bytes"] for r in data["rows"] if r["who"] == "mpi4py"]
    assert mpi == ([] if data["not_measured"] else [8, 65536]) and "fastest on the device: 8 B: " in shown
    assert ("mpi4py: not run" in shown) == bool(data["not_measured"])


def test_collectives_of_ranks_that_share_a_gpu_as_threads(
    on_cpu: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The threads are the same where kernels run on the CPU; what needs a GPU is refused where there is none."""
    monkeypatch.setattr(bench_collectives, "SIZES", (8, 4096))
    options = argparse.Namespace(seconds=0.001, queues="host")
    rows = bench_collectives._as_threads(2, options, times_kernel("host"))
    of = [(r["algorithm"], r["protocol"], r["bytes"]) for r in rows if r["who"] == "kernel"]
    assert of == [(a, p, b) for b in (8, 4096) for a in ("doubling", "ring") for p in ("simple", "ll")]
    assert main(["bench", "collectives", "--placement", "gpu"]) == 1
    assert "no GPU" in capsys.readouterr().err
    assert main(["bench", "collectives", "--queues", "gpu"]) == 1
    assert "add --placement gpu" in capsys.readouterr().err


def test_collectives_without_mpi_and_with_a_rank_that_fails(on_cpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert bench_collectives._why_no_mpi().startswith("mpi4py: not run, it is not installed")
    failing = subprocess.Popen([sys.executable, "-c", "raise SystemExit('no room')"], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)  # fmt: skip
    with pytest.raises(GdaError, match="rank 0 of 1 ended with 1: no room"):
        answer_of([failing])


@pytest.mark.parametrize("processors", [0, 132])
def test_no_point_of_a_sweep_asks_for_more_than_its_queues_hold(processors: int) -> None:
    for point in points(processors):
        assert point.in_flight >= 2 * point.batch or point.in_flight == 1
        assert point.in_flight * point.all_threads <= 4096 * point.queues or point.in_flight == 2


@pytest.mark.parametrize("measure", ["cpu", "rate", "latency"])
def test_without_a_compiler_there_is_no_proxy(
    on_cpu: None, measure: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def proxy(*_: object) -> None:
        raise UnavailableError("no C++ compiler")

    for user in ("transfer", "sweep", "triggers"):
        monkeypatch.setattr(f"gda.tools.bench.{user}.Proxy", proxy)
    assert main(["bench", measure, "--seconds", "0.001", "--idle"]) == 0
    missing = "CPU proxy: no C++ compiler" if measure == "latency" else "no CPU proxy was measured"
    assert missing in capsys.readouterr().out


def test_beside_a_matrix_product(on_cpu: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "out.json"
    assert main(["bench", "cpu", "--seconds", "0.02", "--json", str(file)]) == 0
    assert "GEMM lost" in capsys.readouterr().out
    rows = json.loads(file.read_text())["rows"]
    assert [row["beside"] for row in rows] == [""] * 6 + ["GEMM"] * 6
    assert [row["who"] for row in rows[::2]] == ["kernel", "CPU", "CPU proxy"] * 2
    assert all(row["load_alone_flops"] > 0 for row in rows[6:]) and any(row["load_flops"] > 0 for row in rows[6:])


def test_the_matrix_product_on_a_cpu_is_another_process() -> None:
    with CpuLoad(64) as load:
        before, cpu = load.flops(), time.process_time()
        time.sleep(0.2)
        assert load.flops() > before and load.cpu_ns == 0
        assert time.process_time() - cpu < 0.15
        child = load._child
    assert child.poll() is not None


def test_a_placement_before_the_command_counts(on_cpu: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--placement", "gpu", "latency", "--idle"]) == 1
    assert "in GPU memory" in capsys.readouterr().err
    assert main(["bench", "rate", "--seconds", "0"]) == 1
    assert "outside 0.001..60" in capsys.readouterr().err


@pytest.mark.parametrize("measure", TRANSFERS)
def test_transfers_draw(on_cpu: None, measure: str, tmp_path: Path) -> None:
    matplotlib_or_skip()
    file = tmp_path / "out.png"
    assert main(["bench", measure, "--seconds", "0.001", "--idle", "--plot", str(file)]) == 0
    assert min(png_size(file)) > 100


@pytest.mark.parametrize("measure", ["post", "collectives", "connect", *TRANSFERS])
def test_help_teaches(measure: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bench", measure, "--help"])
    shown = capsys.readouterr().out
    assert ended.value.code == 0 and "--json FILE" in shown and "--plot FILE.png" in shown and "example:" in shown


def test_exchanges_by_size_and_ranks(on_cpu: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "out.json"
    assert main(["bench", "exchanges", "--ranks", "1,3", "--seconds", "0.001", "--json", str(file)]) == 0
    shown = capsys.readouterr().out
    assert "3 ranks, by bytes of a piece" in shown and "64 KiB" in shown
    rows = json.loads(file.read_text())["rows"]
    assert len(rows) == 2 * 5 * 4 and all(row["seconds"] > 0 and row["calls"] >= 5 for row in rows)
    assert main(["bench", "exchanges", "--ranks", "0"]) != 0
    assert "--ranks 0" in capsys.readouterr().err


@pytest.mark.gpu
def test_post_on_a_gpu() -> None:
    """Every row on the whole GPU: measure_post checks that each queue told the NIC all that was posted."""
    costs = measure_post(checks=(True, False), launches=1) + measure_post(launches=1, second_lap=True)
    assert len(costs) == 72 and all(cost.ns_per_post > 0 for cost in costs)
    counts = {count.row: count for count in count_post(doorbells=("record",))}
    alone, warps = counts["thread_owned"], counts["warps_own"]
    assert (alone.fences, alone.atomics, alone.doorbells, alone.records) == (2, 0, 1, 1)
    assert (warps.atomics, warps.doorbells, warps.records) == (0, 1 / 32, 1 / 32)
    assert all(0 < count.doorbells == count.records <= 1 for count in counts.values())


@pytest.mark.gpu
def test_a_kernel_beside_the_cpu_on_a_gpu(tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    assert main(["bench", "cpu", "--seconds", "0.05", "--json", str(file)]) == 0
    rows = json.loads(file.read_text())["rows"]
    assert all((row["sm_ns_per_put"] > 0) == (row["who"] != "CPU") for row in rows)
    assert all(row["load_alone_flops"] > 1e12 for row in rows if row["beside"])


@pytest.mark.gpu
def test_who_triggers_on_a_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All ways, the stream's too; also beside a product that fills the GPU."""
    file = tmp_path / "out.json"
    assert main(["bench", "latency", "--seconds", "0.01", "--json", str(file)]) == 0
    check_triggers(json.loads(file.read_text()), capsys.readouterr().out, missing="")


@pytest.mark.gpu
@pytest.mark.parametrize("placement", ["host", "gpu"])
@pytest.mark.parametrize("measure", ["latency", "rate", "bandwidth"])
def test_transfers_on_a_gpu(measure: str, placement: str) -> None:
    assert main(["bench", measure, "--seconds", "0.01", "--placement", placement]) == 0
