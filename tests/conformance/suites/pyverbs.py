# SPDX-License-Identifier: Apache-2.0
"""rdma-core's own tests, Debian's copies unmodified, by Debian's Python and pyverbs.

Every file that the package ships is a case, but for those that test another vendor's card. One process a file, so that
a crash is told apart.
"""

from __future__ import annotations

import functools
import gzip
import re
import shutil
import subprocess
import time
from pathlib import Path

from .. import runner
from ..results import Case, FailedError, Host, NotInstalledError, Result, Suite

WHERE = (Path("/usr/share/doc/rdma-core/tests"), Path("/usr/share/doc/python3-pyverbs/tests"))
PYTHON = Path("/usr/bin/python3")
OTHER_CARDS = ("test_efa",)  # prefixes of files that only speak to Amazon's EFA
# Classes that open the connection manager, another device file, which is not emulated: they fail where it is not there,
# on any card. Of their files only the other classes run.
NO_MANAGER = {"test_rdmacm": ("CMTestCase", ""), "test_mlx5_rdmacm": ("Mlx5CMTestCase", "ReservedQPTest")}
# Tests whose forked children use what their parent opened, which the software NIC refuses with EIO (5): test -> what
# it then says.
FORKED = {"test_device.DMTest.test_multi_process_alloc_dm": r"allocation failed with errno: 5$"}
OUTCOMES = {"ok": "passed", "FAIL": "failed", "ERROR": "failed", "expected failure": "passed"}


def shipped() -> list[Path]:
    """The package's files; none when it is not installed."""
    return sorted(next((path for path in WHERE if path.is_dir()), Path("/nonexistent")).glob("*.*"))


def modules() -> list[str]:
    """Names of the test files that concern this card."""
    names = {path.name.split(".")[0] for path in shipped()}
    return sorted(n for n in names if n.startswith("test_") and not n.startswith(OTHER_CARDS))


# The garbage collector clears a pyverbs.Context (its sets of children become None), and then its __dealloc__ closes the
# device without them; the CQ of a test that was skipped half-way is destroyed after that, in memory that was freed.
# rdma-core 56's tests of flow steering crash of it when the collector happens to run. So it runs at the end only, when
# every test has had its say.
START = """import gc, os.path, runpy, sys
gc.disable()
sys.argv = sys.argv[1:]
sys.path[0] = os.path.dirname(sys.argv[0])
runpy.run_path(sys.argv[0], run_name="__main__")"""
AT_THE_END = r"^OK(?: \(|$).*(?:Exception ignored|^Fatal Python error.*^  Garbage-collecting\n  <no Python frame>)"


@functools.cache
def need_python() -> None:
    """NotInstalledError when Debian's Python lacks what the tests import."""
    script = "import pyverbs.device, scapy.fields"
    if not PYTHON.exists():
        raise NotInstalledError(f"apt-get install python3 ({PYTHON} does not exist)")
    done = subprocess.run([PYTHON, "-c", script], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NotInstalledError("apt-get install python3-pyverbs python3-scapy")


def unpack(directory: Path) -> Path:
    """Make the package `tests` in `directory`."""
    target = directory / "tests"
    target.mkdir()
    for source in shipped():
        if source.suffix == ".gz":
            (target / source.stem).write_bytes(gzip.decompress(source.read_bytes()))
        else:
            shutil.copy(source, target)
    return target


def results(output: str) -> dict[str, tuple[str, str]]:
    """Test -> (passed, failed or skipped; message), read from unittest's -v output.

    A test may print between its name and its outcome, which then stands on a line of its own.
    """
    found: dict[str, tuple[str, str]] = {}
    name = ""
    for line in output.splitlines():
        started = re.match(r"(test\w+) \((?:tests\.)?([\w.]+)\)", line)
        if started:
            words = started[2]
            name = words if words.endswith(started[1]) else f"{words}.{started[1]}"
        outcome = r"(?:(ok|FAIL|ERROR|expected failure)|skipped (['\"])(.*)\2)$"
        ended = re.search(rf"\.\.\. {outcome}", line) or re.match(outcome, line)
        if ended and name:
            found[name] = ("skipped", ended[3]) if ended[3] is not None else (OUTCOMES[ended[1]], "")
            name = ""
    return found


def run_module(host: Host, module: str) -> list[Result]:
    """Run one file and read what became of each of its tests."""
    need_python()
    left_out, rest = NO_MANAGER.get(module, ("", module))
    skipped = [Result(f"{module}.{left_out}", "skipped", "no /dev/infiniband/rdma_cm")] if left_out else []
    if not rest:
        return skipped
    sources = unpack(host.directory)
    start = [str(PYTHON), "-X", "faulthandler", "-c", START, str(sources / "run_tests.py")]
    command = [*start, "-v", "-k", f"tests.{module}." + (f"{rest}." if left_out else "")]
    # Later versions ask iproute2 for the devices' network names, by netlink, which the software NIC does not answer:
    # what that program says on a machine whose kernel has no RDMA device.
    tools = host.directory / "tools"
    tools.mkdir()
    (tools / "rdma").write_text("#!/bin/sh\necho '[]'\n")
    (tools / "rdma").chmod(0o755)
    path = f"{tools}:{host.environment['PATH']}"
    begun = time.monotonic()
    done = runner.run(command, {**host.environment, "PATH": path, "PYTHONDONTWRITEBYTECODE": "1"}, host.directory)
    seconds = time.monotonic() - begun
    seen = results(done.output)
    counted = re.search(r"^Ran (\d+) tests?", done.output, re.MULTILINE)
    if counted is None or len(seen) != int(counted[1]) or not seen:
        raise FailedError(f"{len(seen)} results were read: {sorted(seen)}\n{done}")
    share = seconds / len(seen)
    found = list(skipped)
    for name, (how, message) in seen.items():
        words = failure(done.output, name) if how == "failed" else message
        forked = how == "failed" and name in FORKED and re.search(FORKED[name], words, re.MULTILINE)
        outcome = ("skipped", "children of fork cannot use the parent's device") if forked else (how, words)
        found.append(Result(name, *outcome, share))
    if done.status != 0 and not any(how == "failed" for how, _ in seen.values()):
        if re.search(AT_THE_END, done.output, re.MULTILINE | re.DOTALL):  # unittest said OK before
            words = "pyverbs closes a device before what was made on it"
            found.append(Result(f"{module}.teardown", "skipped", words))
        else:
            found.append(Result(f"{module}.exit", "failed", str(done)))
    return found


def failure(output: str, name: str) -> str:
    """What unittest printed about a test that failed."""
    words = name.rsplit(".", 1)
    block = re.search(rf"^(?:FAIL|ERROR): {words[1]} \(.*?\)\n(.*?)(?:^=====|^Ran )", output, re.MULTILINE | re.DOTALL)
    return block[1].strip()[-1500:] if block else "unittest says no more"


def cases() -> list[Case]:
    """One case a file."""
    if not modules():

        def missing(host: Host) -> None:
            raise NotInstalledError("apt-get install rdma-core python3-pyverbs python3-scapy")

        return [Case("test_files", missing)]
    return [Case(module, functools.partial(run_module, module=module)) for module in modules()]


SUITE = Suite("pyverbs", "rdma-core's own tests", cases, 300)
