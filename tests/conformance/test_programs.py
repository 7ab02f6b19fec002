# SPDX-License-Identifier: Apache-2.0
"""Debian's ibverbs-utils, perftest and ucx-utils, unmodified, between two processes on the software NIC."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from . import runner

LINK_LOCAL_V2, IPV4_V2 = 1, 3  # GID indices


@pytest.mark.parametrize("events", ["", "-e"], ids=["polling", "events"])
@pytest.mark.parametrize("service", ["rc", "uc", "ud", "srq"])
def test_pingpong(host: dict[str, str], tmp_path: Path, service: str, events: str) -> None:
    program = runner.need(f"ibv_{service}_pingpong", "ibverbs-utils")
    check = ["-c"] if service in ("rc", "uc", "ud") else []  # contents of the received buffers
    command = [program, "-g", str(LINK_LOCAL_V2), "-n", "200", *check, *events.split()]
    for output in runner.check_pair(runner.pair(command, host, tmp_path)):
        assert re.search(r"200 iters in .* usec/iter", output), output


PERFTEST = [
    # Latencies by polling, then by events where the program has them.
    "ib_write_lat -n 100",
    "ib_read_lat -n 100",
    "ib_send_lat -n 100",
    "ib_atomic_lat -n 100",
    "ib_read_lat -n 100 -e",
    "ib_send_lat -n 100 -e",
    "ib_atomic_lat -n 100 -e",
    # Bandwidths, one way and both ways.
    "ib_write_bw -n 100",
    "ib_read_bw -n 100",
    "ib_send_bw -n 100",
    "ib_atomic_bw -n 100 -A FETCH_AND_ADD",
    "ib_atomic_bw -n 100 -A CMP_AND_SWAP",
    "ib_write_bw -n 100 -b",
    "ib_read_bw -n 100 -b",
    "ib_send_bw -n 100 -b",
    "ib_atomic_bw -n 100 -b",
    "ib_read_bw -n 100 -e",
    "ib_send_bw -n 100 -e",
    "ib_send_bw -n 100 -e -b",
    "ib_atomic_bw -n 100 -e",
    # Other services.
    "ib_send_lat -n 100 -c UD",
    "ib_send_lat -n 100 -c UD -e",
    "ib_send_bw -n 100 -c UD",
    "ib_send_bw -n 100 -c UD -b",
    "ib_send_lat -n 100 -c UC",
    "ib_send_bw -n 100 -c UC",
    "ib_write_lat -n 100 -c UC",
    "ib_write_bw -n 100 -c UC",
    # Many queue pairs, and receives that they share. perftest counts a completion as -t: -n is a multiple of it, else
    # it may believe to be done before it has posted all, and spin for ever.
    "ib_write_bw -n 20 -q 8",
    "ib_read_bw -n 20 -q 8",
    "ib_send_bw -n 20 -q 8",
    "ib_atomic_bw -n 20 -q 8",
    "ib_write_bw -n 8 -q 128 -s 256 -t 4",
    "ib_read_bw -n 8 -q 128 -s 256 -t 4",
    "ib_send_bw -n 8 -q 128 -s 256 -t 4 -r 8",
    "ib_atomic_bw -n 8 -q 128 -t 4",
    "ib_send_lat -n 100 --use-srq",
    "ib_send_bw -n 100 --use-srq",
    "ib_send_bw -n 100 --use-srq -e",
    "ib_send_bw -n 20 --use-srq -q 8",
    # Sizes around the path MTU, and inline data.
    "ib_write_bw -n 20 -s 1048576",
    "ib_read_bw -n 20 -s 1000001",
    "ib_send_bw -n 20 -s 4097 -m 1024",
    "ib_write_lat -n 100 -s 8 -I 64",
]


@pytest.mark.parametrize("line", PERFTEST)
def test_perftest(host: dict[str, str], tmp_path: Path, line: str) -> None:
    name, *options = line.split()
    command = [runner.need(name, "perftest"), "-F", "-d", "mlx5_0", "-x", str(IPV4_V2), *options]
    _, client = runner.check_pair(runner.pair(command, host, tmp_path))
    heading = "#bytes #iterations" if "_lat" in name else "#bytes     #iterations"
    after = client.split(heading)[-1].splitlines()[1].split()  # the line of figures below the heading
    assert len(after) >= 5, client
    assert float(after[3 if "_bw" in name else 5]) > 0


@pytest.mark.parametrize("test", ["tag_lat -s 8", "ucp_put_bw -s 65536", "ucp_get -s 4096", "ucp_fadd"])
@pytest.mark.parametrize("transport", ["rc_verbs", "ud_verbs"])
def test_ucx(host: dict[str, str], tmp_path: Path, transport: str, test: str) -> None:
    program = runner.need("ucx_perftest", "ucx-utils")
    if "libtsan" in host["LD_PRELOAD"]:
        pytest.skip("not run: UCX rewrites functions that ThreadSanitizer intercepts, and crashes when it ends")
    # RC endpoints are wired up over UD, which is then named as an auxiliary transport.
    chosen = {
        "UCX_TLS": transport if transport == "ud_verbs" else f"{transport},ud_verbs:aux",
        "UCX_NET_DEVICES": "mlx5_0:1",
        "UCX_IB_GID_INDEX": str(IPV4_V2),
        "UCX_WARN_UNUSED_ENV_VARS": "n",
    }
    usage = subprocess.run([program, "-h"], capture_output=True, text=True)
    alone = ["-P", "0"] if "MPI mode" in usage.stdout + usage.stderr else []  # a build with MPI wants mpirun otherwise
    command = [program, *alone, "-n", "300", "-w", "20", "-t", *test.split()]
    _, client = runner.check_pair(runner.pair(command, {**host, **chosen}, tmp_path, host_first=True))
    assert re.search(r"^Final:\s+300\s", client, re.MULTILINE), client
    # UCX 1.18 wants a remote flush at the end, which its own rc_verbs transport does not have on any NIC.
    assert [line for line in client.splitlines() if "ERROR" in line and "flush" not in line] == []
