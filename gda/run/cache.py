# SPDX-License-Identifier: Apache-2.0
"""Compiled device code on disk, found again by what went into it. Called by host; safe with several processes.

An entry is a small JSON file, renamed into place last, that names the result with its digest and the files that the
compiler read besides the hashed ones. An entry that does not check out is built again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

__all__ = ["cached", "key_of", "tree_digest"]

_LOADED_BY_NOW_S = 3600  # age after which nobody is between finding a result and loading it


def key_of(*parts: str | bytes) -> str:
    """Name of an entry: a hash of all that decides what the compiler makes."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:32]


def tree_digest(directory: Path, patterns: Sequence[str]) -> str:
    """Hash of the names and contents of all files below a directory that match."""
    files = sorted({file for pattern in patterns for file in directory.rglob(pattern)})
    return key_of(*(part for file in files for part in (str(file.relative_to(directory)), file.read_bytes())))


def _file_digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _lookup(directory: Path, key: str) -> Path | None:
    try:
        entry = json.loads((directory / f"{key}.json").read_text())
        result = directory / str(entry["file"])
        if _file_digest(result) != entry["digest"]:
            return None
        if any(_file_digest(Path(file)) != digest for file, digest in entry["read"].items()):
            return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # absent, cut off, or written by something else: built again
    return result


def cached(directory: Path, key: str, suffix: str, build: Callable[[Path], Iterable[Path]]) -> Path:
    """The entry `key`, built if need be.

    `build(path)` makes the file at `path` and returns the other files that it was made from.
    """
    if (found := _lookup(directory, key)) is not None:
        return found
    directory.mkdir(parents=True, exist_ok=True)
    # One process builds, the others wait for its entry: the lock goes with the process that holds it.
    with (
        (directory / f"{key}.lock").open("w") as lock,
        tempfile.TemporaryDirectory(dir=directory, prefix="building-") as work,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (found := _lookup(directory, key)) is not None:
            return found
        made = Path(work) / f"{key}{suffix}"
        read = {str(file): _file_digest(file) for file in build(made)}
        digest = _file_digest(made)
        result = directory / f"{key}-{digest[:12]}{suffix}"
        made.replace(result)
        note = Path(work) / "entry.json"
        note.write_text(json.dumps({"file": result.name, "digest": digest, "read": read}))
        note.replace(directory / f"{key}.json")
        with contextlib.suppress(OSError):  # results of the same key that no entry names, and nobody is about to load
            for old in directory.glob(f"{key}-*{suffix}"):
                if old != result and old.stat().st_mtime < time.time() - _LOADED_BY_NOW_S:
                    old.unlink()
    return result
