# SPDX-License-Identifier: Apache-2.0
"""Complaints that end something: a block in Python, a test, a program; and the last words of a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import gda
import gda.sim
from gda import attach, formats
from gda.errors import CheckError, GdaError

ROOT = Path(__file__).resolve().parents[2]

MISTAKE = """
import sys
import gda, gda.sim
with gda.open() as nic:
    a, _ = nic.loopback_pair()
    a.write_wqe(0, gda.formats.wqe_ctrl_seg.pack(wqe_index=7, qp_or_sq=a.qpn, ds=3))
    a.write_record(1)
    a.ring(a.read_wqe(0)[:8])
    while not gda.sim.report():
        gda.sim.current().step()
"""


@pytest.fixture
def nic():
    with gda.open() as one:
        yield one


def make_a_mistake(queue: gda.QueuePair) -> None:
    queue.write_wqe(0, formats.wqe_ctrl_seg.pack(wqe_index=7, qp_or_sq=queue.qpn, ds=3))
    queue.write_record(1)
    queue.ring(queue.read_wqe(0)[:8])
    while not gda.sim.report():
        gda.sim.current().step()


@pytest.mark.gda_complaints("wqe-stale")
def test_the_end_of_a_strict_block_raises(nic) -> None:
    a, _ = nic.loopback_pair()
    with pytest.raises(CheckError, match="wqe-stale: QP") as caught, gda.sim.strict():
        make_a_mistake(a)
    (complaint,) = caught.value.complaints
    assert (complaint.kind, complaint.qpn) == ("wqe-stale", a.qpn)
    assert isinstance(caught.value, GdaError) and "barrier" in caught.value.advice
    with gda.sim.strict():  # what was said before does not count
        assert nic.loopback_pair()


@pytest.mark.gda_complaints("wqe-stale")
def test_the_next_call_of_gda_raises(nic) -> None:
    a, _ = nic.loopback_pair()
    reached = []
    with pytest.raises(CheckError), gda.sim.strict():
        make_a_mistake(a)
        reached.append(1)
        nic.register(np.zeros(8, np.uint8))
        reached.append(2)
    assert reached == [1]


PUT = r"""
#include <gda/gda.h>
GDA_KERNEL(put)(gda_qp* qp, gda_mr dst, gda_mr src, gda_status* status) {
    *status = gda_wait(qp, gda_put(qp, dst, 0, src, 0, 8), GDA_MS(5000));
}
"""


@pytest.mark.gda_complaints("key-right-missing", "refused-by-peer")
def test_of_a_kernel_that_failed_the_cause_is_told(nic) -> None:
    a, _ = nic.loopback_pair()
    source = nic.register(np.ones(8, np.uint8))
    target = nic.register(np.zeros(8, np.uint8), access="local_write")
    with pytest.raises(CheckError, match="does not allow remote write"), gda.sim.strict():
        gda.Kernel(PUT, target="host").put[1, 1](a, target, source)


def test_a_correct_program_passes(nic) -> None:
    a, _ = nic.loopback_pair()
    source, target = nic.register(np.ones(8, np.uint8)), nic.register(np.zeros(8, np.uint8))
    with gda.sim.strict():
        gda.Kernel(PUT, target="host").put[1, 1](a, target, source)
    assert target.array.all()


def run_python(text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, timeout=120, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "GDA_NIC": "software", **environment},
    )  # fmt: skip


def test_last_words_of_a_process() -> None:
    result = run_python(MISTAKE)
    assert result.returncode == 0 and not result.stdout
    first, second, third = result.stderr.splitlines()
    assert first.startswith("gda: the software NIC has complaints: 1 (docs/checker.md; GDA_SIM_COMPLAINTS=silent")
    assert second.startswith("gda:   wqe-stale: QP 0x") and third.startswith("gda:     try: write the request before")


@pytest.mark.parametrize("how", ["variable", "call", "clear"])
def test_last_words_can_be_silenced(how: str) -> None:
    more = {"call": "gda.sim.current().print_complaints(False)", "clear": "gda.sim.current().clear_report()"}
    result = run_python(MISTAKE + more.get(how, ""), GDA_SIM_COMPLAINTS="silent" if how == "variable" else "")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_a_strict_process_ends_with_its_own_status() -> None:
    result = run_python(MISTAKE + "print('done')", GDA_SIM_COMPLAINTS="strict")
    assert (result.returncode, result.stdout) == (86, "done\n")
    assert "wqe-stale" in result.stderr
    result = run_python(MISTAKE + "nic = gda.open()\nnic.loopback_pair()\nprint('done')", GDA_SIM_COMPLAINTS="strict")
    assert result.returncode == 1 and not result.stdout and "gda.errors.CheckError" in result.stderr
    assert run_python(MISTAKE + "sys.exit(3)", GDA_SIM_COMPLAINTS="strict").returncode == 3


def test_a_program_of_others_hears_of_its_mistakes(tmp_path) -> None:
    """Under `sim run` stderr is the only way. A child of a fork does not repeat what its parent has to say."""
    program = tmp_path / "mistake.py"
    program.write_text(MISTAKE + "import os\nif os.fork() == 0:\n    sys.exit(0)\nos.wait()\n")
    command = [sys.executable, "-m", "gda", "sim", "run", "--", sys.executable, str(program)]
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=120, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr.count("wqe-stale: QP 0x") == 1


def test_a_correct_process_says_nothing() -> None:
    result = run_python("import gda\nwith gda.open() as nic:\n    nic.loopback_pair()\n")
    assert (result.returncode, result.stderr) == (0, "")


TESTS = (
    """
