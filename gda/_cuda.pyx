# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""libcuda for Python, opened at run time: what mapping queues and doorbells into a GPU needs, and no policy.

Functions and constants carry the driver API's names (CUDA Driver API, "Memory Management", "Unified Addressing",
"Context Management"). Builds without CUDA headers and imports without a driver: available() says whether it can be
used, and why not. `Context` is a device's primary context, the one that CuPy and torch use too; every call makes it
current for its own duration only, and lets no capture of a stream notice it: what is made here belongs to no graph, and
another thread may be capturing one ("Stream Management", cuThreadExchangeStreamCaptureMode). What a call allocates or
registers is an object with an idempotent close().

Called by gda/nic and gda/run. Addresses are plain integers. A failed call raises CudaError.
Copies run on a non-blocking stream of the context, never on the default stream, which waits for kernels that wait.
"""
cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint64_t, uintptr_t
from libc.stdio cimport snprintf
from libc.string cimport memset

from gda.errors import ArgumentError, ClosedError, CudaError, UnavailableError

cdef extern from "<dlfcn.h>" nogil:
    void *dlopen(const char *name, int flags)
    void *dlsym(void *library, const char *symbol)
    char *dlerror()
    int RTLD_NOW
    int RTLD_GLOBAL

CU_MEMHOSTREGISTER_PORTABLE = 0x01
CU_MEMHOSTREGISTER_DEVICEMAP = 0x02
CU_MEMHOSTREGISTER_IOMEMORY = 0x04
CU_MEMHOSTALLOC_PORTABLE = 0x01
CU_MEMHOSTALLOC_DEVICEMAP = 0x02
CU_MEMORYTYPE_HOST = 1
CU_MEMORYTYPE_DEVICE = 2
CU_POINTER_ATTRIBUTE_CONTEXT = 1
CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2
CU_POINTER_ATTRIBUTE_SYNC_MEMOPS = 6
CU_POINTER_ATTRIBUTE_IS_MANAGED = 8
CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9
CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16
CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75
CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76
CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED = 116
CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS = 117
CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING = 118
CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED = 124
CU_GPU_DIRECT_RDMA_WRITES_ORDERING_NONE = 0
CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER = 100
CU_GPU_DIRECT_RDMA_WRITES_ORDERING_ALL_DEVICES = 200
CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER = 100
CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES = 200
CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE = 1

ctypedef void *CUcontext
ctypedef void *CUstream
ctypedef uint64_t CUdeviceptr
cdef enum:
    CU_STREAM_NON_BLOCKING = 1
    CU_STREAM_CAPTURE_MODE_RELAXED = 2
    CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD = 1
    CU_FLUSH_TARGET_CURRENT_CTX = 0
    CUDA_ERROR_INVALID_VALUE = 1

ctypedef int (*t_init)(unsigned int) noexcept nogil
ctypedef int (*t_int_out)(int *) noexcept nogil
ctypedef int (*t_error_name)(int, const char **) noexcept nogil
ctypedef int (*t_device_get)(int *, int) noexcept nogil
ctypedef int (*t_device_name)(char *, int, int) noexcept nogil
ctypedef int (*t_device_attribute)(int *, int, int) noexcept nogil
ctypedef int (*t_primary_retain)(CUcontext *, int) noexcept nogil
ctypedef int (*t_primary_release)(int) noexcept nogil
ctypedef int (*t_context)(CUcontext) noexcept nogil
ctypedef int (*t_context_out)(CUcontext *) noexcept nogil
ctypedef int (*t_host_register)(void *, size_t, unsigned int) noexcept nogil
ctypedef int (*t_host)(void *) noexcept nogil
ctypedef int (*t_host_pointer)(CUdeviceptr *, void *, unsigned int) noexcept nogil
ctypedef int (*t_host_alloc)(void **, size_t, unsigned int) noexcept nogil
ctypedef int (*t_alloc)(CUdeviceptr *, size_t) noexcept nogil
ctypedef int (*t_free)(CUdeviceptr) noexcept nogil
ctypedef int (*t_copy_in)(CUdeviceptr, const void *, size_t, CUstream) noexcept nogil
ctypedef int (*t_copy_out)(void *, CUdeviceptr, size_t, CUstream) noexcept nogil
ctypedef int (*t_fill)(CUdeviceptr, unsigned char, size_t, CUstream) noexcept nogil
ctypedef int (*t_stream_create)(CUstream *, unsigned int) noexcept nogil
ctypedef int (*t_stream)(CUstream) noexcept nogil
ctypedef int (*t_pointer_get)(void *, int, CUdeviceptr) noexcept nogil
ctypedef int (*t_pointer_set)(const void *, int, CUdeviceptr) noexcept nogil
ctypedef int (*t_flush)(int, int) noexcept nogil
ctypedef int (*t_range_handle)(void *, CUdeviceptr, size_t, int, unsigned long long) noexcept nogil
ctypedef int (*t_range)(CUdeviceptr *, size_t *, CUdeviceptr) noexcept nogil

cdef void *library = NULL
cdef t_init p_init = NULL
cdef t_int_out p_version = NULL
cdef t_int_out p_count = NULL
cdef t_error_name p_error_name = NULL
cdef t_device_get p_device_get = NULL
cdef t_device_name p_device_name = NULL
cdef t_device_attribute p_device_attribute = NULL
cdef t_primary_retain p_primary_retain = NULL
cdef t_primary_release p_primary_release = NULL
cdef t_context p_push = NULL
cdef t_context_out p_pop = NULL
cdef t_host_register p_host_register = NULL
cdef t_host p_host_unregister = NULL
cdef t_host_pointer p_host_pointer = NULL
cdef t_host_alloc p_host_alloc = NULL
cdef t_host p_host_free = NULL
cdef t_alloc p_alloc = NULL
cdef t_free p_free = NULL
cdef t_copy_in p_copy_in = NULL
cdef t_copy_out p_copy_out = NULL
cdef t_fill p_fill = NULL
cdef t_stream_create p_stream_create = NULL
cdef t_stream p_stream_synchronize = NULL
cdef t_stream p_stream_destroy = NULL
cdef t_pointer_get p_pointer_get = NULL
cdef t_pointer_set p_pointer_set = NULL
cdef t_flush p_flush = NULL                # driver 11.3 and newer; NULL before
cdef t_range_handle p_range_handle = NULL  # driver 11.7 and newer; NULL before
cdef t_range p_range = NULL
cdef t_int_out p_exchange_mode = NULL

_ADVICE = {
    ("cuInit", 100): "no GPU is visible: check nvidia-smi and CUDA_VISIBLE_DEVICES",
    ("cuInit", 999): "the driver does not start: check nvidia-smi and dmesg",
    ("cuMemHostRegister", 1): "ordinary RAM cannot be registered as I/O memory, nor a device page without that flag",
    ("cuMemHostRegister", 712): "this range is registered already: unregister it first, or use its device pointer",
    ("cuMemHostRegister", 800): "mapping a NIC's page needs the driver option "
                                'NVreg_RegistryDwords="PeerMappingOverride=1;", or root',
    ("cuMemHostRegister", 801): "this system cannot register such memory for the GPU",
    ("cuMemAlloc", 2): "GPU memory is full: free arrays (CuPy: cupy.get_default_memory_pool().free_all_blocks())",
    ("cuMemGetHandleForAddressRange", 1): "address and length must be multiples of the host's page size",
    ("cuMemGetHandleForAddressRange", 801): "this GPU or driver cannot export dma-bufs (the open kernel module can): "
                                            "load nvidia-peermem instead",
    ("cuFlushGPUDirectRDMAWrites", 801): "this GPU needs no flush, or cannot flush from the CPU: "
                                         "read its attribute GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS",
}


cdef void *symbol(const char *name, const char *older) noexcept:
    cdef void *found = dlsym(library, name)
    return found if found != NULL or older == NULL else dlsym(library, older)


cdef str load():
    """Open the library and initialise the driver; the reason why it cannot be used, or ''."""
    global library, p_init, p_version, p_count, p_error_name, p_device_get, p_device_name, p_device_attribute
    global p_primary_retain, p_primary_release, p_push, p_pop, p_host_register, p_host_unregister, p_host_pointer
    global p_host_alloc, p_host_free, p_alloc, p_free, p_copy_in, p_copy_out, p_fill, p_stream_create
    global p_stream_synchronize, p_stream_destroy, p_pointer_get, p_pointer_set, p_flush, p_range_handle, p_range
    global p_exchange_mode
    cdef int rc
    if library == NULL:
        library = dlopen(b"libcuda.so.1", RTLD_NOW | RTLD_GLOBAL)
        if library == NULL:
            return f"no CUDA driver ({dlerror().decode(errors='replace')})"
        p_init = <t_init>symbol(b"cuInit", NULL)
        p_version = <t_int_out>symbol(b"cuDriverGetVersion", NULL)
        p_count = <t_int_out>symbol(b"cuDeviceGetCount", NULL)
        p_error_name = <t_error_name>symbol(b"cuGetErrorName", NULL)
        p_device_get = <t_device_get>symbol(b"cuDeviceGet", NULL)
        p_device_name = <t_device_name>symbol(b"cuDeviceGetName", NULL)
        p_device_attribute = <t_device_attribute>symbol(b"cuDeviceGetAttribute", NULL)
        p_primary_retain = <t_primary_retain>symbol(b"cuDevicePrimaryCtxRetain", NULL)
        p_primary_release = <t_primary_release>symbol(b"cuDevicePrimaryCtxRelease_v2", b"cuDevicePrimaryCtxRelease")
        p_push = <t_context>symbol(b"cuCtxPushCurrent_v2", NULL)
        p_pop = <t_context_out>symbol(b"cuCtxPopCurrent_v2", NULL)
        p_host_register = <t_host_register>symbol(b"cuMemHostRegister_v2", b"cuMemHostRegister")
        p_host_unregister = <t_host>symbol(b"cuMemHostUnregister", NULL)
        p_host_pointer = <t_host_pointer>symbol(b"cuMemHostGetDevicePointer_v2", NULL)
        p_host_alloc = <t_host_alloc>symbol(b"cuMemHostAlloc", NULL)
        p_host_free = <t_host>symbol(b"cuMemFreeHost", NULL)
        p_alloc = <t_alloc>symbol(b"cuMemAlloc_v2", NULL)
        p_free = <t_free>symbol(b"cuMemFree_v2", NULL)
        p_copy_in = <t_copy_in>symbol(b"cuMemcpyHtoDAsync_v2", NULL)
        p_copy_out = <t_copy_out>symbol(b"cuMemcpyDtoHAsync_v2", NULL)
        p_fill = <t_fill>symbol(b"cuMemsetD8Async", NULL)
        p_stream_create = <t_stream_create>symbol(b"cuStreamCreate", NULL)
        p_stream_synchronize = <t_stream>symbol(b"cuStreamSynchronize", NULL)
        p_stream_destroy = <t_stream>symbol(b"cuStreamDestroy_v2", NULL)
        p_pointer_get = <t_pointer_get>symbol(b"cuPointerGetAttribute", NULL)
        p_pointer_set = <t_pointer_set>symbol(b"cuPointerSetAttribute", NULL)
        p_flush = <t_flush>symbol(b"cuFlushGPUDirectRDMAWrites", NULL)
        p_range_handle = <t_range_handle>symbol(b"cuMemGetHandleForAddressRange", NULL)
        p_range = <t_range>symbol(b"cuMemGetAddressRange_v2", NULL)
        p_exchange_mode = <t_int_out>symbol(b"cuThreadExchangeStreamCaptureMode", NULL)
    if (p_init == NULL or p_count == NULL or p_primary_retain == NULL or p_push == NULL or p_pop == NULL
            or p_host_register == NULL or p_copy_in == NULL or p_fill == NULL or p_pointer_get == NULL):
        return "the CUDA driver is too old (11.0 is the oldest that is used here)"
    with nogil:
        rc = p_init(0)
    if rc:
        return f"cuInit failed: {error_name(rc)} ({rc})"
    return ""


cdef str error_name(int code):
    cdef const char *text = NULL
    if p_error_name != NULL and p_error_name(code, &text) == 0 and text != NULL:
        return (<bytes>text).decode()
    return f"CUresult {code}"


# What calls of this thread do to streams that are captured; the mode before.
cdef int exchange_mode(int mode) noexcept:
    if p_exchange_mode != NULL:
        p_exchange_mode(&mode)
    return mode


cdef object failure(str call, int code):
    return CudaError(call, code, error_name(code), _ADVICE.get((call.split("(", 1)[0], code), ""))


cdef int require() except -1:
    cdef str reason = load()
    if reason:
        raise UnavailableError(f"no usable GPU: {reason}", "run on the CPU (GDA_TARGET=host), or install the driver")
    return 0


def available():
    """(True, "") if there is a GPU and a driver; else (False, why not). Never raises; a failure is looked at anew."""
    cdef int count = 0
    cdef int rc
    cdef str reason = load()
    if reason:
        return False, reason
    rc = p_count(&count)
    if rc:
        return False, f"cuDeviceGetCount failed: {error_name(rc)} ({rc})"
    return (True, "") if count > 0 else (False, "the CUDA driver sees no GPU (check CUDA_VISIBLE_DEVICES)")


def cuDriverGetVersion():
    """The CUDA version of the driver, as 1000 * major + 10 * minor."""
    cdef int version = 0
    require()
    cdef int rc = p_version(&version)
    if rc:
        raise failure("cuDriverGetVersion()", rc)
    return version


def cuDeviceGetCount():
    """Number of GPUs this process may use."""
    cdef int count = 0
    require()
    cdef int rc = p_count(&count)
    if rc:
        raise failure("cuDeviceGetCount()", rc)
    return count


def cuDeviceGetName(int device):
    """Name of a GPU."""
    cdef char name[256]
    require()
    snprintf(name, sizeof(name), "")
    cdef int rc = p_device_name(name, sizeof(name), device)
    if rc:
        raise failure(f"cuDeviceGetName({device})", rc)
    return (<bytes>name).decode(errors="replace")


def cuDeviceGetAttribute(int attribute, int device):
    """One of CU_DEVICE_ATTRIBUTE_* of a GPU."""
    cdef int value = 0
    require()
    cdef int rc = p_device_attribute(&value, attribute, device)
    if rc:
        raise failure(f"cuDeviceGetAttribute({attribute}, {device})", rc)
    return value


def cuPointerGetAttribute(int attribute, uint64_t pointer):
    """One of CU_POINTER_ATTRIBUTE_* of an address, as an integer; None if the driver does not know the address."""
    cdef uint64_t value = 0
    require()
    cdef int rc = p_pointer_get(&value, attribute, pointer)
    if rc == CUDA_ERROR_INVALID_VALUE:
        return None
    if rc:
        raise failure(f"cuPointerGetAttribute({attribute}, 0x{pointer:x})", rc)
    return value if attribute == 1 else <int>value


@cython.no_gc
cdef class Context:
    """A device's primary context (cuDevicePrimaryCtxRetain) and one non-blocking stream for copies."""

    cdef object __weakref__
    cdef CUcontext pointer
    cdef CUstream stream
    cdef readonly int device

    def __init__(self, int device=0):
        cdef int rc
        require()
        self.device = device
        with nogil:
            rc = p_primary_retain(&self.pointer, device)
        if rc:
            self.pointer = NULL
            raise failure(f"cuDevicePrimaryCtxRetain({device})", rc)
        cdef int mode = self.enter()
        rc = p_stream_create(&self.stream, CU_STREAM_NON_BLOCKING)
        self.leave(mode)
        if rc:
            self.stream = NULL
            raise failure("cuStreamCreate(CU_STREAM_NON_BLOCKING)", rc)

    # Its answer is for leave(): the thread's mode towards captures, before.
    cdef int enter(self) except -1:
        if self.pointer == NULL:
            raise ClosedError(f"CUDA context of device {self.device} has been closed")
        cdef int rc = p_push(self.pointer)
        if rc:
            raise failure(f"cuCtxPushCurrent(device {self.device})", rc)
        return exchange_mode(CU_STREAM_CAPTURE_MODE_RELAXED)

    cdef void leave(self, int mode) noexcept:
        cdef CUcontext unused = NULL
        exchange_mode(mode)
        p_pop(&unused)

    @property
    def address(self):
        """The CUcontext, as CU_POINTER_ATTRIBUTE_CONTEXT gives it."""
        return <uintptr_t>self.pointer

    @property
    def closed(self):
        return self.pointer == NULL

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def close(self):
        """Destroy the stream and release the context; again is no error. Close what was made with it first."""
        if self.pointer == NULL:
            return
        cdef int mode
        if self.stream != NULL and p_push(self.pointer) == 0:
            mode = exchange_mode(CU_STREAM_CAPTURE_MODE_RELAXED)
            p_stream_destroy(self.stream)
            self.leave(mode)
        self.stream = NULL
        self.pointer = NULL
        with nogil:
            p_primary_release(self.device)

    def __dealloc__(self):
        # The driver frees the stream with the context; at interpreter exit it may be shut down already.
        if self.pointer != NULL:
            p_primary_release(self.device)


