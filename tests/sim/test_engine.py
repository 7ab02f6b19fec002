# SPDX-License-Identifier: Apache-2.0
"""The chip of the software NIC, driven by C++ programs through sim/engine/device.h.

Each program (tests/sim/engine_*_test.cc) holds named cases; each case is one test here. The sanitized builds run whole
programs. Everything is compiled once per session and flavour, into a temporary directory.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from compiled import BASE_FLAGS, COMPILER, FLAVOURS, objects, run

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
PROGRAMS = (
    "engine_queue_test",
    "engine_error_test",
    "engine_doorbell_test",
    "engine_command_test",
    "engine_host_test",
    "engine_gpu_test",
    "engine_gpu_later_test",
    "engine_fetch_test",
    "engine_datagram_test",
    "engine_shared_test",
    "engine_dc_test",
    "engine_loss_test",
    "engine_key_test",
    "engine_window_test",
    "engine_ordering_test",
    "engine_counter_test",
    "engine_transport_test",
    "engine_chaos_test",
    "engine_network_test",
    "engine_ports_test",
    "engine_idle_test",
)
SOURCES = [p for room in ("link", "engine", "firmware") for p in sorted((ROOT / "sim" / room).glob("*.cc"))]

pytestmark = [
    pytest.mark.skipif(COMPILER is None, reason="no C++ compiler"),
    pytest.mark.timeout(900),  # the first test of a flavour compiles everything: two minutes of two idle cores
]

LONGEST = "engine_chaos_test"
Build = Callable[[str, str], Path]
Completed = subprocess.CompletedProcess[str]


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Build (once) a test program in a flavour and return its path."""
    directory = tmp_path_factory.mktemp("engine")
    programs: dict[tuple[str, str], Path] = {}

    def make(name: str, flavour: str) -> Path:
        key = (name, flavour)
        if key not in programs:
            out = directory / f"{flavour}-{name}"
            source = str(HERE / f"{name}.cc")
            if name == "fake_libcuda":
                flags = ["-shared", "-Wl,-soname,libcuda.so.1"]
                inputs = [source]
            else:
                flags = []
                every = [HERE / f"{program}.cc" for program in PROGRAMS]  # the programs too, while two compilers run
                parts = [str(part) for part in objects([*SOURCES, *every], flavour)]
                own = parts[len(SOURCES) + PROGRAMS.index(name)] if name in PROGRAMS else source
                inputs = [own, *parts[: len(SOURCES)]]
            command = [
                str(COMPILER),
                *BASE_FLAGS,
                *FLAVOURS[flavour],
                *flags,
                *inputs,
                "-o",
                str(out),
                "-ldl",
                "-lpthread",
            ]
            result = run(command)
            assert result.returncode == 0, result.stderr
            programs[key] = out
        return programs[key]

    return make


def environment(build: Build, name: str, flavour: str, directory: Path) -> dict[str, str]:
    """Environment of a test program: NICs meet in a directory of their own; sanitizers stop at the first finding."""
    values = dict(os.environ)
    values["GDA_SIM_DIRECTORY"] = str(directory / "nics")
    values["ASAN_OPTIONS"] = "detect_leaks=0:allow_user_segv_handler=1"
    # The guard leaves its handler by a jump; TSan then takes everything after for code inside the handler.
    values["TSAN_OPTIONS"] = "halt_on_error=1:second_deadlock_stack=1:die_after_fork=0:report_signal_unsafe=0"
    if flavour != "plain":
        values["GDA_TEST_ONE_SEED_IN"] = "5"  # instrumented code is slow; test_case and the 10,000 seeds run them all
    if name.startswith("engine_gpu_"):
        values["GDA_TEST_FAKE_CUDA"] = str(build("fake_libcuda", flavour))
    return values


def names_of_cases() -> list[tuple[str, str]]:
    """(program, case) pairs, read from the tables in main(), at the end of the programs."""
    found = []
    for program in PROGRAMS:
        for line in (HERE / f"{program}.cc").read_text().split("\nint main(")[1].splitlines():
            text = line.strip()
            if text.startswith('{"'):
                found.append((program, text.split('"')[1]))
    return found


