# SPDX-License-Identifier: Apache-2.0
"""doctor as a command: changes nothing, ends in time, is readable in a pipe; probes that hang or crash are named."""

from __future__ import annotations

import faulthandler
import json
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gda.errors import UnavailableError
from gda.tools.doctor import Line, Machine, Status, examine, host, isolate
from gda.tools.doctor.examine import PROBES
from gda.tools.doctor.line import Probe, ok
from tests.doctor.machines import laptop, server

ROOT = Path(__file__).resolve().parents[2]


def doctor(home: Path, *arguments: str, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "HOME": str(home), "TMPDIR": str(home), "XDG_CACHE_HOME": str(home),
        "GDA_SIM_DIRECTORY": str(home / "nics"), "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    command = [*before, sys.executable, "-m", "gda", "doctor", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, cwd=home)


def everything(*roots: Path) -> dict[str, tuple[int, int]]:
    return {
        str(p): (p.stat().st_mtime_ns, p.stat().st_size)
        for root in roots for p in root.rglob("*") if p.is_file() or p.is_dir()
    }  # fmt: skip


def test_it_changes_nothing_and_is_readable_in_a_pipe(tmp_path: Path) -> None:
    before = everything(ROOT / "gda", ROOT / "cuda", tmp_path)
    done = doctor(tmp_path)
    assert done.returncode == 0, done.stderr
    assert everything(ROOT / "gda", ROOT / "cuda", tmp_path) == before
    assert "\x1b" not in done.stdout
    assert done.stdout.startswith("What you can run here\n")
    for line in done.stdout.splitlines():
        assert len(line) <= 80 and line == line.rstrip(), repr(line)
    assert done.stderr == ""


@pytest.mark.skipif(shutil.which("strace") is None, reason="not run: strace is not installed")
def test_no_system_call_of_it_writes_to_a_file(tmp_path: Path) -> None:
    log = tmp_path / "calls"
    home = tmp_path / "home"
    home.mkdir()
    calls = (
        "open,openat,creat,mkdir,mkdirat,unlink,unlinkat,rename,renameat,renameat2,rmdir,symlink,symlinkat,link,linkat,"
        "chmod,fchmod,fchmodat,chown,fchown,fchownat,truncate,ftruncate,mknod,mknodat,mount,init_module,finit_module"
    )
    done = doctor(home, "--json", before=("strace", "-f", "-qq", "-e", f"trace={calls}", "-o", str(log)))
    if done.returncode and "Operation not permitted" in done.stderr:
        pytest.skip("not run: strace may not trace here")
    assert done.returncode == 0, done.stderr
    changing = [
        line for line in log.read_text().splitlines()
        if re.search(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|O_APPEND", line) or not re.search(r"\bopen(at)?\(", line)
    ]  # fmt: skip
    harmless = re.compile(r'"/dev/(null|infiniband/|nvidia)|\+\+\+|--- SIG|resumed>|memfd| = -1 E')
    assert [line for line in changing if not harmless.search(line)] == []


def test_json_has_every_line_with_all_its_fields(tmp_path: Path) -> None:
    done = doctor(tmp_path, "--json")
    report = json.loads(done.stdout)
    assert report["schema"] == 1 and report["verdict"]["can"] and report["verdict"]["uses"]["kernels"]
    assert {line["group"] for line in report["lines"]} == {probe.group for probe in PROBES}
    for line in report["lines"]:
        assert set(line) == {"group", "name", "status", "value", "meaning", "next", "facts"}
        assert line["status"] in {s.value for s in Status} and line["value"], line
        assert bool(line["next"]) or line["status"] in {"ok", "not applicable"}, line


def test_behind_libibverbs_everything_is_really_tried(tmp_path: Path) -> None:
    """The software NIC, preloaded, looks like a card to doctor's own calls: DEVX, doorbell pages, tables."""
    (tmp_path / "nics").mkdir()
    done = doctor(tmp_path, "--json", before=(sys.executable, "-m", "gda", "sim", "run", "--"))
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    lines = {line["name"]: line for line in report["lines"]}
    for name, value in (
        ("device mlx5_0", "the software NIC, 1 port"), ("port mlx5_0/1", "active, Ethernet"),
        ("addresses mlx5_0/1", "index 3 is chosen"), ("MTU mlx5_0/1", "active 4096, at most 4096"),
        ("P_Keys mlx5_0/1", "0: 0xffff"), ("DEVX mlx5_0", "answered; queues up to 32768 blocks"),
        ("doorbell pages mlx5_0", "BF, NC"), ("doorbell modes mlx5_0", "record, doorbell-first, no-record"),
        ("software NIC", "preloaded"),
    ):  # fmt: skip
        assert lines[name]["status"] == "ok" and value in lines[name]["value"], lines[name]
    assert report["verdict"]["uses"]["NIC"] == "mlx5_0, the software NIC"
    assert lines["card on the bus"]["value"] == "the software NIC is on no bus"


# ---------------------------------------------------------------------------------- probes that do not come back
def hang(machine: Machine) -> Line:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for _ in range(200):  # not for ever: who is left behind holds pytest's output open
        time.sleep(1)
    raise AssertionError


def crash(machine: Machine) -> Line:
    faulthandler.disable()  # pytest's, which would print where
    os.kill(os.getpid(), signal.SIGSEGV)
    raise AssertionError


def fail(machine: Machine) -> Line:
    raise ZeroDivisionError("a machine that nobody has seen")


def refuse(machine: Machine) -> Line:
    raise UnavailableError("no such thing", "bring one")


def exits(machine: Machine) -> Line:
    os._exit(3)


def probe(name: str, look: object) -> Probe:
    return Probe("test", name, look)  # type: ignore[arg-type]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Doctor's time stands still while any other probe than this one runs: those are in time on a slow machine, too."""

    def but(hanging: str) -> None:
        passed, seen, begin, open_ones = 0.0, time.monotonic(), time.monotonic(), set[int]()

        def monotonic() -> float:
            nonlocal passed, seen
            now = time.monotonic()
            if not open_ones or now > begin + 60:
                passed += now - seen
            seen = now
            return passed

        def start(index: int, probe: Probe, machine: Machine, end: float) -> Any:
            if probe.name != hanging:
                monotonic()
                open_ones.add(index)
            return really_start(index, probe, machine, end)

        def answer(child: Any) -> list[Line]:
            lines = take(child)
            monotonic()
            open_ones.discard(child.index)
            return lines

        really_start, take = isolate._start, isolate._answer
        monkeypatch.setattr(isolate, "_start", start)
        monkeypatch.setattr(isolate, "_answer", answer)
        monkeypatch.setattr(isolate, "time", SimpleNamespace(monotonic=monotonic, sleep=time.sleep))

    return but


def test_a_probe_that_hangs_is_named_and_the_others_go_on(tmp_path: Path, patient: Callable[[str], None]) -> None:
    stuck = [probe("stuck", hang)] * 5  # more than run at a time
    others = [probe(f"p{i}", lambda m: ok("2")) for i in range(6)]
    patient("stuck")
    report = examine(laptop(tmp_path).machine, seconds=0.5, probes=(probe("first", lambda m: ok("1")), *stuck, *others))
    for line in (line for line in report.lines if line.name == "stuck"):
        assert line.status is Status.UNKNOWN and "no answer within 0.5 s" in line.value and "--seconds" in line.next
    assert [line.value for line in report.lines if line.name != "stuck"] == ["1", *["2"] * 6]
    assert len(report.lines) == 12


def test_a_file_that_never_answers_is_named(tmp_path: Path, patient: Callable[[str], None]) -> None:
    played = server(tmp_path)
    played.remove("/proc/cmdline")
    os.mkfifo(tmp_path / "proc/cmdline")  # whoever opens it for reading waits for a writer
    patient("IOMMU")
    report = examine(played.machine, seconds=0.5, probes=host.PROBES)
    assert [line.name for line in report.lines if line.status is Status.UNKNOWN] == ["IOMMU"]


def test_an_answer_that_is_there_is_taken_however_late_it_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Probes are told their time by a program that may itself not get to run."""
    real = selectors.DefaultSelector.select
    late = 0.0

    def select(self: selectors.DefaultSelector, timeout: float | None = None) -> list[object]:
        nonlocal late
        found = real(self, 60.0)
        late += 1000.0
        return list(found)

    monkeypatch.setattr(selectors.DefaultSelector, "select", select)
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + late, sleep=time.sleep)
    monkeypatch.setattr(isolate, "time", clock)
    report = examine(
        laptop(tmp_path).machine, seconds=0.5, overall_seconds=1e9, probes=(probe("it", lambda m: ok("x" * 300000)),)
    )
    assert report.line("it").status is Status.OK


def test_all_time_is_bounded_when_everything_hangs(tmp_path: Path) -> None:
    start = time.monotonic()
    report = examine(
        laptop(tmp_path).machine, seconds=30, overall_seconds=0.5, probes=tuple(probe(f"p{i}", hang) for i in range(12))
    )
    assert time.monotonic() - start < 60
    assert len(report.lines) == 12 and {line.status for line in report.lines} == {Status.UNKNOWN}
    assert "not tried" in report.lines[-1].value


@pytest.mark.parametrize(
    ("look", "status", "value"),
    [
        (crash, Status.PROBLEM, "crashed (SIGSEGV)"), (fail, Status.UNKNOWN, "ZeroDivisionError: a machine"),
        (refuse, Status.UNKNOWN, "no such thing"), (exits, Status.UNKNOWN, "no answer"),
    ],
)  # fmt: skip
def test_a_probe_that_fails_is_one_line(tmp_path: Path, look: object, status: Status, value: str) -> None:
    line = examine(laptop(tmp_path).machine, probes=(probe("it", look),)).line("it")
    assert line.status is status and value in line.value and line.next


def own_children() -> set[int]:
    """Children of this process, those included that have ended and wait to be asked how."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it is gone
            continue
        if parent == os.getpid():
            found.add(int(stat.parent.name))
    return found


def test_no_child_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the system takes to let one that was killed run to its end: here, half a second each."""
    before, asked, real = own_children(), dict[int, float](), os.waitpid

    def waitpid(process: int, options: int) -> tuple[int, int]:
        first = asked.setdefault(process, time.monotonic())
        return (0, 0) if options and time.monotonic() < first + 0.5 else real(process, options)

    monkeypatch.setattr(os, "waitpid", waitpid)
    examine(laptop(tmp_path).machine, seconds=0.3, probes=(probe("stuck", hang), probe("it", crash)))
    assert own_children() <= before and len(asked) == 2


def test_one_that_hangs_in_the_kernel_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is one that has answered and hangs at its end, when the driver lets go."""
    real, asked = os.waitpid, set[int]()

    def waitpid(process: int, options: int) -> tuple[int, int]:
        asked.add(process)
        return (0, 0) if options else real(process, options)

    monkeypatch.setattr(os, "waitpid", waitpid)
    monkeypatch.setattr(isolate, "_is_in_kernel", lambda process: True)
    monkeypatch.setattr(isolate, "_ENDS_S", 1e9)
    report = examine(laptop(tmp_path).machine, seconds=0.3, probes=(probe("stuck", hang),))
    assert "no answer within" in report.line("stuck").value
    report = examine(laptop(tmp_path).machine, probes=(probe("it", lambda m: ok("1")),))
    assert report.line("it").value == "1"
    for process in asked:
        assert real(process, 0)[0] == process


def test_what_is_interrupted_leaves_no_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(self: object, timeout: float | None = None) -> None:
        raise KeyboardInterrupt

    before = own_children()
    monkeypatch.setattr(selectors.DefaultSelector, "select", interrupted)
    with pytest.raises(KeyboardInterrupt):
        examine(laptop(tmp_path).machine, probes=(probe("stuck", hang),))
    assert own_children() <= before
