# SPDX-License-Identifier: Apache-2.0
"""rdma-core's own tests, Debian's copies unmodified, by Debian's Python and pyverbs on the software NIC.

No failure; a skip only for a reason that skips.txt names. One process a module, so that a crash is told apart.
"""

from __future__ import annotations

import fnmatch
import gzip
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from . import runner

WHERE = (Path("/usr/share/doc/rdma-core/tests"), Path("/usr/share/doc/python3-pyverbs/tests"))
PYTHON = Path("/usr/bin/python3")
MODULES = [
    "test_mlx5_devx",
    "test_device",
    "test_mr",
    "test_cq",
    "test_cqex",
    "test_cq_events",
    "test_qp",
    "test_qpex",
    "test_pd",
    "test_shared_pd",
    "test_srq",
    "test_addr",
    "test_atomic",
    "test_parent_domain",
    "test_mlx5_uar",
    "test_mlx5_raw_wqe",
    "test_mlx5_cq",
]
NOT_SHIPPED = {"test_srq"}  # by rdma-core 44; later versions have it


def python_version() -> tuple[int, ...]:
    """Of Debian's Python, which has pyverbs."""
    script = "import sys; print(*sys.version_info[:2])"
    return tuple(int(n) for n in subprocess.run([PYTHON, "-c", script], capture_output=True, text=True).stdout.split())


@dataclass(frozen=True)
class Rule:
    test: str
    message: str
    reason: str

    def allows(self, test: str, message: str) -> bool:
        return fnmatch.fnmatchcase(test, self.test) and fnmatch.fnmatchcase(message, self.message)


def rules() -> list[Rule]:
    lines = (Path(__file__).parent / "skips.txt").read_text().splitlines()
    return [Rule(*(part.strip() for part in line.split("|"))) for line in lines if line and not line.startswith("#")]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory with the package `tests`, unpacked."""
    shipped = next((path for path in WHERE if path.is_dir()), None)
    if shipped is None:
        pytest.skip("not run: apt-get install rdma-core python3-pyverbs")
    target = tmp_path_factory.mktemp("rdma-core") / "tests"
    target.mkdir()
    for source in shipped.iterdir():
        if source.suffix == ".gz":
            (target / source.stem).write_bytes(gzip.decompress(source.read_bytes()))
        else:
            shutil.copy(source, target)
    return target


@pytest.fixture(scope="module")
def pyverbs(tmp_path_factory: pytest.TempPathFactory) -> None:
    script = "import pyverbs.device, scapy.fields"
    if not PYTHON.exists():
        pytest.skip(f"not run: apt-get install python3 ({PYTHON} does not exist)")
    done = runner.run([str(PYTHON), "-c", script], {}, tmp_path_factory.mktemp("probe"))
    if done.status != 0:
        pytest.skip("not run: apt-get install python3-pyverbs python3-scapy")


def results(output: str) -> dict[str, tuple[str, str]]:
    """Test -> (ok, skipped, FAIL or ERROR; message), read from unittest's -v output."""
    found: dict[str, tuple[str, str]] = {}
    name = ""
    for line in output.splitlines():
        started = re.match(r"(test\w+) \((?:tests\.)?([\w.]+)\)", line)
        if started:
            words = started[2]
            name = words if words.endswith(started[1]) else f"{words}.{started[1]}"
        ended = re.search(r"\.\.\. (?:(ok|FAIL|ERROR|expected failure)|skipped (['\"])(.*)\2)$", line)
        if ended and name:
            found[name] = ("skipped", ended[3]) if ended[3] is not None else (ended[1], "")
            name = ""
    return found


@pytest.mark.parametrize("module", MODULES)
def test_module(sources: Path, pyverbs: None, host: dict[str, str], tmp_path: Path, module: str) -> None:
    if not (sources / f"{module}.py").exists():
        assert module in NOT_SHIPPED, f"{sources} has no {module}.py"
        pytest.skip(f"not run: this rdma-core ships no {module}")
    command = [str(PYTHON), str(sources / "run_tests.py"), "-v", "-k", f"tests.{module}."]
    # Later versions ask iproute2 for the devices' network names, by netlink, which the software NIC does not answer:
    # what that program says on a machine whose kernel has no RDMA device.
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "rdma").write_text("#!/bin/sh\necho '[]'\n")
    (tools / "rdma").chmod(0o755)
    path = f"{tools}:{host['PATH']}"
    done = runner.run(command, {**host, "PATH": path, "PYTHONDONTWRITEBYTECODE": "1"}, tmp_path)
    passed = re.search(r"^OK( \(|$)", done.output, re.MULTILINE)
    if passed and (done.status != 0 or "Exception ignored" in done.output) and python_version() >= (3, 12):
        # unittest said OK; what follows is pyverbs taking its objects down in no order.
        pytest.xfail("pyverbs closes children by WeakSet.pop, which fails on this Python (mended upstream in 2026)")
    assert done.status == 0, str(done)
    seen = results(done.output)
    counted = re.search(r"^Ran (\d+) tests?", done.output, re.MULTILINE)
    assert counted is not None, str(done)
    assert len(seen) == int(counted[1]) > 0, f"{sorted(seen)}\n{done}"
    allowed = rules()
    skipped = {name: message for name, (how, message) in seen.items() if how == "skipped"}
    unexpected = {n: m for n, m in skipped.items() if not any(rule.allows(n, m) for rule in allowed)}
    assert not unexpected, "skipped without a reason in skips.txt"
    traffic = [how for name, (how, _) in seen.items() if name.endswith("test_devx_rc_qp_send_imm_traffic")]
    assert module != "test_mlx5_devx" or traffic == ["ok"], "the firmware's own test must run"
    mine = [r for r in allowed if r.test.startswith(f"{module}.") and not r.reason.startswith("machine:")]
    unused = [rule for rule in mine if not any(rule.allows(n, m) for n, m in skipped.items())]
    assert not unused, "lines of skips.txt that nothing needs any more"
    assert any(how == "ok" for how, _ in seen.values()), "nothing ran"


def test_every_skip_has_a_reason() -> None:
    for rule in rules():
        assert len(rule.reason) > 15, rule
        assert rule.test.split(".")[0] in MODULES, rule


def test_a_result_is_read_from_each_form() -> None:
    text = (
        "test_a (tests.test_x.Case)\nwords about it ... ok\n"
        "test_b (tests.test_x.Case.test_b) ... skipped 'No \"such\" thing'\n"
        "test_c (tests.test_x.Case.test_c)\nwords ... ERROR\n"
    )
    assert results(text) == {
        "test_x.Case.test_a": ("ok", ""),
        "test_x.Case.test_b": ("skipped", 'No "such" thing'),
        "test_x.Case.test_c": ("ERROR", ""),
    }
