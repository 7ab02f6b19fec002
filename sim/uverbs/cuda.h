// SPDX-License-Identifier: Apache-2.0
// The two calls of the CUDA driver by which a program brings this NIC and a GPU together. Programs under the preload
// library get these instead of the driver's own:
// - cuMemHostRegister with the flag "I/O memory" maps a doorbell page for kernels. The driver refuses it for a page of
//   this NIC, which is ordinary memory: such a page is registered without the flag, and the GPU's stores reach it.
// - cuMemGetHandleForAddressRange exports GPU memory as a dma-buf, which the CPU cannot map. It is remembered which
//   addresses a buffer stands for (dmabuf.h), and regions and umems over it are reached by those.
// Programs do not call the driver by name. The CUDA runtime, also where it is part of a program, opens libcuda.so.1,
// asks dlsym for cuGetProcAddress and that for all the rest; so the answers of both are what is changed.
// Source: CUDA Driver API, "Memory Management", "Driver Entry Point Access".
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "sim/uverbs/interpose.h"

namespace sim::uverbs::cuda {

// Any address in the preload library, which exports functions of these names: a lookup that finds one of them has not
// found the driver's. Set when that library is loaded.
SIM_EXPORT extern const void* front;

// dlsym() for a name that is ours to answer: what it finds, replaced. Other names are for the C library's own dlsym,
// which must be jumped to: it looks at its return address to know who asks.
SIM_EXPORT bool concerns(const char* name);
SIM_EXPORT void* look_up(void* handle, const char* name);

// As in <cuda.h>. Results are CUresults.
SIM_EXPORT int host_register(void* address, size_t bytes, unsigned flags);
SIM_EXPORT int export_range(void* out, unsigned long long address, size_t bytes, int type, unsigned long long flags);
SIM_EXPORT int find_function(const char* name, void** function, int version, uint64_t flags);
SIM_EXPORT int find_function_v2(const char* name, void** function, int version, uint64_t flags, int* status);

}  // namespace sim::uverbs::cuda
