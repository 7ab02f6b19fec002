# SPDX-License-Identifier: Apache-2.0
"""Debian's perftest, unmodified, between two processes: operation by service by size by way of waiting."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from .. import runner
from ..results import Case, FailedError, Host, SkippedError, Suite

IPV4_V2 = 3  # GID index
SERVICES = {"write": ["RC", "UC"], "read": ["RC"], "send": ["RC", "UC", "UD"], "atomic": ["RC"]}
MTU_BYTES = 4096  # a datagram is one packet
SIZES = [8, 1024, 4096, 4097, 65536, 1000001]


def perftest(host: Host, words: str) -> None:
    """Run one of them to its end; the client must print a figure that is not zero."""
    name, *options = words.split()
    command = [runner.need(name, "perftest"), "-F", "-d", "mlx5_0", "-x", str(IPV4_V2), *options]
    ports = {"GDA_SIM_PORTS": "2"} if "-i" in options else {}
    ends = runner.pair(command, {**host.environment, **ports}, host.directory)
    if "XRC" in options and "Error opening XRC domain" in ends[1].output:
        raise SkippedError("no XRC domain")
    if "-R" in options and "rdma_create_event_channel" in ends[1].output:
        raise SkippedError("no /dev/infiniband/rdma_cm")
    _, client = runner.check_pair(ends)
    heading = "#bytes #iterations" if "_lat" in name else "#bytes     #iterations"
    after = client.split(heading)[-1].splitlines()
    figures = after[1].split() if len(after) > 1 else []  # the line below the heading
    if len(figures) < 5 or not float(figures[3 if "_bw" in name else 5]) > 0:
        raise FailedError(client)


def matrix() -> Iterator[tuple[str, bool]]:
    """(command, whether pytest runs it). What perftest itself does not offer is left out where it would stand."""
    for operation, services in SERVICES.items():
        for service in services:
            about = "" if service == "RC" else f" -c {service}"
            sizes = [None] if operation == "atomic" else [s for s in SIZES if service != "UD" or s <= MTU_BYTES]
            for mode in ("lat", "bw"):
                program = f"ib_{operation}_{mode}"
                for size in sizes:
                    yield f"{program} -n 100{about}" + (f" -s {size}" if size else ""), size in (None, 8, 65536, 4097)
                if operation != "write":  # no events on writes, whose target hears nothing
                    yield f"{program} -n 100{about} -e", True
            bandwidth = f"ib_{operation}_bw"
            yield f"{bandwidth} -n 100{about} -b", True
            if operation != "write":
                yield f"{bandwidth} -n 100{about} -e -b", operation == "send"
            # perftest counts a completion as -t of them: -n is a multiple of it, else it may believe to be done before
            # it has posted all, and spin for ever.
            yield f"{bandwidth} -n 20{about} -q 8", True
            small = "" if operation == "atomic" else " -s 256"
            receives = " -r 8" if operation == "send" else ""
            yield f"{bandwidth} -n 8{about} -q 128{small} -t 4{receives}", True
    for options in ("-n 100", "-n 100 -e", "-n 20 -q 8", "-n 100 -c UD"):
        yield f"ib_send_bw {options} --use-srq", True
    for options in ("-n 100", "-n 100 -e", "-n 100 -c UD"):
        yield f"ib_send_lat {options} --use-srq", True
    yield "ib_send_bw -n 100 -c XRC", True
    yield "ib_send_lat -n 100 -c XRC", True
    yield "ib_atomic_bw -n 100 -A FETCH_AND_ADD", True
    yield "ib_atomic_bw -n 100 -A CMP_AND_SWAP", True
    yield "ib_write_lat -n 100 -s 8 -I 64", True  # inline data
    for mtu in (256, 512, 1024, 2048):
        yield f"ib_send_bw -n 20 -s 4097 -m {mtu}", mtu == 1024
    yield "ib_write_bw -n 100 -i 2", True  # the second port
    yield "ib_write_bw -n 20 -R", True  # connects by rdma_cm, another device file


def cases() -> list[Case]:
    """The matrix."""
    return [Case(line, functools.partial(perftest, words=line), ci=ci) for line, ci in matrix()]


SUITE = Suite("perftest", "ib_{write,read,send,atomic}_{lat,bw}", cases, 600)