def cuMemHostRegister(Context context not None, uintptr_t address, size_t bytes, unsigned int flags):
    """Pin host memory (or with IOMEMORY a device's page) and map it for the GPU. The caller keeps it mapped."""
    cdef int rc
    cdef CUdeviceptr mapped = 0
    call = f"cuMemHostRegister(0x{address:x}, {bytes}, flags=0x{flags:x})"
    cdef int mode = context.enter()
    with nogil:
        rc = p_host_register(<void *>address, bytes, flags)
    if rc == 0:
        rc = p_host_pointer(&mapped, <void *>address, 0)
        if rc:
            p_host_unregister(<void *>address)
            call = f"cuMemHostGetDevicePointer(0x{address:x})"
    context.leave(mode)
    if rc:
        raise failure(call, rc)
    cdef HostRegistration registration = HostRegistration.__new__(HostRegistration)
    registration.context = context
    registration.host = address
    registration.bytes = bytes
    registration.device_pointer = mapped
    return registration


@cython.no_gc
cdef class HostRegistration:
    """Registered host memory: `address` for the CPU, `device_pointer` for the GPU."""

    cdef object __weakref__
    cdef readonly Context context
    cdef uintptr_t host
    cdef readonly size_t bytes
    cdef readonly uint64_t device_pointer

    def __init__(self):
        raise TypeError("HostRegistration objects come from cuMemHostRegister")

    @property
    def address(self):
        return self.host

    @property
    def closed(self):
        return self.host == 0

    def close(self):
        """cuMemHostUnregister."""
        cdef int rc
        cdef uintptr_t host = self.host
        if host == 0:
            return
        self.host = 0
        cdef int mode = self.context.enter()
        with nogil:
            rc = p_host_unregister(<void *>host)
        self.context.leave(mode)
        if rc:
            raise failure(f"cuMemHostUnregister(0x{host:x})", rc)

    def __dealloc__(self):
        cdef int mode
        if self.host != 0 and self.context.pointer != NULL and p_push(self.context.pointer) == 0:
            mode = exchange_mode(CU_STREAM_CAPTURE_MODE_RELAXED)
            p_host_unregister(<void *>self.host)
            self.context.leave(mode)


