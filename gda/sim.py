# SPDX-License-Identifier: Apache-2.0
"""Runs any program on the software ConnectX, and steers the one of this process.

Called by `python -m gda sim run -- PROGRAM` and by tests. The program is not changed: the preload library puts the
software NIC behind its libibverbs and libmlx5 (sim/uverbs/preload.cc).
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from gda import attach, config
from gda.complaint import Complaint
from gda.errors import ArgumentError, CheckError, GdaError, UnavailableError

__all__ = [
    "capture",
    "current",
    "environment_of",
    "faults",
    "preload_libraries",
    "program_of",
    "report",
    "run",
    "strict",
    "virtual_time",
]

_SANITIZER = re.compile(rb"\x00(lib[at]san\.so\.[0-9]+)\x00")


def current() -> attach.SoftwareNic:
    """Return the software NIC of this process, attached if it was not yet.

    Raises UnavailableError when its library is not built or it cannot attach here.
    """
    return attach.software_nic()


def report() -> list[Complaint]:
    """What programs did wrong with the NICs of this process, oldest first; empty without a software NIC.

    docs/checker.md lists the kinds.
    """
    nic = attach.loaded()
    return nic.report() if nic is not None else []


@contextmanager
def strict() -> Iterator[attach.SoftwareNic]:
    """Make an exception of every complaint inside the `with`; gives the NIC.

    The next call of gda after a complaint raises CheckError with all of them, at the latest the end of the block. Of
    an error of gda it is the cause that is told: CheckError is raised from it.
    """
    nic = current()
    with attach.strictly(nic) as watch:
        try:
            yield nic
        except CheckError:
            raise
        except GdaError as error:
            if complaints := watch.new():
                raise CheckError(tuple(complaints)) from error
            raise
        if complaints := watch.new():
            raise CheckError(tuple(complaints))


@contextmanager
def virtual_time() -> Iterator[attach.SoftwareNic]:
    """Let the NICs of this process live in virtual time inside the `with`, from one second on; gives the NIC.

    Time stands while anything can move and then jumps to the next timer (attach.SoftwareNic.set_virtual_time). The
    deadlines of device code stay in real time.
    """
    nic = current()
    nic.set_virtual_time(True)
    try:
        yield nic
    finally:
        nic.set_virtual_time(False)


@contextmanager
def faults(text: str) -> Iterator[attach.SoftwareNic]:
    """Let these faults of the network befall what this process's NIC sends inside the `with`; gives the NIC.

    For example "drop=5%,reorder=2%:3,seed=7; drop answer psn=7 first=1": docs/simulator.md, "Faults".
    Raises ArgumentError naming the word that is not understood.
    """
    nic = current()
    nic.set_faults(text)
    try:
        yield nic
    finally:
        nic.set_faults("")


@contextmanager
def capture(path: str | os.PathLike[str]) -> Iterator[attach.SoftwareNic]:
    """Write every packet of this process's NIC inside the `with` to a new pcapng file; gives the NIC.

    Raises ArgumentError when the file cannot be written.
    """
    nic = current()
    _remove_old(path)
    nic.set_capture(path)
    try:
        yield nic
    finally:
        nic.set_capture("")


def _remove_old(path: str | os.PathLike[str]) -> None:
    """Remove the capture of an earlier run: the NIC itself only appends, since several may share a file."""
    try:
        Path(path).unlink(missing_ok=True)
    except OSError as error:
        raise ArgumentError(f"the capture {os.fspath(path)!r} cannot be written: {error}") from error


def preload_libraries() -> list[str]:
    """Return what LD_PRELOAD must hold, in order: a sanitizer's runtime if the NIC was built with one, then the NIC.

    GDA_SIM_LIBRARY names another build of the NIC; its preload library must lie beside it.
    Raises UnavailableError when a library is missing.
    """
    built = Path(__file__).resolve().parent / "lib" / "libgda_sim.so"
    library = Path(config.get("GDA_SIM_LIBRARY") or built).absolute()
    preload = library.with_name("libgda_preload.so")
    for path in (library, preload):
        if not path.exists():
            raise UnavailableError(
                f"the software NIC's library {path} does not exist",
                "build it: python setup.py build_ext --inplace (or make demo); GDA_SIM_LIBRARY names another build",
            )
    runtimes = sorted({name.decode() for name in _SANITIZER.findall(library.read_bytes())})
    return [*runtimes, str(preload)]


def run(
    argv: Sequence[str],
    *,
    nics: int | None = None,
    ports: int | None = None,
    address: str | None = None,
    faults: str | None = None,
    capture: str | None = None,
) -> int:
    """Replace this process by a program that runs on the software NIC; `argv` is [--] PROGRAM [ARGUMENT ...].

    `nics` is how many it sees (default: GDA_SIM_NICS, else one), `ports` how many ports each has (GDA_SIM_PORTS, else
    one); port 1 of the first has these addresses of the host. Faults befall what each NIC of it sends; a capture holds
    what all of them send and receive.
    Returns only by an exception: ArgumentError without a program, UnavailableError when the program or the library
    is missing.
    """
    command = program_of(argv, "sim run")
    environment = environment_of(nics=nics, ports=ports, address=address, faults=faults, capture=capture)
    os.execve(command[0], command, environment)


def program_of(argv: Sequence[str], name: str) -> list[str]:
    """Path and arguments of [--] PROGRAM [ARGUMENT ...], for the command of this name."""
    command = list(argv[1:] if argv[:1] == ["--"] else argv)
    if not command:
        raise ArgumentError(f"{name} needs a program", f"python -m gda {name} -- ibv_devinfo -v")
    program = shutil.which(command[0])
    if program is None:
        raise UnavailableError(
            f"the program {command[0]!r} is not on the PATH or not executable",
            "ibv_devinfo and ibv_rc_pingpong are in the Debian package ibverbs-utils, ib_write_bw in perftest",
        )
    return [program, *command[1:]]


def environment_of(
    *,
    nics: int | None = None,
    ports: int | None = None,
    address: str | None = None,
    faults: str | None = None,
    capture: str | None = None,
) -> dict[str, str]:
    """Environment of a program that runs on the software NIC; the arguments are those of `run`."""
    environment = config.environment_with_preload(preload_libraries())
    if nics is not None:
        environment["GDA_SIM_NICS"] = config.checked("GDA_SIM_NICS", str(nics))
    if ports is not None:
        environment["GDA_SIM_PORTS"] = config.checked("GDA_SIM_PORTS", str(ports))
    if address is not None:
        environment["GDA_SIM_ADDRESS"] = address
    if faults is not None:
        attach.check_faults(faults)
        environment["GDA_SIM_FAULTS"] = faults
    if capture is not None:
        _remove_old(capture)
        environment["GDA_SIM_CAPTURE"] = str(Path(capture).absolute())
    return environment
