# SPDX-License-Identifier: Apache-2.0
"""Two network namespaces, joined by a pair of virtual Ethernet devices: what stands for two hosts here."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

__all__ = ["two_namespaces"]


@contextmanager
def two_namespaces(prefix: str, *addresses: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Their names. Each of `addresses` (with the length of its network) is the first's and the second's of one kind.

    `prefix` (at most 8 characters) keeps those of tests that run at once apart.
    """
    names = tuple(f"{prefix}{os.getpid() % 100000}{end}" for end in "ab")
    if shutil.which("ip") is None:
        pytest.skip("not run: the command ip is not installed (apt-get install iproute2)")

    def ip(*arguments: str) -> None:
        result = subprocess.run(["ip", *arguments], capture_output=True, text=True, timeout=60, check=False)
        if result.returncode:
            pytest.skip(f"not run: network namespaces are not permitted here ({result.stderr.strip()})")

    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", names[0], "netns", names[0], "type", "veth", "peer", "name", names[1], "netns", names[1])
        for number, name in enumerate(names):
            for pair in addresses:
                ip("-n", name, "addr", "add", pair[number], "dev", name, *(["nodad"] if ":" in pair[number] else []))
            for link in (name, "lo"):
                ip("-n", name, "link", "set", link, "up")
        yield names[0], names[1]
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=60, check=False)