def cuMemHostAlloc(Context context not None, size_t bytes, unsigned int flags):
    """Allocate pinned host memory."""
    cdef int rc
    cdef void *host = NULL
    cdef CUdeviceptr mapped = 0
    cdef int mode = context.enter()
    with nogil:
        rc = p_host_alloc(&host, bytes, flags)
        if rc == 0 and flags & 2:
            p_host_pointer(&mapped, host, 0)
    context.leave(mode)
    if rc:
        raise failure(f"cuMemHostAlloc({bytes}, flags=0x{flags:x})", rc)
    cdef Allocation allocation = Allocation.__new__(Allocation)
    allocation.context = context
    allocation.start = <uint64_t>host
    allocation.bytes = bytes
    allocation.device_pointer = mapped
    allocation.is_host = True
    return allocation


def cuMemAlloc(Context context not None, size_t bytes):
    """Allocate GPU memory. Waits for running kernels on some drivers: not while one waits for the NIC."""
    cdef int rc
    cdef CUdeviceptr start = 0
    cdef int mode = context.enter()
    with nogil:
        rc = p_alloc(&start, bytes)
    context.leave(mode)
    if rc:
        raise failure(f"cuMemAlloc({bytes})", rc)
    cdef Allocation allocation = Allocation.__new__(Allocation)
    allocation.context = context
    allocation.start = start
    allocation.bytes = bytes
    allocation.device_pointer = start
    allocation.is_host = False
    return allocation


