# SPDX-License-Identifier: Apache-2.0
"""The kernel module of soft-iWARP, which Debian's kernels leave out: built from the package of their source.

Called by iwarp.py. Needs the headers of the kernel that the guest boots, installed, for its build directory names
places. The source comes as kernel.py's packages do, and is unpacked in the same cache.
"""

from __future__ import annotations

import fcntl
import lzma
import re
import shutil
import tarfile
from pathlib import Path

from . import kernel

_INSIDE = "drivers/infiniband/sw/siw/"


def module(cache: Path = kernel.DEFAULT_CACHE) -> Path:
    """Path of siw.ko for the kernel of kernel.prepare(), made now unless the cache has it."""
    release = kernel.prepare(cache).release
    made = cache / f"siw-{release}.ko"
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            _make(made, release, cache)
    return made


def _make(made: Path, release: str, cache: Path) -> None:
    headers = Path("/usr/src") / f"linux-headers-{release}"
    if not (headers / "Module.symvers").exists():
        raise kernel.NotAvailableError(f"apt-get install --no-install-recommends linux-headers-{release}")
    version = re.match(r"\d+\.\d+", release)
    assert version is not None, release
    scratch = cache / "siw"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    kernel.run(["apt-get", "download", "-q", f"linux-source-{version[0]}"], scratch)
    with kernel.Package(next(scratch.glob("linux-source*.deb"))) as files:
        archive = next(m for m in files if re.search(r"/linux-source-[\d.]+\.tar\.xz$", m.name))
        inner = files.extractfile(archive)
        assert inner is not None, archive.name
        _unpack(inner, scratch)
    kernel.run(["make", "-C", str(headers), f"M={scratch}", "CONFIG_RDMA_SIW=m", "modules"])
    kernel.run(["strip", "--strip-debug", "-o", str(made), str(scratch / "siw.ko")])
    shutil.rmtree(scratch)


def _unpack(archive: object, to: Path) -> None:
    """The files of one directory, which lie beside each other: what comes behind them is not decompressed."""
    found = False
    with lzma.open(archive) as stream, tarfile.open(fileobj=stream, mode="r|") as files:  # type: ignore[call-overload]
        for member in files:
            if _INSIDE in member.name and member.isfile():
                found = True
                (to / Path(member.name).name).write_bytes(kernel.content(files, member))
            elif found and _INSIDE not in member.name:
                return
    raise kernel.NotAvailableError(f"the kernel's source has no {_INSIDE}")
