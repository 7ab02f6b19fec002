# SPDX-License-Identifier: Apache-2.0
"""Debian's ucx-utils, unmodified: ucx_perftest between two processes, over libibverbs and past it.

rc_verbs and ud_verbs call libibverbs. rc_mlx5 and ud_mlx5 write work requests and read completion queues by
themselves, so that nobody who polls steps the NIC: its own thread does everything.
"""

from __future__ import annotations

import functools
import re
import subprocess

from .. import runner
from ..results import Case, FailedError, Host, NotInstalledError, Suite

IPV4_V2 = 3  # GID index
TRANSPORTS = ("rc_verbs", "ud_verbs", "rc_mlx5", "ud_mlx5")
PROTOCOL_TESTS = ("tag_lat -s 8", "tag_bw -s 65536", "ucp_put_bw -s 65536", "ucp_get -s 4096", "ucp_fadd")
# What polls by itself shares the cores with the NIC's thread: on two cores an iteration takes milliseconds.
ITERATIONS = {"rc_verbs": 300, "ud_verbs": 300, "rc_mlx5": 100, "ud_mlx5": 100}


@functools.cache
def _alone(program: str) -> tuple[str, ...]:
    """Options that make a build with MPI run without mpirun."""
    usage = subprocess.run([program, "-h"], capture_output=True, text=True, check=False)
    return ("-P", "0") if "MPI mode" in usage.stdout + usage.stderr else ()


def perftest(host: Host, transport: str, test: str) -> None:
    """Run one test to its end; the client must report all iterations."""
    program = runner.need("ucx_perftest", "ucx-utils")
    if "libtsan" in host.environment["LD_PRELOAD"]:
        raise NotInstalledError("UCX rewrites functions that ThreadSanitizer intercepts, and crashes when it ends")
    # RC endpoints are wired up over UD, which is then named as an auxiliary transport.
    datagrams = transport.replace("rc_", "ud_")
    chosen = {
        "UCX_TLS": transport if transport == datagrams else f"{transport},{datagrams}:aux",
        "UCX_NET_DEVICES": "mlx5_0:1",
        "UCX_IB_GID_INDEX": str(IPV4_V2),
        "UCX_WARN_UNUSED_ENV_VARS": "n",
    }
    command = [program, *_alone(program), "-n", str(ITERATIONS[transport]), "-w", "10", "-t", *test.split()]
    ends = runner.pair(command, {**host.environment, **chosen}, host.directory, host_first=True)
    _, client = runner.check_pair(ends)
    errors = [line for line in client.splitlines() if "ERROR" in line and "flush" not in line]
    # UCX 1.18 wants a remote flush at the end, which its own rc_verbs transport does not have on any NIC.
    if errors or not re.search(rf"^Final:\s+{ITERATIONS[transport]}\s", client, re.MULTILINE):
        raise FailedError(client)


def cases() -> list[Case]:
    """Transport by test."""
    return [
        Case(f"ucx {transport} {test}", functools.partial(perftest, transport=transport, test=test))
        for transport in TRANSPORTS
        for test in PROTOCOL_TESTS
    ]


SUITE = Suite("ucx", "ucx_perftest over rc and ud, verbs and mlx5", cases, 300)
