# SPDX-License-Identifier: Apache-2.0
"""Tells a program of subject.py what to do, wherever it runs: in a guest, or on this host on the software NIC."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("subject.py")
PYTHON = "/usr/bin/python3"  # Debian's, which has pyverbs
LIMIT_S = 120.0


class Remote:
    """One such program. `alive` returns what it printed, or raises when it has ended."""

    def __init__(self, directory: Path, alive: Callable[[], str]) -> None:
        self._directory, self._alive, self._number = directory, alive, 0

    def __getattr__(self, function: str) -> Callable[..., Any]:
        if function.startswith("_"):
            raise AttributeError(function)

        def call(*name: str, limit_s: float = LIMIT_S, **words: Any) -> Any:
            if name:
                words["name"] = name[0]
            return self.all([(function, words)], limit_s)[0]

        return call

    def all(self, orders: list[tuple[str, dict[str, Any]]], limit_s: float = LIMIT_S) -> list[Any]:
        """Several orders in one go; the results in their order."""
        results = self._exchange(orders, limit_s)
        for (function, words), (how, what) in zip(orders, results, strict=True):
            assert how == "ok", f"{function}({words}) failed:\n{what}\n{self._alive()}"
        return [what for _, what in results]

    def stop(self) -> None:
        """Tell it to end."""
        self._exchange([], LIMIT_S)

    def _exchange(self, orders: list[Any], limit_s: float) -> list[Any]:
        ask, answer = (self._directory / f"{word}-{self._number}" for word in ("ask", "answer"))
        draft = self._directory / "draft"
        draft.write_text(json.dumps(orders))
        draft.rename(ask)
        deadline, waiting = time.monotonic() + limit_s, 0.0
        while not answer.exists():
            try:
                said = self._alive()
            except AssertionError:
                if answer.exists():  # its last word
                    break
                raise
            assert time.monotonic() < deadline, f"{orders} not answered within {limit_s} s:\n{said[-3000:]}"
            waiting = min(waiting + 0.00002, 0.002)
            time.sleep(waiting)
        self._number += 1
        results: list[Any] = json.loads(answer.read_text())
        return results


class Local:
    """Runs subject.py on this host, with an environment that puts it onto the software NIC."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self._log = directory / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [PYTHON, str(PROGRAM), str(directory)], env={**os.environ, **environment}, stdin=subprocess.DEVNULL,
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        self.remote = Remote(directory, self._alive)

    def _alive(self) -> str:
        said = self._log.read_text(errors="replace")
        assert self._process.poll() is None, f"subject.py ended with {self._process.returncode}:\n{said[-3000:]}"
        return said

    def __enter__(self) -> Remote:
        return self.remote

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
