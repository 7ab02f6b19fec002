# SPDX-License-Identifier: Apache-2.0
"""What must hold where there is a GPU: memory, placement, handles, doorbell pages. No kernel runs here.

test_gpu_placement.py runs these on a real GPU, test_host_driver.py on a driver made of host memory.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading

import numpy as np
import pytest
from by_hand import completion, post, write_request

from gda import _cuda, _verbs, formats
from gda.errors import ArgumentError, CudaError, UnavailableError, VerbsError
from gda.nic import placement
from gda.nic.placement import HostSlab

PLACEMENTS = ["host", "gpu", {"sq": "gpu"}, {"cq": "gpu"}, {"records": "gpu"}]


@pytest.fixture(autouse=True)
def on_the_gpu(monkeypatch):
    monkeypatch.setenv("GDA_TARGET", "gpu")


@pytest.fixture
def gpu(nic):
    assert nic.gpu is not None
    return nic.gpu


def test_the_gpu_is_there(gpu):
    assert _cuda.available() == (True, "")
    assert gpu.name and _cuda.cuDeviceGetCount() >= 1 and _cuda.cuDriverGetVersion() >= 11000
    assert gpu.writes_ordering in (0, 100, 200)
    with pytest.raises(CudaError, match="cuDevicePrimaryCtxRetain"):
        _cuda.Context(100)


def test_allocated_gpu_memory(nic, gpu):
    memory = nic.allocate(10_000, "gpu")
    assert memory.is_gpu and memory.bytes == 10_000 and memory.address % mmap.PAGESIZE == 0
    assert memory.read(0, 10_000) == bytes(10_000), "zeroed"
    memory.write(9_990, b"0123456789")
    assert memory.read(9_989, 11) == b"\x000123456789"
    interface = memory.__cuda_array_interface__
    assert interface["data"] == (memory.address, False) and interface["shape"] == (10_000,)
    with pytest.raises(ArgumentError, match="lies on the GPU"):
        memory.array
    mr = formats.layouts["gda_mr"].unpack(memory.__gda_argument__("gpu")[1])
    assert mr["flags"] == formats.GDA_MR_GPU and mr["addr"] == memory.address
    assert _cuda.cuPointerGetAttribute(_cuda.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory.address) == 2
    base, size = _cuda.cuMemGetAddressRange(gpu.context, memory.address)
    assert base <= memory.address and memory.address + 10_000 <= base + size


def test_closed_memory_serves_again_and_is_zeroed(nic):
    memory = nic.allocate(5000, "gpu")
    memory.write(0, b"secret")
    address = memory.address
    memory.close()
    again = nic.allocate(8000, "gpu")
    assert again.address == address and again.read(0, 8000) == bytes(8000)


def test_pinned_host_memory_serves_again_unless_an_array_shows_it(nic):
    memory = nic.allocate(5000)
    memory.write(0, b"secret")
    address, size = memory.address, memory.bytes
    memory.close()
    again = nic.allocate(size)
    assert again.address == address and again.read(0, size) == bytes(size)
    array = again.array
    array[:] = 7
    again.close()
    other = nic.allocate(size)
    assert other.address != address
    other.write(0, b"\xff" * size)
    assert (array == 7).all()
    large = nic.allocate(5 << 20)  # not from the pool
    large.write(0, b"x")
    large.close()


def test_a_gpu_array_of_somebody_else(nic, gpu):
    block = _cuda.cuMemAlloc(gpu.context, 4096)

    class Array:
        __cuda_array_interface__ = {
            "shape": (32, 32), "typestr": "<f4", "data": (block.address, False), "strides": None, "version": 3
        }  # fmt: skip

    memory = nic.register(Array())
    assert (memory.address, memory.bytes, memory.is_gpu) == (block.address, 4096, True)
    assert (memory.shape, memory.strides) == ((32, 32), (128, 4))
    memory.write(0, bytes(range(100)))
    assert _cuda.cuMemcpyDtoH(gpu.context, block.address, 100) == bytes(range(100))
    memory.close()
    block.close()
    block.close()
    assert block.closed


def test_two_gpu_arrays_in_one_allocation_have_one_region(nic, gpu):
    block = _cuda.cuMemAlloc(gpu.context, 1 << 16)

    class Array:
        def __init__(self, at, bytes):
            self.__cuda_array_interface__ = {
                "shape": (bytes,), "typestr": "|u1", "data": (block.address + at, False), "version": 3
            }  # fmt: skip

    a, b = nic.register(Array(0, 4096), shared=True), nic.register(Array(8192, 100), shared=True)
    assert a.raw is b.raw and (a.users, b.users) == (2, 2)
    assert (b.address, b.bytes, b.is_gpu) == (block.address + 8192, 100, True)
    plain = nic.register(Array(8192, 100))
    assert plain.raw is not b.raw
    a.close()
    source, (queue, _) = nic.allocate(64), nic.loopback_pair()
    source.write(0, bytes(range(64)))
    post(queue, 0, write_request(queue, 0, source, b, 64))
    assert completion(queue, 0)["opcode"] == formats.MLX5_CQE_REQ
    assert b.read(0, 64) == bytes(range(64)) and b.users == 1
    for memory in (b, plain):
        memory.close()
    block.close()


def test_address_without_memory_is_refused(nic, software):
    class Lie:
        __cuda_array_interface__ = {"shape": (4096,), "typestr": "|u1", "data": (0x1000, False), "version": 3}

    before = software.objects()
    with pytest.raises((CudaError, UnavailableError, VerbsError)):
        nic.register(Lie())
    assert software.objects() == before


@pytest.mark.parametrize("source_in", ["host", "gpu"])
@pytest.mark.parametrize("target_in", ["host", "gpu"])
@pytest.mark.parametrize("bytes", [8, 4097, 1 << 20])
def test_payload_anywhere(nic, source_in, target_in, bytes):
    source, target = nic.allocate(bytes, source_in), nic.allocate(bytes + 8, target_in)
    data = np.random.default_rng(bytes).integers(0, 256, bytes, dtype=np.uint8).tobytes()
    source.write(0, data)
    a, _ = nic.loopback_pair(depth=16)
    post(a, 0, write_request(a, 0, source, target, bytes))
    assert completion(a, 0)["opcode"] == formats.MLX5_CQE_REQ
    assert target.read(0, bytes + 8) == data + b"\0" * 8


@pytest.mark.parametrize("where", PLACEMENTS, ids=str)
@pytest.mark.parametrize("kind", ["collapsed", "ring"])
@pytest.mark.parametrize("record", [True, False])
def test_queues_anywhere(nic, where, kind, record):
    source, target = nic.allocate(1024), nic.allocate(1024)
    source.write(0, bytes(range(256)) * 4)
    a, _ = nic.loopback_pair(depth=8, placement=where, completion=kind, record=record)
    parts = a.where()
    for part, key in (("sq", "sq"), ("cq", "cq"), ("records", "cq_record")):
        wanted = where if isinstance(where, str) else where.get(part, "host")
        assert parts[key][0] == wanted
    for index in range(20):
        at = {"addr": source.address + 8 * index, "raddr": target.address + 8 * index}
        post(a, index, write_request(a, index, source, target, 8, **at))
        assert completion(a, index)["opcode"] == formats.MLX5_CQE_REQ
    assert target.read(0, 160) == source.read(0, 160)
    a.reset()
    assert a.read_wqe(0) == a.read_cqe(0) == b"\xff" * 64


def test_handle_lies_where_the_kernel_runs(nic):
    a, _ = nic.loopback_pair()
    name, value = a.__gda_argument__("gpu")
    kind, address, size = a.where()["handle"]
    assert (name, kind, size) == ("gda_qp*", "gpu", 960) and int.from_bytes(value, "little") == address
    a._handle.update(reserved=5, done=3)
    handle = a.read_handle()
    assert (handle["reserved"], handle["done"], handle["qpn"]) == (5, 3, a.qpn)
    # The addresses in it are the GPU's.
    parts = {key: a._rings.address(key, "gpu") for key in ("sq", "cq", "records")}
    assert (handle["sq"], handle["cq"]["ring"], handle["record"]) == (parts["sq"], parts["cq"], parts["records"] + 4)
    assert handle["doorbell"] == a._carrier.page.gpu_register != 0


def test_handle_moves_with_its_counters(nic):
    a, _ = nic.loopback_pair()
    a._handle.update(reserved=5, done=3)
    at_gpu = int.from_bytes(a.__gda_argument__("gpu")[1], "little")
    at_host = int.from_bytes(a.__gda_argument__("host")[1], "little")
    assert a.where()["handle"][:2] == ("host", at_host) and at_host != at_gpu
    handle = a.read_handle()
    assert (handle["reserved"], handle["done"]) == (5, 3)
    assert (handle["sq"], handle["doorbell"]) == (a.where()["sq"][1], a.where()["doorbell"][1])
    assert a.__gda_argument__("gpu") and a.read_handle()["reserved"] == 5 and a.where()["handle"][0] == "gpu"


def test_handle_placed_by_name_stays(nic):
    a, b = nic.queue_pair(placement={"handle": "host"}), nic.queue_pair(placement={"handle": "gpu"})
    a.connect(b.info)
    b.connect(a.info)
    a.__gda_argument__("gpu")
    assert a.where()["handle"][0] == "host" and a.read_handle()["sq"] == a._rings.address("sq", "gpu")
    a.__gda_argument__("host")
    assert a.read_handle()["sq"] == a.where()["sq"][1]
    b.__gda_argument__("gpu")
    with pytest.raises(ArgumentError, match="handle lies in GPU memory"):
        b.__gda_argument__("host")


@pytest.mark.parametrize("part", ["sq", "cq", "records"])
def test_code_on_the_cpu_cannot_use_parts_on_the_gpu(nic, part):
    a, _ = nic.loopback_pair(placement={part: "gpu"})
    assert a.__gda_argument__("gpu")
    with pytest.raises(ArgumentError, match=f"the queue pair's {part} lies in GPU memory"):
        a.__gda_argument__("host")


def test_pages_are_mapped_once_and_serve_again(nic):
    first = nic.queue_pair()
    page = first._carrier.page.uar.base_addr
    others = [nic.queue_pair() for _ in range(3)]
    first.close()
    again = nic.queue_pair()
    assert again._carrier.page.uar.base_addr == page and again._carrier.page.gpu_register
    for queue in (again, *others):
        queue.close()


def test_host_memory_is_pinned_and_mapped(gpu):
    slab = HostSlab(5000, gpu)
    assert slab.gpu_address
    with pytest.raises(CudaError, match=r"ALREADY_REGISTERED \(712\)(.|\n)*registered already"):
        _cuda.cuMemHostRegister(gpu.context, slab.address, 4096, 3)
    slab.close()
    with _cuda.Context(0) as context:
        assert context.device == 0 and context.address


def test_ram_is_no_device_page(gpu):
    pages = mmap.mmap(-1, 4096)
    address = np.frombuffer(pages, np.uint8).__array_interface__["data"][0]
    flags = _cuda.CU_MEMHOSTREGISTER_DEVICEMAP | _cuda.CU_MEMHOSTREGISTER_IOMEMORY
    with pytest.raises(CudaError, match="ordinary RAM cannot be registered as I/O memory"):
        _cuda.cuMemHostRegister(gpu.context, address, 4096, flags)


def test_pinned_allocations(gpu):
    pinned = _cuda.cuMemHostAlloc(gpu.context, 8192, 3)
    assert pinned.is_host and pinned.device_pointer and pinned.bytes == 8192
    pinned.close()
    with pytest.raises(CudaError, match=r"cuMemAlloc\(1125899906842624\) failed: CUDA_ERROR_OUT_OF_MEMORY"):
        _cuda.cuMemAlloc(gpu.context, 1 << 50)


def test_dma_buf_export_wants_whole_pages(nic, gpu):
    memory = nic.allocate(1 << 16, "gpu")
    for at, bytes in ((8, 4096), (0, 100), (0, 0)):
        with pytest.raises(ArgumentError, match="not made of whole pages of 4096 bytes"):
            _cuda.cuMemGetHandleForAddressRange(gpu.context, memory.address + at, bytes)
    try:
        descriptor = _cuda.cuMemGetHandleForAddressRange(gpu.context, memory.address, 1 << 16)
    except CudaError as error:
        assert "dma-buf" in error.advice or error.code in (1, 801)
    else:
        os.close(descriptor)


def test_flush(gpu):
    try:
        _cuda.cuFlushGPUDirectRDMAWrites(gpu.context, _cuda.CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER)
    except CudaError as error:
        assert error.code == 801 and "flush" in error.advice


def test_unknown_addresses_have_no_attributes(gpu):
    assert _cuda.cuPointerGetAttribute(_cuda.CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 0x1234) is None
    with pytest.raises(CudaError, match="cuMemGetAddressRange"):
        _cuda.cuMemGetAddressRange(gpu.context, 0x1234)


def test_memset_and_copies(nic, gpu):
    memory = nic.allocate(4096, "gpu")
    _cuda.cuMemsetD8(gpu.context, memory.address, 0x5A, 100)
    assert _cuda.cuMemcpyDtoH(gpu.context, memory.address, 101) == b"\x5a" * 100 + b"\0"
    with pytest.raises(CudaError, match=r"cuMemcpyDtoH\(0x1234, 8 bytes\)"):
        _cuda.cuMemcpyDtoH(gpu.context, 0x1234, 8)


def test_default_placement_of_a_real_card_is_the_gpu(nic):
    """A real card reaches GPU memory by itself; the software NIC copies, so its queues stay in host memory."""
    assert nic.queue_pair().where()["sq"][0] == "host"
    assert placement.choose(None, "gpu", nic.gpu, "")["sq"] == "gpu"


def refuse(call, calls):
    def wrapper(*arguments, **named):
        calls.append((arguments, named))
        raise VerbsError(f"{call}()", 95)

    return wrapper


def can_export(gpu, memory) -> bool:
    try:
        os.close(_cuda.cuMemGetHandleForAddressRange(gpu.context, memory.address, memory.bytes))
    except (CudaError, UnavailableError):
        return False
    return True


def test_a_real_card_gets_dma_bufs_first_then_addresses(nic, gpu, monkeypatch):
    """The order of a real card, seen on the software one: the dma-buf call is refused here, the address works."""
    block = nic.allocate(1 << 16, "gpu")
    exports = can_export(gpu, block)
    monkeypatch.setattr(nic, "is_software", False)
    regions, umems = [], []
    monkeypatch.setattr(_verbs, "ibv_reg_dmabuf_mr", refuse("ibv_reg_dmabuf_mr", regions))
    monkeypatch.setattr(_verbs, "mlx5dv_devx_umem_reg_ex", refuse("mlx5dv_devx_umem_reg_ex", umems))

    class Tensor:
        """Not at the start of a page."""

        __cuda_array_interface__ = {
            "shape": (0x8000,), "typestr": "|u1", "data": (block.address + 0x1200, False), "strides": None, "version": 3
        }  # fmt: skip

    tensor = nic.register(Tensor())
    assert tensor.address == block.address + 0x1200 and tensor.rkey
    queue = nic.queue_pair(placement="gpu")
    assert queue.state == "RST"
    if exports:
        (_, offset, length, iova, _, _), _ = regions[0]
        assert (offset, length, iova) == (0x200, 0x8000, tensor.address)
        assert umems[0][1]["comp_mask"] == _verbs.MLX5DV_UMEM_MASK_DMABUF and umems[0][0][1] == 0
    queue.close()
    tensor.close()


def test_both_ways_refused_names_both(nic, monkeypatch):
    block = nic.allocate(4096, "gpu")
    monkeypatch.setattr(nic, "is_software", False)
    for name in ("ibv_reg_dmabuf_mr", "mlx5dv_devx_umem_reg_ex", "ibv_reg_mr", "mlx5dv_devx_umem_reg"):
        monkeypatch.setattr(_verbs, name, refuse(name, []))
    with pytest.raises(UnavailableError, match=r"by dma-buf: .* by address: ibv_reg_mr\(\)(.|\n)*nvidia-peermem"):
        nic.register(block)
    with pytest.raises(UnavailableError, match=r"by dma-buf: .* by address: mlx5dv_devx_umem_reg\(\)"):
        nic.queue_pair(placement="gpu")


class Holder:
    pass


def test_a_handle_that_a_graph_uses_stays(nic, gpu):
    a, b = nic.loopback_pair()
    address = a.__gda_argument__("gpu")[1]
    holder = Holder()
    a.__gda_stay__(holder)
    assert a.__gda_argument__("gpu")[1] == address
    with pytest.raises(ArgumentError, match="for kernels on the gpu, where one that was captured into a graph uses it"):
        a.__gda_argument__("host")
    a.close()
    at = int.from_bytes(address, "little")
    assert _cuda.cuMemcpyDtoH(gpu.context, at, 64) == bytes(64), "a replay finds no queue there"
    other, _ = nic.loopback_pair()
    assert other.__gda_argument__("gpu")[1] != address, "nor another one"
    b.__gda_argument__("gpu")
    b.__gda_stay__(Holder())  # gone at once
    b.__gda_argument__("host")


@pytest.fixture
def capture(gpu):
    """A stream of this thread is being captured, in the mode that is strict with all threads; how it ended."""
    driver = ctypes.CDLL("libcuda.so.1")
    stream, graph, unused = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    assert driver.cuCtxPushCurrent_v2(ctypes.c_void_p(gpu.context.address)) == 0
    assert driver.cuStreamCreate(ctypes.byref(stream), 1) == 0
    assert driver.cuStreamBeginCapture_v2(stream, 0) == 0

    ends = []

    def end() -> int:
        ends.append(driver.cuStreamEndCapture(stream, ctypes.byref(graph)))
        return ends[0]

    try:
        yield end
    finally:
        if ends or end() == 0:
            driver.cuGraphDestroy(graph)
        driver.cuStreamDestroy_v2(stream)
        driver.cuCtxPopCurrent_v2(ctypes.byref(unused))


def test_another_thread_makes_all_while_a_graph_is_captured(nic, gpu, capture):
    """New pieces of both pools, registered arrays, queue pairs anywhere, copies, and the end of all."""
    errors = []

    def work():
        try:
            with nic.allocate(3 << 20, "gpu") as memory, nic.allocate(3 << 20) as other:
                memory.write(0, b"there")
                assert memory.read(0, 5) == b"there" and other.bytes == 3 << 20
                pages = placement.anonymous_pages(4096)
                gpu.pin(ctypes.addressof(pages), 4096).close()
                with nic.register(np.zeros(10_000, np.uint8)):
                    for where in PLACEMENTS:
                        nic.loopback_pair(placement=where)[0].close()
            mode = ctypes.c_int(0)
            assert ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode(ctypes.byref(mode)) == 0
            assert mode.value == 0, "calls of this thread would still be let pass"
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)
    assert not thread.is_alive() and not errors, errors
    assert capture() == 0, "the capture was spoiled"