@cython.no_gc
cdef class Allocation:
    """Memory from cuMemAlloc or cuMemHostAlloc. Freeing waits for all kernels: not while one waits for the NIC."""

    cdef object __weakref__
    cdef readonly Context context
    cdef uint64_t start
    cdef readonly size_t bytes
    cdef readonly uint64_t device_pointer
    cdef readonly bint is_host

    def __init__(self):
        raise TypeError("Allocation objects come from cuMemAlloc and cuMemHostAlloc")

    @property
    def address(self):
        return self.start

    @property
    def closed(self):
        return self.start == 0

    def close(self):
        """cuMemFree or cuMemFreeHost."""
        cdef int rc
        cdef uint64_t start = self.start
        if start == 0:
            return
        self.start = 0
        cdef int mode = self.context.enter()
        with nogil:
            rc = p_host_free(<void *>start) if self.is_host else p_free(start)
        self.context.leave(mode)
        if rc:
            raise failure(f"cuMemFree{'Host' if self.is_host else ''}(0x{start:x})", rc)

    def __dealloc__(self):
        cdef int mode
        if self.start != 0 and self.context.pointer != NULL and p_push(self.context.pointer) == 0:
            mode = exchange_mode(CU_STREAM_CAPTURE_MODE_RELAXED)
            if self.is_host:
                p_host_free(<void *>self.start)
            else:
                p_free(self.start)
            self.context.leave(mode)


