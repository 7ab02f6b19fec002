# SPDX-License-Identifier: Apache-2.0
"""Doorbell pages (UAR): allocated for queues and mapped once each for the GPU.

Used by queue.py. A page has a send doorbell register at 0x800 and one for queues without a record at 0x600
(formats/doorbell.h, uar_offset). A real NIC's page is device memory and is registered for the GPU as I/O memory; the
software NIC's page is ordinary memory, which that flag refuses, and is registered whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gda import _cuda, _verbs, formats
from gda.errors import CudaError, UnavailableError, VerbsError
from gda.locks import Lock
from gda.nic.gpu import Gpu
from gda.nic.lifetime import Resources

__all__ = ["DoorbellPage", "DoorbellPages"]

# In order of wish: a page of its own for each queue without BlueFlame, one with, the context's shared one.
_TYPES = (
    ("NC_DEDICATED", _verbs.MLX5DV_UAR_ALLOC_TYPE_NC_DEDICATED),
    ("BF", _verbs.MLX5DV_UAR_ALLOC_TYPE_BF),
    ("NC", _verbs.MLX5DV_UAR_ALLOC_TYPE_NC),
)
# What a mode can use: a register for queues without record exists once a page, the shared page has no room for it.
_FIT = {"no-record": ("NC_DEDICATED", "BF"), "blueflame": ("BF",)}
_CPU = "cpu"  # a host thread rings: the GPU need not reach the page


@dataclass
class DoorbellPage:
    """One allocated page: `type` says which kind, `register` is where its queue rings (CPU), `gpu_register` (GPU)."""

    uar: _verbs.Uar
    type: str
    owner: DoorbellPages = field(repr=False)
    offset: int = 0  # of the register in the page
    gpu_page: int = 0

    @property
    def register(self) -> int:
        """Address of the register for the CPU."""
        return self.uar.base_addr + self.offset

    @property
    def gpu_register(self) -> int:
        """Address of the register for kernels on the GPU; 0 when they cannot reach it."""
        return self.gpu_page + self.offset if self.gpu_page else 0

    @property
    def registers(self) -> tuple[int, int]:
        """Both."""
        return self.register, self.gpu_register

    @property
    def page_id(self) -> int:
        """The number by which commands name the page."""
        return self.uar.page_id

    def close(self) -> None:
        """Give it back to the NIC's pages."""
        self.owner.release(self)


class DoorbellPages:
    """The doorbell pages of one open NIC.

    libmlx5 may hand out one page several times, with different registers for queues that have a record; the register
    for queues without one exists once a page, so each of those gets a page where no other uses it. Pages that are
    mapped for a GPU stay mapped until the NIC is closed and serve one queue after the other: unmapping waits for
    running kernels, and one of them may wait for the NIC.
    """

    def __init__(self, context: _verbs.Context, is_software: bool, gpu: Gpu | None, resources: Resources) -> None:
        self._context = context
        self._is_software = is_software
        self._gpu = gpu
        self._lock = Lock()
        self._mapped: dict[int, _cuda.HostRegistration] = {}  # by address: several queues may share a page
        self._free: list[DoorbellPage] = []
        self._recordless: set[int] = set()  # ids of pages whose register for queues without record is taken
        self._resources = resources

    def allocate(self, mode: str) -> DoorbellPage:
        """A page for one queue pair, which its kernels ring in this mode (doorbell_modes.MODES)."""
        recordless = mode == "no-record"
        with self._lock:
            passed_over: list[DoorbellPage] = []
            try:
                while True:
                    page = self._take(mode)
                    if not recordless:
                        page.offset = page.uar.reg_addr - page.uar.base_addr
                        return page
                    if page.page_id not in self._recordless:
                        self._recordless.add(page.page_id)
                        page.offset = int(formats.UAR_RECORDLESS_DOORBELL)
                        return page
                    passed_over.append(page)
            finally:
                for page in passed_over:
                    self._give(page)

    def _take(self, mode: str) -> DoorbellPage:
        fitting = {name: flag for name, flag in _TYPES if name in _FIT.get(mode, dict(_TYPES))}
        for page in self._free:
            if page.type in fitting and not (mode == "no-record" and page.page_id in self._recordless):
                self._free.remove(page)
                return page
        refusals = []
        for name, flag in fitting.items():
            try:
                uar = _verbs.mlx5dv_devx_alloc_uar(self._context, flag)
            except VerbsError as error:
                refusals.append(error.message)
                continue
            page = DoorbellPage(uar, name, self)
            try:
                return page if mode == _CPU else self._map(page)
            except CudaError as error:
                uar.close()
                raise UnavailableError(
                    f"the driver does not let the GPU write doorbell pages: {error.message}",
                    'doorbell="cpu" needs no such mapping; for users other than root the NVIDIA driver wants '
                    'NVreg_RegistryDwords="PeerMappingOverride=1;"',
                ) from error
            except BaseException:
                uar.close()
                raise
        raise UnavailableError(
            f"no doorbell page for a queue pair: {'; '.join(refusals)}",
            "close queue pairs that are not needed; those with doorbell record can share a page",
        )

    def shared(self) -> _verbs.Uar:
        """The context's shared page, for completion queues: never rung, never mapped to the GPU."""
        return _verbs.mlx5dv_devx_alloc_uar(self._context, _verbs.MLX5DV_UAR_ALLOC_TYPE_NC)

    def _map(self, page: DoorbellPage) -> DoorbellPage:
        if self._gpu is None:
            return page
        start = page.uar.base_addr
        if start not in self._mapped:
            flags = _cuda.CU_MEMHOSTREGISTER_PORTABLE | _cuda.CU_MEMHOSTREGISTER_DEVICEMAP
            flags |= 0 if self._is_software else _cuda.CU_MEMHOSTREGISTER_IOMEMORY
            registration = _cuda.cuMemHostRegister(self._gpu.context, start, int(formats.UAR_PAGE_BYTES), flags)
            self._mapped[start] = registration
            self._resources.callback(page.uar.close)
            self._resources.callback(registration.close)
        else:
            self._resources.callback(page.uar.close)
        page.gpu_page = self._mapped[start].device_pointer
        return page

    def _give(self, page: DoorbellPage) -> None:
        if not page.gpu_page:
            page.uar.close()
        else:
            self._free.append(page)

    def release(self, page: DoorbellPage) -> None:
        """Take a page back from its queue pair."""
        with self._lock:
            if page.offset == int(formats.UAR_RECORDLESS_DOORBELL):
                self._recordless.discard(page.page_id)
            self._give(page)
