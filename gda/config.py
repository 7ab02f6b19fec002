# SPDX-License-Identifier: Apache-2.0
"""Every environment variable of the package, in one table, read when asked for. Nothing else reads os.environ.

An empty value means unset.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gda.errors import ArgumentError

__all__ = [
    "VARIABLES", "Variable", "cache_directory", "checked", "environment_of_rank", "environment_with_preload", "get",
    "keep_no_caches", "launcher",
]  # fmt: skip


@dataclass(frozen=True)
class Variable:
    """One environment variable: name, default, allowed values (empty: any), and what it does."""

    name: str
    default: str
    values: tuple[str, ...]
    meaning: str


VARIABLES = {
    v.name: v
    for v in (
        Variable("GDA_NIC", "auto", ("auto", "real", "software"), "which NIC gda.open() takes"),
        Variable("GDA_POSTING", "auto", ("auto", "direct", "proxy"), "who posts what kernels ask for (proxy.md)"),
        Variable("GDA_GID_INDEX", "", (), "GID index to connect with; default: the best one"),
        Variable("GDA_TARGET", "auto", ("auto", "host", "gpu"), "where gda.Kernel runs device code"),
        Variable("GDA_CACHE", "", (), "directory of compiled device code; default: ~/.cache/gda"),
        Variable("GDA_CXX", "", (), "C++ compiler for device code on the CPU; default: g++, c++ or clang++"),
        Variable("GDA_CXXFLAGS", "", (), "more flags for that compiler, for example -fsanitize=address"),
        Variable("GDA_BOOTSTRAP", "auto", ("auto", "torch", "mpi", "own"), "how ranks find each other (programs.md)"),
        Variable("GDA_RANK", "", (), "which rank of its program this process is, from 0 on"),
        Variable("GDA_SIZE", "", (), "how many ranks the program has"),
        Variable("GDA_RENDEZVOUS", "", (), "where they meet: an empty directory, or tcp://HOST:PORT of rank 0"),
        Variable("GDA_SIM_LIBRARY", "", (), "another build of the software NIC to load, for example a sanitized one"),
        Variable("GDA_SIM_DIRECTORY", "", (), "where NICs meet (mode 1777: all users); default: /dev/shm/gda-sim-UID"),
        Variable("GDA_SIM_NICS", "1", tuple("12345678"), "how many software NICs the process has: mlx5_0, mlx5_1, ..."),
        Variable("GDA_SIM_PORTS", "1", tuple("1234"), "how many ports each software NIC has"),
        Variable("GDA_SIM_MTU", "9000", (), "MTU in bytes of the link behind the software NIC; path MTU 1024 at 1500"),
        Variable("GDA_SIM_ADDRESS", "", (), "addresses of this host on which the software NIC reaches others by UDP"),
        Variable("GDA_SIM_ETHERNET", "", (), "LOCALPORT:REMOTEPORT of Ethernet frames in UDP, as QEMU carries them"),
        Variable("GDA_SIM_FAULTS", "", (), "faults of the network, such as drop=5%,seed=7 (simulator.md, Faults)"),
        Variable("GDA_SIM_CAPTURE", "", (), "pcapng file to which the software NIC appends every packet"),
        Variable("GDA_SIM_PROFILE", "", (), "file to which the software NIC writes at exit what was asked of it"),
        Variable("GDA_PROFILE", "", (), "file to which calls of libibverbs and kernels write at exit what they did"),
        Variable("GDA_TRACE", "", (), "directory where a process leaves a trace of itself and its software NICs"),
        Variable("GDA_TRACE_KERNELS", "auto", ("auto", "on", "off"), "which kernels are traced; auto: of a recording"),
        Variable("GDA_SIM_COMPLAINTS", "print", ("print", "silent", "strict"), "complaints at the end (checker.md)"),
        Variable("GDA_SIM_DEBUG", "", ("", "1"), "the software NIC prints each command and ioctl"),
    )
}


def get(name: str) -> str:
    """Value of a variable of the table, or its default.

    Raises ArgumentError for a value outside the allowed ones.
    """
    return checked(name, os.environ.get(name, "") or VARIABLES[name].default)


def checked(name: str, value: str) -> str:
    """The same value, if the variable takes it."""
    variable = VARIABLES[name]
    if variable.values and value not in variable.values:
        raise ArgumentError(
            f"environment variable {name}={value!r} is not one of {', '.join(filter(None, variable.values))}",
            f"unset it for the default ({variable.default or 'off'}); it sets {variable.meaning}",
        )
    return value


def cache_directory() -> Path:
    """Directory for compiled device code; not created here."""
    return Path(get("GDA_CACHE") or Path.home() / ".cache" / "gda")


def environment_with_preload(libraries: Iterable[str]) -> dict[str, str]:
    """Environment of a program that is to run with `libraries` in front of what LD_PRELOAD holds already."""
    environment = dict(os.environ)
    present = environment.get("LD_PRELOAD", "")
    environment["LD_PRELOAD"] = ":".join([*libraries, *([present] if present else [])])
    return environment


def environment_of_rank(rank: int, size: int, rendezvous: str) -> dict[str, str]:
    """Environment of a process that is to be this rank of a program."""
    return os.environ | {
        "GDA_BOOTSTRAP": "own", "GDA_RANK": str(rank), "GDA_SIZE": str(size), "GDA_RENDEZVOUS": rendezvous,
    }  # fmt: skip


def launcher() -> str:
    """Who started this process, by what it left in the environment: "torchrun", "mpirun", or "" for nobody known."""
    if {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} <= os.environ.keys():
        return "torchrun"
    # Open MPI's; that of MPICH, Intel MPI and Slurm's PMI; that of PMIx, which Slurm starts Open MPI by.
    return "mpirun" if {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"} & os.environ.keys() else ""


def keep_no_caches() -> None:
    """From now on compilers and CuPy leave nothing in this user's caches: for processes that only try things."""
    # CuPy makes its directory when it is loaded: one that is there already.
    os.environ.update({"CCACHE_DISABLE": "1", "CUPY_CACHE_DIR": "/", "CUPY_CACHE_IN_MEMORY": "1"})
