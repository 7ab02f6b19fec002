# SPDX-License-Identifier: Apache-2.0
"""The proxy on the kernel's soft-RoCE: this project's own tests, in a guest, and kernels at both ends of a cable.

In the guest rxe0 is the only device, so gda.open() takes it and kernels are proxied. First pytest runs there what it
runs on the software NIC (tests/device/test_proxied.py) with cases of its own (proxied_cases.py); then the guest meets a
program on this host whose kernels post directly to the software NIC (far_end.py). The guest sees this host's files, so
its Python and what is compiled for it: device code is compiled here, where that takes seconds instead of minutes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

from gda import config

from . import cable
from .guest import Guest

ROOT = Path(__file__).resolve().parents[3]
HOST, GUEST = "10.77.0.1", "10.77.0.2"
NETDEV_MTU = 9000
CASES = ["tests/device/test_proxied.py", "tests/conformance/rxe/proxied_cases.py"]
# Of the first file; the second has what soft-RoCE answers, or what emulation has time for.
OTHERWISE = [
    "test_a_full_ring_and_two_to_the_sixteen", "test_a_receive_that_is_too_short", "test_atomic_on_an_odd_address",
]  # fmt: skip
COMPILE_LIMIT_S, LIMIT_S, FAR_LIMIT_S = 600.0, 900.0, 900.0
Outcome = tuple[str, str]  # a name, and what is wrong or ""


def compile_kernels(cases: list[str]) -> None:
    """Those of these files, and of far_end.py, into the cache that the guest will see."""
    environment = {**ours(), "GDA_NIC": "software", "GDA_POSTING": "proxy"}
    for command in (
        ["-m", "pytest", "-q", "--setup-only", *cases],
        ["-c", "from tests.conformance.rxe.far_end import kernels as k; k().gda_kernel_put"],
    ):
        done = subprocess.run(
            [sys.executable, *command], cwd=ROOT, env=environment, capture_output=True, text=True,
            timeout=COMPILE_LIMIT_S, check=False,
        )  # fmt: skip
        # 5: pytest ran no test, as asked.
        assert done.returncode in (0, 5), f"device code was not compiled:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"


def script_of(cases: list[str], left_out: list[str]) -> str:
    """What a guest does to run these cases by pytest; their report is cases.xml in the shared directory, at the end."""
    variables = " ".join(f"{name}={value}" for name, value in {**ours(), "GDA_NIC": "auto"}.items())
    options = "-o addopts= -p no:gda.pytest_plugin -p no:cacheprovider -q"
    return (
        f"cd {ROOT}\nexport {variables} HOME=/run\n"
        f"{sys.executable} -m pytest {options} --junitxml={Guest.SHARE}/xml {' '.join(cases)} "
        f"{' '.join(f'--deselect {case}' for case in left_out)}\n"
        f"mv {Guest.SHARE}/xml {Guest.SHARE}/cases.xml\n"
    )


@contextmanager
def running(share: Path, ports: tuple[int, int]) -> Iterator[Guest]:
    """A guest that runs both programs one after the other; its frames go to the first port."""
    script = script_of(CASES, [f"{CASES[0]}::{name}" for name in OTHERWISE])
    script += f"{sys.executable} -m tests.conformance.rxe.far_end {Guest.SHARE} proxied\n"
    with Guest(
        share, script, port=ports[1], peer_port=ports[0], address=GUEST, mac="52:54:00:00:00:02", mtu=NETDEV_MTU
    ) as guest:
        yield guest


def outcomes(directory: Path) -> Iterator[Outcome]:
    """Each case as it ended."""
    compile_kernels(CASES)
    share = directory / "share"
    share.mkdir()
    near, far = cable.ports(2)
    log = directory / "direct.log"
    with running(share, (near, far)) as guest, log.open("w") as words:
        xml = share / "cases.xml"
        await_file(guest, xml, LIMIT_S)
        yield from of_pytest(xml)
        environment = ours() | {
            "GDA_NIC": "software", "GDA_SIM_ETHERNET": f"{near}:{far}", "GDA_SIM_ADDRESS": HOST,
        }  # fmt: skip
        command = [sys.executable, "-m", "tests.conformance.rxe.far_end", str(share), "direct"]
        with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=words, stderr=words) as direct:
            try:
                await_file(guest, share / "proxied.results", FAR_LIMIT_S, direct)
                await_file(guest, share / "direct.results", FAR_LIMIT_S, direct)
                status = guest.exit_status()
            except AssertionError as error:
                raise AssertionError(f"{error}\nat the direct end:\n{log.read_text()[-2000:]}") from None
            finally:
                direct.kill()
        for side in ("proxied", "direct"):
            for name, wrong in json.loads((share / f"{side}.results").read_text()):
                yield f"far end.{name}", wrong
        assert status == 0, guest.console()[-3000:]


def ours() -> dict[str, str]:
    """The environment of a guest's program."""
    # Nothing of this machine's settings for the package reaches either end.
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "HOME")}
    return kept | {
        "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "GDA_CACHE": str(config.cache_directory()),
    }  # fmt: skip


def await_file(guest: Guest, file: Path, limit_s: float, other: subprocess.Popen[bytes] | None = None) -> None:
    """Wait until the guest has made this file; `other` must not fail meanwhile."""
    end = time.monotonic() + limit_s
    while not file.exists():
        console = guest.alive() if not file.exists() else ""
        assert time.monotonic() < end, f"no {file.name} within {limit_s} s:\n{console[-3000:]}"
        assert other is None or other.poll() in (None, 0), f"the direct end ended with {other and other.returncode}"
        time.sleep(0.1)


def of_pytest(xml: Path) -> Iterator[Outcome]:
    """The cases of a report."""
    found = list(ElementTree.parse(xml).iter("testcase"))
    assert found, "pytest in the guest ran nothing"
    for case in found:
        wrong = [child.get("message", "") + (child.text or "") for child in case if child.tag in ("failure", "error")]
        skipped = [f"skipped: {child.get('message')}" for child in case if child.tag == "skipped"]
        yield f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}", "\n".join(wrong + skipped)[-2000:]