def cuMemcpyHtoD(Context context not None, uint64_t destination, bytes data not None):
    """Copy bytes to GPU memory on the context's own stream, and wait for that stream only."""
    cdef const char *source = PyBytes_AS_STRING(data)
    cdef size_t count = len(data)
    cdef int rc
    cdef int mode = context.enter()
    with nogil:
        rc = p_copy_in(destination, source, count, context.stream)
        if rc == 0:
            rc = p_stream_synchronize(context.stream)
    context.leave(mode)
    if rc:
        raise failure(f"cuMemcpyHtoD(0x{destination:x}, {count} bytes)", rc)


def cuMemcpyDtoH(Context context not None, uint64_t source, size_t count):
    """Copy `count` bytes out of GPU memory on the context's own stream, and wait for that stream only."""
    cdef bytes data = PyBytes_FromStringAndSize(NULL, count)
    cdef char *destination = PyBytes_AS_STRING(data)
    cdef int rc
    memset(destination, 0, count)
    cdef int mode = context.enter()
    with nogil:
        rc = p_copy_out(destination, source, count, context.stream)
        if rc == 0:
            rc = p_stream_synchronize(context.stream)
    context.leave(mode)
    if rc:
        raise failure(f"cuMemcpyDtoH(0x{source:x}, {count} bytes)", rc)
    return data


