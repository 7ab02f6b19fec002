# SPDX-License-Identifier: Apache-2.0
"""`python -m gda launch`: ranks that meet, what they print, and how they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
from gda.comm import bootstrap
meeting = bootstrap.Bootstrap(bootstrap.find(30), deadline_s=30)
everybody = meeting.allgather((10 * meeting.rank).to_bytes(1 + meeting.rank, "big"))
numbers = [int.from_bytes(one, "big") for one in everybody]
meeting.barrier()
with open(f"said.{meeting.rank}", "w") as file:
    print(meeting.rank, meeting.size, numbers, meeting.carrier.name.split()[0], file=file)
meeting.close()
"""


def said(tmp_path: Path) -> list[str]:
    """What each rank has written; a launcher may mix what they print."""
    return [path.read_text().strip() for path in sorted(tmp_path.glob("said.*"))]


def run(command: list[str], program: str, tmp_path: Path, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "program.py"
    path.write_text(program)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [*command, str(path)], env=environment, capture_output=True, text=True, timeout=timeout, cwd=tmp_path
    )


def launched(program: str, tmp_path: Path, ranks: int, *more: str) -> subprocess.CompletedProcess[str]:
    return run([sys.executable, "-m", "gda", "launch", "-n", str(ranks), *more], program, tmp_path)


def test_launch(tmp_path: Path) -> None:
    result = launched(PROGRAM, tmp_path, 3)
    assert result.returncode == 0, result.stderr
    assert said(tmp_path) == [f"{r} 3 [0, 10, 20] directory" for r in range(3)]


def test_launch_puts_the_rank_in_front(tmp_path: Path) -> None:
    result = launched("import sys\nprint('one\\ntwo')\nprint('three', file=sys.stderr)", tmp_path, 2)
    assert result.returncode == 0
    assert sorted(result.stdout.splitlines()) == ["[0] one", "[0] two", "[1] one", "[1] two"]
    assert sorted(result.stderr.splitlines()) == ["[0] three", "[1] three"]


def test_launch_has_the_status_of_the_first_failure_and_ends_the_rest(tmp_path: Path) -> None:
    program = "import sys, time\nfrom gda import config\nif config.get('GDA_RANK') == '1': sys.exit(7)\ntime.sleep(300)"
    result = launched(program, tmp_path, 3, "--grace", "0.2")
    assert result.returncode == 7
    assert "rank 1 (process" in result.stderr and "ended with exit status 7" in result.stderr
    assert "ending rank 0, 2" in result.stderr


def test_launch_names_a_signal(tmp_path: Path) -> None:
    result = launched("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", tmp_path, 1)
    assert result.returncode == 128 + 9 and "signal 9 (SIGKILL)" in result.stderr


def runs(pid: int) -> bool:
    """Whether it has not ended; one that nobody has waited for yet is still listed."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_launch_ends_its_ranks_when_it_is_ended(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(300)")
    command = [sys.executable, "-m", "gda", "launch", "-n", "1", str(tmp_path / "program.py")]
    launcher = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert launcher.stdout is not None
    pid = int(launcher.stdout.readline().split()[-1])
    launcher.send_signal(signal.SIGTERM)
    assert launcher.wait(30) == 128 + signal.SIGTERM
    end = time.monotonic() + 30
    while runs(pid) and time.monotonic() < end:
        time.sleep(0.02)
    assert not runs(pid)


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["-n", "0", "x.py"], "at least 1"), (["-n", "2"], "no program to launch"),
        (["-n", "2", "nowhere.py"], "no file 'nowhere.py'"), (["-n", "2", "python", "x.py"], "without python in front"),
    ],
)  # fmt: skip
def test_launch_refuses(arguments: list[str], words: str) -> None:
    command = [sys.executable, "-m", "gda", "launch", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert result.returncode == 1 and words in result.stderr
