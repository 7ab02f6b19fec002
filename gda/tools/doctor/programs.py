# SPDX-License-Identifier: Apache-2.0
"""Probes of libraries and compilers: found and tried."""

from __future__ import annotations

from gda.errors import CompileError, GdaError
from gda.tools.doctor.line import Line, Probe, missing, not_applicable, ok, problem
from gda.tools.doctor.machine import Machine

__all__ = ["PROBES"]


def libibverbs(machine: Machine) -> Line:
    """The verbs library."""
    return _library(machine, 0, "What programs speak to RDMA devices with.", "apt-get install libibverbs1")


def libmlx5(machine: Machine) -> Line:
    """NVIDIA's part of it."""
    return _library(machine, 1, "Firmware commands (DEVX) go through it.", "apt-get install ibverbs-providers")


def _library(machine: Machine, which: int, meaning: str, advice: str) -> Line:
    try:
        versions = machine.verbs.libraries()
    except GdaError as error:
        return missing(error.message.splitlines()[0], meaning, error.advice or advice)
    return ok(versions[which], meaning, version=versions[which])


def software_nic(machine: Machine) -> Line:
    """The software ConnectX."""
    try:
        how = machine.programs.try_software_nic()
    except GdaError as error:
        return missing(error.message.splitlines()[0], "Everything of gda runs on it without a card.", error.advice)
    return ok(how, "Stands in for a card: everything of gda runs on it.", how=how)


def compiler(machine: Machine) -> Line:
    """The C++ compiler for kernels on the CPU."""
    try:
        version = machine.programs.try_compiler()
    except GdaError as error:
        return missing(
            error.message.splitlines()[0], "Kernels cannot run on the CPU.", error.advice or "apt-get install g++"
        )
    return ok(version, "Compiles the device library for the CPU (tried).", version=version)


def nvrtc(machine: Machine) -> Line:
    """The compiler for kernels on a GPU."""
    needed = bool(machine.gpus())
    try:
        major, minor = machine.programs.try_nvrtc()
    except CompileError as error:
        return problem(error.message.splitlines()[0], "Kernels for a GPU do not compile.", "install CUDA 12 or 13")
    except GdaError as error:
        line = missing(error.message.splitlines()[0], "Compiles kernels for a GPU.", error.advice)
        line.meaning += "" if needed else " Not needed without one."
        return line
    return ok(f"NVRTC {major}.{minor}", "Compiles the device library for a GPU (tried).", version=[major, minor])


def cupy(machine: Machine) -> Line:
    """What launches kernels on a GPU."""
    try:
        version = machine.programs.try_cupy()
    except GdaError as error:
        said = error.message.splitlines()[0]
        if not machine.gpus():
            return not_applicable(said, "Launches kernels on a GPU: not needed without one.", version="")
        return missing(said, "Kernels run on the CPU: it launches those on a GPU.", error.advice, version="")
    return ok(version, "Launches kernels on a GPU.", version=version)


PROBES = (
    Probe("libraries", "libibverbs", libibverbs),
    Probe("libraries", "libmlx5", libmlx5),
    Probe("libraries", "software NIC", software_nic),
    Probe("libraries", "C++ compiler", compiler),
    Probe("libraries", "GPU compiler", nvrtc),
    Probe("libraries", "CuPy", cupy),
)
