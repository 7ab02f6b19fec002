# SPDX-License-Identifier: Apache-2.0
"""Builds and runs the fuzz targets of this directory: libFuzzer over the software NIC, with ASan and UBSan.

Called by `make fuzz` (python -m tests.fuzz) and by test_fuzz.py. A target is a file TARGET.cc; its inputs that are
kept lie in corpus/TARGET, words of its language in TARGET.dict. Objects are kept in build/fuzz.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
BUILD = ROOT / "build" / "fuzz"
TARGETS = ("packet", "command", "ioctl")
SANITIZERS = "-fsanitize=address,undefined,{}"
FLAGS = ["-std=c++17", "-O1", "-g1", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-Icuda", "-I."]
SHARED = Path("/dev/shm")  # files there cost the least
MOST_BYTES = 4096  # of an input
INPUT_S = 20  # what an input may take before it counts as a hang, on a machine that does other things too


@functools.cache
def compiler() -> str | None:
    """clang with libFuzzer, or None."""
    found = shutil.which("clang++")
    if found is None:
        return None
    library = subprocess.run([found, "-print-runtime-dir"], capture_output=True, text=True, check=False).stdout.strip()
    return found if any(Path(library).glob("libclang_rt.fuzzer*")) else None


def _fresh(target: Path) -> bool:
    """Whether an object is newer than everything it was made of."""
    depends = target.with_suffix(".d")
    if not target.exists() or not depends.exists():
        return False
    names = depends.read_text().replace("\\\n", " ").split(":", 1)[1].split()
    made = target.stat().st_mtime
    return all((ROOT / name).exists() and (ROOT / name).stat().st_mtime <= made for name in names)


def _compile(source: Path) -> Path:
    target = BUILD / (source.relative_to(ROOT).with_suffix(".o").as_posix().replace("/", "_"))
    if not _fresh(target):
        command = [str(compiler()), *FLAGS, SANITIZERS.format("fuzzer-no-link"), "-MMD", "-c", str(source)]
        subprocess.run([*command, "-o", str(target)], cwd=ROOT, check=True)
    return target


def build() -> None:
    """Build all targets; only what changed is compiled again."""
    BUILD.mkdir(parents=True, exist_ok=True)
    left_out = {"preload.cc", "steer.cc"}  # the ways in for other programs
    sources = [p for p in sorted((ROOT / "sim").glob("**/*.cc")) if p.name not in left_out and p.parent.name != "calls"]
    harnesses = [HERE / f"{target}.cc" for target in TARGETS]
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        objects = [str(made) for made in pool.map(_compile, [*harnesses, *sources])]
    shared = objects[len(harnesses) :]
    archive = BUILD / "libsim.a"
    archive.unlink(missing_ok=True)
    subprocess.run(["ar", "rcs", str(archive), *shared], check=True)
    for target, made in zip(TARGETS, objects, strict=False):
        options = [SANITIZERS.format("fuzzer"), "-pthread", made, str(archive), "-ldl", "-o", str(BUILD / target)]
        subprocess.run([str(compiler()), *options], cwd=ROOT, check=True)


@dataclass(frozen=True)
class Found:
    """How a run of a fuzzer ended."""

    status: int
    output: str
    directory: Path  # what it wrote: inputs that went wrong


def run(target: str, directory: Path, *options: str, seed: int = 1, corpus: Path | None = None) -> Found:
    """Run a target on its corpus with libFuzzer's options; inputs that went wrong are written to `directory`."""
    kept = HERE / "corpus" / target
    words = HERE / f"{target}.dict"
    command = [
        str(BUILD / target), f"-seed={seed}", f"-max_len={MOST_BYTES}", f"-timeout={INPUT_S}", "-rss_limit_mb=4096",
        f"-artifact_prefix={directory}/", "-print_final_stats=1", *options,
    ]  # fmt: skip
    if words.exists():
        command.append(f"-dict={words}")
    with tempfile.TemporaryDirectory(dir=SHARED if SHARED.is_dir() else None) as meeting_place:
        environment = {
            **os.environ,
            "GDA_SIM_DIRECTORY": meeting_place,
            # A request for more memory than there is comes back empty, as from the allocator that programs use.
            "ASAN_OPTIONS": "allocator_may_return_null=1:allow_user_segv_handler=1:detect_leaks=0",
            "UBSAN_OPTIONS": "print_stacktrace=1",
        }
        places = [str(corpus)] if corpus else []
        done = subprocess.run(
            [*command, *places, str(kept)],
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    return Found(done.returncode, done.stdout + done.stderr, directory)
