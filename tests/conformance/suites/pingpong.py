# SPDX-License-Identifier: Apache-2.0
"""Debian's ibverbs-utils, unmodified: ibv_*_pingpong between two processes, polling and with events."""

from __future__ import annotations

import functools
import re

from .. import runner
from ..results import Case, FailedError, Host, Suite

LINK_LOCAL_V2 = 1  # GID index
SERVICES = {"rc": ["-c"], "uc": ["-c"], "ud": ["-c"], "srq": []}  # -c: look at the contents of received buffers


def pingpong(host: Host, words: str) -> None:
    """Run one of them to its end; both sides must report."""
    name, *options = words.split()
    command = [runner.need(name, "ibverbs-utils"), "-g", str(LINK_LOCAL_V2), *options]
    ports = {"GDA_SIM_PORTS": "2"} if "-i" in options else {}
    for output in runner.check_pair(runner.pair(command, {**host.environment, **ports}, host.directory)):
        if not re.search(r"200 iters in .* usec/iter", output):
            raise FailedError(output)


def cases() -> list[Case]:
    """Service by way of waiting, and sizes of one packet, of several, and odd ones."""
    lines = [
        " ".join([f"ibv_{service}_pingpong", "-n 200", *check, *more])
        for service, check in SERVICES.items()
        for more in ([], ["-e"], ["-i 2"], ["-s 1"], ["-s 65537"])
        if not (service == "ud" and "65537" in str(more))  # a datagram is one packet
    ]
    quick = re.compile(r"-s")
    return [Case(line, functools.partial(pingpong, words=line), ci=not quick.search(line)) for line in lines]


SUITE = Suite("pingpong", "ibv_*_pingpong of ibverbs-utils", cases, 120)
