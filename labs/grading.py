# SPDX-License-Identifier: Apache-2.0
"""What the graders of all labs share: run a learner's file, end in time, and say what is wrong.

Called by labs/*/grade.py. The file runs in a process of its own on the software NIC, so that neither a loop without end
nor a pointer to nowhere keeps the grader from saying so. Checks run in order; the first that finds something is the
last.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib.util
import os
import re
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType

from gda import attach
from gda.errors import UnavailableError

LIMIT_S = 60.0  # of all checks of a lab, compiling included
GRACE_S = 20.0  # for the process to come up, and to end at its limit
INSIDE = "--in-this-process"
ROOT = Path(__file__).resolve().parents[1]

# A check looks at the learner's file and answers what is wrong with it, a sentence each.
Check = Callable[[Path], Sequence[str]]


class Wrong(Exception):  # noqa: N818 - it is a sentence for the learner, not an error of the grader
    """Ends a check with these sentences."""

    def __init__(self, *sentences: str) -> None:
        super().__init__(*sentences)
        self.sentences = sentences


def grade(lab: int, folder: Path, file: str, checks: Sequence[tuple[str, Check]], argv: Sequence[str]) -> int:
    """Grade a file (default: `file` of the lab's folder); 0 when everything is right. Each check has a title.

    argv: [FILE] [--limit SECONDS]
    """
    words = argparse.ArgumentParser(prog=f"labs/{folder.name}/grade.py")
    words.add_argument("file", nargs="?", type=Path, default=folder / file, help="what to grade")
    words.add_argument("--limit", type=float, default=LIMIT_S, help="seconds for all checks (%(default)g)")
    words.add_argument(INSIDE, dest="inside", action="store_true", help=argparse.SUPPRESS)
    asked = words.parse_args(argv)
    if not asked.file.is_file():
        words.error(f"{asked.file}: no such file")
    if not asked.inside:
        return _in_a_process(lab, folder / "grade.py", asked.file, asked.limit)
    problems = _checked(checks, asked.file, asked.limit)
    for problem in problems:
        print(f"wrong: {problem}")
    sys.stdout.flush()
    # Threads of a kernel that was given up may still hold memory of the NIC: nothing is closed behind them.
    os._exit(bool(problems))


def _checked(checks: Sequence[tuple[str, Check]], path: Path, limit_s: float) -> list[str]:
    faulthandler.enable()
    faulthandler.dump_traceback_later(limit_s, exit=True)
    for number, (title, check) in enumerate(checks, 1):
        print(f"check {number} of {len(checks)}: {title}", flush=True)
        _as_new()
        try:
            problems = list(check(path))
        except Wrong as wrong:
            problems = list(wrong.sentences)
        except UnavailableError as error:  # no C++ compiler, or the software NIC is not built
            problems = [f"this machine lacks what the lab needs, your file is not to blame: {error}"]
        except Exception as error:
            problems = [*_raised(error, path), *complaints()]
        if problems:
            return problems
    return []


def _as_new() -> None:
    """The NIC forgets what an earlier check asked of it."""
    if software := attach.loaded():
        software.set_faults("")
        software.store_buffer(False)
        software.watch_sources(False)
        software.clear_report()


def _raised(error: Exception, path: Path) -> list[str]:
    """An exception that the learner's file caused, with the line there; others come out of gda and say it all."""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if Path(f.filename) == path.resolve()]
    if isinstance(error, SyntaxError):
        lines = [error.lineno or 0]
    where = f"line {lines[-1]} of {path.name}" if lines else path.name
    return [f"{where} ends with {type(error).__name__}: {error}"]


def _in_a_process(lab: int, grader: Path, path: Path, limit_s: float) -> int:
    """Run the checks in a process of their own, pass on what they print, and say how it ended."""
    environment = {
        **os.environ, "GDA_NIC": "software", "GDA_TARGET": "host", "GDA_SIM_COMPLAINTS": "silent",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
    }  # fmt: skip
    command = [sys.executable, str(grader), INSIDE, "--limit", str(limit_s), str(path)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=limit_s + GRACE_S, env=environment, check=False
        )
        code, out, err = done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired as late:  # not even the watchdog of the process came through
        code, out, err = 1, _text(late.stdout), "Timeout (" + _text(late.stderr)
    print(out, end="")
    said = len(re.findall("^wrong: ", out, re.M))
    ending = ""
    if "Timeout (" in err:
        line = re.search(rf'File "[^"]*{re.escape(path.name)}", line (\d+) in (\w+)', err)
        where = f"line {line.group(1)}, in {line.group(2)}" if line else "in a loop that nothing ends"
        ending = f"{path.name} did not come to an end within {limit_s:g} s: {where}; every wait needs a deadline"
    elif code < 0:
        ending = (
            f"{path.name} ended the process with signal {-code}: it read or wrote memory that is not there; compare "
            "each address with what the README says of it"
        )
    elif code and not said:
        ending = f"the check itself failed: {err.strip()[-2000:]}"
    if ending:
        print(f"wrong: {ending}")
        said += 1
    print(f"lab {lab}: {f'{said} to mend' if said else 'ok'}")
    return bool(said)


def _text(output: bytes | str | None) -> str:
    return output.decode(errors="replace") if isinstance(output, bytes) else output or ""


# ------------------------------------------------------------------------------------------------- for checks
def load(path: Path) -> ModuleType:
    """The learner's Python file as a module."""
    spec = importlib.util.spec_from_file_location("exercise", path.resolve())
    if spec is None or spec.loader is None:
        raise Wrong(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def describe(value: object) -> str:
    """What a function returned, in a few words."""
    return f"{len(value)} bytes {value[:16].hex()}" if isinstance(value, bytes) else repr(value)


def complaints(but: Sequence[str] = ()) -> list[str]:
    """What the NIC has complained about since this was asked last, with what to try; `but`: kinds that are expected."""
    software = attach.loaded()
    if software is None:
        return []
    found = [c for c in software.report() if c.kind not in but]
    software.clear_report()
    return [f"the NIC says: {c} [{c.kind}; try: {c.advice}]" for c in found]
