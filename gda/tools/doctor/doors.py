# SPDX-License-Identifier: Apache-2.0
"""The doors to what is no file: libibverbs and libmlx5, libcuda, and programs. Used by the probes; tests play others.

What is tried is undone at once. Everything may raise GdaError. Libraries are loaded only by those who go through.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gda.config import keep_no_caches
from gda.errors import UnavailableError, VerbsError

if TYPE_CHECKING:
    from gda import _verbs

__all__ = ["UAR_KINDS", "CudaDoor", "ProgramDoor", "VerbsDoor"]

UAR_KINDS = ("NC_DEDICATED", "BF", "NC")
_SOURCE = "#include <gda/gda.h>\nGDA_KERNEL(probe)(gda_qp* qp, gda_status* status) { *status = 0; }\n"


class VerbsDoor:
    """libibverbs and libmlx5 of this machine."""

    def libraries(self) -> tuple[str, str]:
        """Versions of libibverbs and libmlx5: what follows .so. in the names of their files."""
        verbs, mlx5 = self._module().library_paths()
        return tuple(Path(p).resolve().name.partition(".so.")[2] for p in (verbs, mlx5))  # type: ignore[return-value]

    def is_software(self) -> bool:
        """Whether the software NIC stands behind them in this process."""
        from gda import attach

        return attach.loaded() is not None

    def devices(self) -> list[tuple[str, bool]]:
        """(name, whether libmlx5 drives it) of each device that libibverbs lists."""
        try:
            return [(d.name, bool(d.mlx5)) for d in self._module().ibv_get_device_list()]
        except VerbsError:  # a kernel without InfiniBand
            return []

    def proxied(self) -> list[str]:
        """Names of those that are not mlx5, and that kernels reach by the proxy."""
        from gda.nic.device import can_be_proxied

        try:
            return [d.name for d in self._module().ibv_get_device_list() if not d.mlx5 and can_be_proxied(d)]
        except VerbsError:
            return []

    def iwarp(self) -> list[str]:
        """Names of those whose queue pairs the connection manager connects."""
        from gda.nic.device import is_iwarp

        try:
            return [d.name for d in self._module().ibv_get_device_list() if is_iwarp(d)]
        except VerbsError:
            return []

    def try_connector(self, name: str) -> str:
        """Where such a device can be connected to: an IP address."""
        from gda.nic.connector import Connector

        connector = Connector(name)
        try:
            return connector.words
        finally:
            connector.close()

    def device(self, name: str) -> dict[str, Any]:
        """Attributes of a device."""
        verbs = self._module()
        with verbs.ibv_open_device(name) as context:
            return dict(verbs.ibv_query_device(context))

    def port(self, name: str, port: int) -> dict[str, Any]:
        """Attributes of a port."""
        verbs = self._module()
        with verbs.ibv_open_device(name) as context:
            return dict(verbs.ibv_query_port(context, port))

    def gids(self, name: str, port: int) -> list[tuple[int, bytes, str]]:
        """(index, GID, type) of each entry of a port's table."""
        verbs = self._module()
        with verbs.ibv_open_device(name) as context:
            ports = int(verbs.ibv_query_device(context)["phys_port_cnt"])
            size = int(verbs.ibv_query_port(context, port)["gid_tbl_len"])
            entries = verbs.ibv_query_gid_table(context, ports * size)
        types = {verbs.IBV_GID_TYPE_ROCE_V1: "RoCE v1", verbs.IBV_GID_TYPE_ROCE_V2: "RoCE v2"}
        return [(e.gid_index, e.gid, types.get(e.gid_type, "IB")) for e in entries if e.port_num == port]

    def pkeys(self, name: str, port: int) -> list[int]:
        """P_Keys of a port that are set, by index (0 where none)."""
        verbs = self._module()
        with verbs.ibv_open_device(name) as context:
            count = min(int(verbs.ibv_query_port(context, port)["pkey_tbl_len"]), 128)
            return [int(verbs.ibv_query_pkey(context, port, i)) for i in range(count)]

    def try_devx(self, name: str) -> dict[str, Any]:
        """Open the device with DEVX and ask its firmware for its capabilities."""
        verbs = self._module()
        from gda.nic import Capabilities

        with verbs.mlx5dv_open_device(name, verbs.MLX5DV_CONTEXT_FLAGS_DEVX) as context:
            capabilities = Capabilities.query(context)
        return {k: v for group in capabilities.groups.values() for k, v in group.items() if isinstance(v, int)}

    def try_uar(self, name: str) -> dict[str, str]:
        """Allocate a doorbell page of each kind and free it: "" where it works, else what was answered."""
        verbs = self._module()
        result = {}
        with verbs.mlx5dv_open_device(name, verbs.MLX5DV_CONTEXT_FLAGS_DEVX) as context:
            for kind in UAR_KINDS:
                try:
                    self._uar(verbs, context, kind).close()
                    result[kind] = ""
                except VerbsError as error:
                    result[kind] = error.message
        return result

    def try_doorbell_modes(self, name: str) -> list[tuple[str, str]]:
        """(mode, why not) of each way in which kernels can tell the NIC; "" where one is available."""
        self._module()
        from gda.nic import Nic

        with Nic(name) as nic:
            return [(mode.name, mode.reason) for mode in nic.doorbell_modes()]

    def try_uar_on_gpu(self, name: str, gpu: int) -> str:
        """Map a doorbell page for a GPU as I/O memory and undo it; which kind it was."""
        verbs = self._module()
        from gda import _cuda, formats

        flags = _cuda.CU_MEMHOSTREGISTER_PORTABLE | _cuda.CU_MEMHOSTREGISTER_DEVICEMAP
        flags |= 0 if self.is_software() else _cuda.CU_MEMHOSTREGISTER_IOMEMORY
        cuda = _cuda.Context(gpu)
        with verbs.mlx5dv_open_device(name, verbs.MLX5DV_CONTEXT_FLAGS_DEVX) as context:
            for kind in UAR_KINDS:
                try:
                    uar = self._uar(verbs, context, kind)
                except VerbsError:
                    continue
                try:
                    page = _cuda.cuMemHostRegister(cuda, uar.base_addr, int(formats.UAR_PAGE_BYTES), flags)
                    page.close()
                    return kind
                finally:
                    uar.close()
        raise UnavailableError("no doorbell page could be allocated")

    def try_gpu_memory(self, name: str, gpu: int, by: str) -> None:
        """Register a piece of GPU memory `by` "dma-buf" or "address" and undo it."""
        verbs = self._module()
        from gda import _cuda

        access = verbs.IBV_ACCESS_LOCAL_WRITE | verbs.IBV_ACCESS_REMOTE_WRITE
        bytes = 2 << 20
        cuda = _cuda.Context(gpu)
        memory = _cuda.cuMemAlloc(cuda, bytes)
        try:
            with verbs.ibv_open_device(name) as context, verbs.ibv_alloc_pd(context) as pd:
                if by == "address":
                    verbs.ibv_reg_mr(pd, memory.address, bytes, access).close()
                    return
                fd = _cuda.cuMemGetHandleForAddressRange(cuda, memory.address, bytes)
                try:
                    verbs.ibv_reg_dmabuf_mr(pd, 0, bytes, memory.address, fd, access).close()
                finally:
                    os.close(fd)
        finally:
            memory.close()

    def _module(self) -> Any:
        from gda import nic  # says what to install where libraries are missing

        return nic._verbs

    def _uar(self, verbs: Any, context: _verbs.Context, kind: str) -> _verbs.Uar:
        uar: _verbs.Uar = verbs.mlx5dv_devx_alloc_uar(context, getattr(verbs, f"MLX5DV_UAR_ALLOC_TYPE_{kind}"))
        return uar


