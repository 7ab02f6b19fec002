# SPDX-License-Identifier: Apache-2.0
"""Two processes that share nothing but a network: two loopback addresses, and two network namespaces with a veth pair.

Each runs `link_wire_carrier_test talk OWN PEER` with a directory of its own, so that UDP is the only way between them.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_link import Build, build, environment  # noqa: F401

from tests.namespaces import two_namespaces


def talk(program: Path, directory: Path, prefixes: tuple[list[str], ...], addresses: tuple[str, str]) -> None:
    """Run both; each must have taken a hundred packets of the other, every byte right."""
    processes = []
    for number, prefix in enumerate(prefixes):
        own, peer = addresses[number], addresses[1 - number]
        (directory / str(number)).mkdir(exist_ok=True)
        processes.append(
            subprocess.Popen(
                [*prefix, str(program), "talk", own, peer],
                env=environment(directory / str(number)),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    for process in processes:
        output, _ = process.communicate(timeout=60)
        assert process.returncode == 0, output


def test_two_loopback_addresses(build: Build, tmp_path: Path) -> None:  # noqa: F811
    pid = os.getpid()
    own, peer = (f"127.{90 + n}.{pid // 250 % 250}.{1 + pid % 250}" for n in range(2))
    talk(build("link_wire_carrier_test", "plain"), tmp_path, ([], []), (own, peer))


@pytest.fixture
def namespaces() -> Iterator[tuple[str, str]]:
    """Of IPv4 and IPv6."""
    with two_namespaces("gda", ("10.77.0.1/24", "10.77.0.2/24"), ("fd00:77::1/64", "fd00:77::2/64")) as names:
        yield names


@pytest.mark.parametrize("addresses", [("10.77.0.1", "10.77.0.2"), ("fd00:77::1", "fd00:77::2")], ids=["IPv4", "IPv6"])
def test_two_network_namespaces(
    build: Build,  # noqa: F811
    tmp_path: Path,
    namespaces: tuple[str, str],
    addresses: tuple[str, str],
) -> None:
    prefixes = tuple(["ip", "netns", "exec", name] for name in namespaces)
    talk(build("link_wire_carrier_test", "plain"), tmp_path, prefixes, addresses)