@pytest.mark.parametrize(("program", "case"), names_of_cases())
def test_case(build: Build, tmp_path: Path, program: str, case: str) -> None:
    """Run one case of one program."""
    result = run([str(build(program, "plain")), case], env=environment(build, program, "plain", tmp_path))
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"ok {case}" in result.stdout


@pytest.fixture(scope="session")
def sanitized(
    build: Build, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Callable[[str, str], Completed]]:
    """The outcome of a program under a sanitizer. Two run at a time: the first question starts all of its flavour.

    That is, of those whose tests were asked for. The longest is started first.
    """
    wanted = {
        (item.callspec.params["program"], item.callspec.params["flavour"])
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.function is test_sanitized
    }
    started: dict[tuple[str, str], Future[Completed]] = {}

    def start(pool: ThreadPoolExecutor, program: str, flavour: str) -> Future[Completed]:
        directory = tmp_path_factory.mktemp(f"{flavour}-{program}")
        # Built here, with the driver that it may want: building is for one thread.
        command, variables = [str(build(program, flavour))], environment(build, program, flavour, directory)
        return pool.submit(lambda: run(command, env=variables))

    with ThreadPoolExecutor(max_workers=2) as pool:

        def outcome(program: str, flavour: str) -> Completed:
            if (program, flavour) not in started:
                for name in sorted(PROGRAMS, key=LONGEST.__ne__):
                    if (name, flavour) in wanted:
                        started[name, flavour] = start(pool, name, flavour)
            return started[program, flavour].result()

        yield outcome
        for future in started.values():
            future.cancel()


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("flavour", ["address", "thread"])
def test_sanitized(sanitized: Callable[[str, str], Completed], program: str, flavour: str) -> None:
    """All cases under a sanitizer: no finding, no failure."""
    result = sanitized(program, flavour)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-6000:]
    expected = [case for name, case in names_of_cases() if name == program]
    assert [line[3:] for line in result.stdout.splitlines() if line.startswith("ok ")] == sorted(expected)


def test_benchmark_runs(build: Build, tmp_path: Path) -> None:
    """The benchmark prints its figures; how large they are is not asserted."""
    result = run([str(build("engine_bench", "plain")), "1"], env=environment(build, "engine_bench", "plain", tmp_path))
    assert result.returncode == 0, result.stdout + result.stderr
    assert "post to completion" in result.stdout
    assert "in flight" in result.stdout
    assert result.stdout.count("GB/s") == 6


def test_benchmark_of_waking_runs(build: Build, tmp_path: Path) -> None:
    """It prints its figures; how large they are depends on what else the machine does."""
    program = str(build("wake_bench", "plain"))
    result = run([program, "1", "50"], env=environment(build, "wake_bench", "plain", tmp_path))
    assert result.returncode == 0, result.stdout + result.stderr
    figures = json.loads(result.stdout)
    names = ("arrival_to_answer_us", "wake_call_us")
    assert set(figures) == {f"{name}{which}" for name in names for which in ("", "_p90", "_least")}
    assert all(value > 0 for value in figures.values())


def test_no_link_to_drivers(build: Build) -> None:
    """The engine names neither libibverbs nor libcuda as a needed library."""
    result = run(["ldd", str(build("engine_bench", "plain"))])
    assert "libcuda" not in result.stdout
    assert "libibverbs" not in result.stdout


def test_ten_thousand_seeds_of_random_work_under_faults(build: Build, tmp_path: Path) -> None:
    """5 % loss, duplication and reorder: every byte right, every atomic once, nothing stuck."""
    program = "engine_chaos_test"
    command = [str(build(program, "plain")), "seeds", "1", "10000"]
    result = run(command, env=environment(build, program, "plain", tmp_path))
    assert result.returncode == 0, result.stdout + result.stderr
    assert "10000 seeds from 1" in result.stdout


def test_what_loss_and_reorder_cost(build: Build, tmp_path: Path) -> None:
    """The table in fault_matrix.txt, to the packet: a change of behaviour shows as a difference to be looked at."""
    program = "engine_network_test"
    result = run([str(build(program, "plain")), "table"], env=environment(build, program, "plain", tmp_path))
    assert result.returncode == 0, result.stdout + result.stderr
    known = (HERE / "fault_matrix.txt").read_text()
    assert result.stdout.splitlines() == known.splitlines(), "engine_network_test table > tests/sim/fault_matrix.txt"