def cuMemsetD8(Context context not None, uint64_t destination, unsigned char value, size_t count):
    """Fill GPU memory on the context's own stream, and wait for that stream only."""
    cdef int rc
    cdef int mode = context.enter()
    with nogil:
        rc = p_fill(destination, value, count, context.stream)
        if rc == 0:
            rc = p_stream_synchronize(context.stream)
    context.leave(mode)
    if rc:
        raise failure(f"cuMemsetD8(0x{destination:x}, 0x{value:02x}, {count})", rc)


def cuPointerSetSyncMemops(Context context not None, uint64_t pointer):
    """Set CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, which GPUDirect RDMA asks for on every allocation that a NIC reaches."""
    cdef unsigned int on = 1
    cdef int mode = context.enter()
    cdef int rc = p_pointer_set(&on, 6, pointer)
    context.leave(mode)
    if rc:
        raise failure(f"cuPointerSetAttribute(SYNC_MEMOPS, 0x{pointer:x})", rc)


def cuMemGetAddressRange(Context context not None, uint64_t pointer):
    """(base, bytes) of the allocation that holds a GPU address."""
    cdef CUdeviceptr base = 0
    cdef size_t size = 0
    cdef int mode = context.enter()
    cdef int rc = p_range(&base, &size, pointer)
    context.leave(mode)
    if rc:
        raise failure(f"cuMemGetAddressRange(0x{pointer:x})", rc)
    return base, size


