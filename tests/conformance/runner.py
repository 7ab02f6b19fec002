# SPDX-License-Identifier: Apache-2.0
"""Runs other people's programs on the software NIC: one alone, or a server and its client on one host.

Used by the suites. Everything is bounded, and a program that hangs is ended with its whole process group. A program
that is not installed is reported as such, with the package that has it.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from .results import FailedError, NotInstalledError

DEADLINE_S = 60


def need(program: str, package: str) -> str:
    """Path of a program; NotInstalledError names the Debian package that has it."""
    found = shutil.which(program)
    if found is None:
        raise NotInstalledError(f"apt-get install {package}")
    return found


@dataclass
class Done:
    """How a program ended and what it said on both streams, in order. `status` is None when it ran out of time."""

    command: Sequence[str]
    status: int | None
    output: str

    def __str__(self) -> str:
        how = "did not end in time" if self.status is None else f"status {self.status}"
        return f"$ {' '.join(self.command)}\n{self.output.strip()[-3000:]}\n({how})"


@dataclass
class Program:
    """A program in a session of its own; its output goes to a file, so that it can never wait for a reader."""

    command: Sequence[str]
    environment: dict[str, str]
    log: Path
    process: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                self.command, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip

    def wait(self, seconds: float) -> Done:
        """Wait for its end; after `seconds` it is ended."""
        try:
            status: int | None = self.process.wait(max(seconds, 0.1))
        except subprocess.TimeoutExpired:
            status = None
            self.end()
        return Done(self.command, status, self.log.read_text(errors="replace"))

    def end(self) -> None:
        """End it and what it started, whatever state they are in."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


@contextmanager
def _running(command: Sequence[str], env: dict[str, str], log: Path) -> Iterator[Program]:
    program = Program(command, env, log)
    try:
        yield program
    finally:
        program.end()


def run(command: Sequence[str], env: dict[str, str], directory: Path, seconds: float = DEADLINE_S) -> Done:
    """Run one program to its end."""
    with _running(command, env, directory / "output") as program:
        return program.wait(seconds)


def free_port() -> int:
    """Return a TCP port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _listens(port: int) -> bool:
    """Whether some process listens on the port. Looked up, not tried: these servers take one connection only."""
    listening = "0A"
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        for line in table.read_text().splitlines()[1:] if table.exists() else []:
            _, local, _, state, *_ = line.split()
            if state == listening and int(local.rsplit(":", 1)[1], 16) == port:
                return True
    return False


def pair(
    command: Sequence[str],
    env: dict[str, str],
    directory: Path,
    *,
    host_first: bool = False,
    seconds: float = DEADLINE_S,
) -> tuple[Done, Done]:
    """Run `command` as a server and then as its client: the same words and the server's name. Returns (server, client).

    `-p PORT` is added. `host_first` puts the name right behind the program. A server that cannot have its port
    (somebody took it in between) is started once more.
    """
    deadline = time.monotonic() + seconds
    for attempt in range(2):
        port = ["-p", str(free_port())]
        first = [*command, *port]
        with _running(first, env, directory / "server") as server:
            while server.process.poll() is None and not _listens(int(port[1])) and time.monotonic() < deadline:
                time.sleep(0.01)
            if server.process.poll() is not None and attempt == 0:
                continue
            second = [command[0], "localhost", *command[1:], *port] if host_first else [*first, "localhost"]
            with _running(second, env, directory / "client") as client:
                client_done = client.wait(deadline - time.monotonic())
                # When the client failed, the server waits for something that will not come.
                patience = deadline - time.monotonic() if client_done.status == 0 else 2
                return server.wait(patience), client_done
    raise AssertionError("unreachable")


def check_pair(ends: tuple[Done, Done]) -> tuple[str, str]:
    """Return what both said; FailedError unless both ended well."""
    server, client = ends
    if client.status != 0:
        raise FailedError(f"client: {client}\n\nserver: {server}")
    if server.status != 0:
        raise FailedError(f"server: {server}\n\nclient: {client}")
    return server.output, client.output