class CudaDoor:
    """libcuda of this machine."""

    def available(self) -> tuple[bool, str]:
        """Whether there is a driver with a GPU, and if not, why."""
        from gda import _cuda

        return _cuda.available()

    def version(self) -> tuple[int, int]:
        """The CUDA version that the driver carries."""
        from gda import _cuda

        number = _cuda.cuDriverGetVersion()  # 1000 * major + 10 * minor
        return number // 1000, number % 1000 // 10

    def count(self) -> int:
        """How many GPUs this process may use."""
        from gda import _cuda

        return _cuda.cuDeviceGetCount()

    def name(self, gpu: int) -> str:
        """What the GPU is called."""
        from gda import _cuda

        return _cuda.cuDeviceGetName(gpu)

    def attribute(self, name: str, gpu: int) -> int:
        """CU_DEVICE_ATTRIBUTE_{name}."""
        from gda import _cuda

        return _cuda.cuDeviceGetAttribute(getattr(_cuda, f"CU_DEVICE_ATTRIBUTE_{name}"), gpu)

    def try_dmabuf(self, gpu: int) -> None:
        """Export a piece of GPU memory as a dma-buf, and undo it."""
        from gda import _cuda

        bytes = 2 << 20
        context = _cuda.Context(gpu)
        memory = _cuda.cuMemAlloc(context, bytes)
        try:
            os.close(_cuda.cuMemGetHandleForAddressRange(context, memory.address, bytes))
        finally:
            memory.close()


class ProgramDoor:
    """Compilers and the software NIC. They compile from a pipe to nothing: no file is written."""

    def try_compiler(self) -> str:
        """Let the C++ compiler read the device library; what it calls itself."""
        from gda.run.compile import include_directory
        from gda.run.host import find_compiler

        keep_no_caches()  # in this probe's process
        compiler = find_compiler()
        command = [compiler.path, "-std=c++17", "-fsyntax-only", f"-I{include_directory()}", "-x", "c++", "-"]
        done = subprocess.run(command, input="#include <gda/gda.h>\n", capture_output=True, text=True, check=False)
        if done.returncode:
            first = next(iter(done.stderr.splitlines()), "no reason")
            raise UnavailableError(f"{compiler.version} does not compile the device library: {first}")
        return compiler.version

    def try_nvrtc(self) -> tuple[int, int]:
        """Compile a kernel for a GPU; the version of NVRTC."""
        from gda.run.compile import compile_for_gpu, nvrtc_version

        compile_for_gpu(_SOURCE, names=["probe"])
        return nvrtc_version()

    def try_cupy(self) -> str:
        """Load CuPy; its version."""
        keep_no_caches()
        try:
            import cupy
        except Exception as error:  # a broken CUDA installation raises all kinds
            first = next(iter(str(error).splitlines()), "no reason")
            raise UnavailableError(f"CuPy cannot be imported: {first}", "pip install cupy-cuda13x") from error
        return str(cupy.__version__)

    def try_software_nic(self) -> str:
        """Load the software NIC's library and let it read a sentence; how it came in.

        It is not attached: that makes a directory where NICs meet.
        """
        from gda import attach

        attach.check_faults("drop=1%")
        return "preloaded" if attach.loaded() is not None else "loads"

    def has(self, program: str) -> bool:
        """Whether a program is on the PATH."""
        return shutil.which(program) is not None