def cuMemGetHandleForAddressRange(Context context not None, uint64_t pointer, size_t bytes,
                                  unsigned long long flags=0):
    """Export a range of GPU memory as a dma-buf; its descriptor, which the caller closes.

    Pointer and length must be multiples of the host's page size (ArgumentError before the driver is asked).
    """
    import mmap
    page = mmap.PAGESIZE
    if pointer % page or bytes % page or bytes == 0:
        raise ArgumentError(f"a dma-buf of 0x{pointer:x}, {bytes} bytes is not made of whole pages of {page} bytes",
                            "round the start down and the end up, and carry the offset within the first page")
    if p_range_handle == NULL:
        raise UnavailableError("the CUDA driver has no dma-buf export (11.7 and newer have)", "load nvidia-peermem")
    cdef int fd = -1
    cdef int rc
    cdef int mode = context.enter()
    with nogil:
        rc = p_range_handle(&fd, pointer, bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, flags)
    context.leave(mode)
    if rc:
        raise failure(f"cuMemGetHandleForAddressRange(0x{pointer:x}, {bytes}, DMA_BUF_FD, flags=0x{flags:x})", rc)
    return fd


def cuFlushGPUDirectRDMAWrites(Context context not None, int scope):
    """Wait until earlier RDMA writes into the context's GPU are visible to it (CU_FLUSH_..._TO_OWNER or _ALL)."""
    if p_flush == NULL:
        raise UnavailableError("the CUDA driver has no cuFlushGPUDirectRDMAWrites (11.3 and newer have)")
    cdef int rc
    cdef int mode = context.enter()
    with nogil:
        rc = p_flush(CU_FLUSH_TARGET_CURRENT_CTX, scope)
    context.leave(mode)
    if rc:
        raise failure(f"cuFlushGPUDirectRDMAWrites({scope})", rc)