import gda, gda.sim, pytest
def mistake():
"""
    + "\n".join("    " + line for line in MISTAKE.splitlines() if not line.startswith("import"))
    + """
def test_clean(): pass
def test_mistake(): mistake()
def test_after(): pass
@pytest.mark.gda_complaints("wqe-stale")
def test_expected(): mistake()
@pytest.mark.gda_complaints("sq-overrun", may=("wqe-stale",))
def test_another_expected(): mistake()
@pytest.mark.gda_complaints(may=("any",))
def test_anything(): mistake()
@pytest.fixture
def late():
    yield
    mistake()
def test_in_a_fixture(late): pass
def test_fails():
    mistake()
    assert False
"""
)


def test_the_pytest_plugin(tmp_path) -> None:
    (tmp_path / "test_of_somebody.py").write_text(TESTS)
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "gda.pytest_plugin", "-p", "no:cacheprovider", "-rA", str(tmp_path)],
        capture_output=True, text=True, timeout=120, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    out = result.stdout
    outcome = {name: word for word in ("PASSED", "FAILED", "ERROR") for name in names_after(out, word)}
    assert outcome == {
        "test_clean": "PASSED", "test_mistake": "FAILED", "test_after": "PASSED", "test_expected": "PASSED",
        "test_another_expected": "FAILED", "test_anything": "PASSED", "test_in_a_fixture": "ERROR",
        "test_fails": "FAILED",
    }, out  # fmt: skip
    assert "the software NIC complained:\nwqe-stale: QP 0x" in out
    assert "the software NIC did not complain: sq-overrun" in out
    assert out.count("Captured software NIC call") + out.count("software NIC call") >= 1, "a failed test shows them"


def names_after(out: str, word: str) -> list[str]:
    lines = [line for line in out.splitlines() if line.startswith(f"{word} ")]
    return [line.split("::")[1].split(" ")[0] for line in lines]


def test_the_plugin_does_not_load_the_nic(tmp_path) -> None:
    (tmp_path / "test_of_somebody.py").write_text(
        "import sys\ndef test_nothing():\n    assert 'gda.attach' not in sys.modules\n"
    )
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "gda.pytest_plugin", "-p", "no:cacheprovider", "-q", str(tmp_path)],
        capture_output=True, text=True, timeout=120, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert result.returncode == 0, result.stdout


def test_steering_by_number_refuses_what_it_does_not_know() -> None:
    assert attach.software_nic()._library.gda_sim_set_last_words(3) < 0
