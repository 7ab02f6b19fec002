// SPDX-License-Identifier: Apache-2.0
// See mapping.h. Read from /proc/self/maps: touching the pages instead would allocate memory that a program reserved
// but may never use.
#include "sim/uverbs/mapping.h"

#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "sim/uverbs/real.h"

namespace sim::uverbs {
namespace {

// CUDA's device memory is no memory of the CPU's. Only a driver that the program has loaded itself is asked.
bool belongs_to_gpu(uint64_t address) {
    void* cuda = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (!cuda) return false;
    constexpr int attribute_memory_type = 2, memory_type_device = 2;  // CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    using GetAttribute = int (*)(void* data, int attribute, unsigned long long pointer);
    auto get_attribute = reinterpret_cast<GetAttribute>(dlsym(cuda, "cuPointerGetAttribute"));
    unsigned type = 0;
    const bool answered = get_attribute && get_attribute(&type, attribute_memory_type, address) == 0;
    dlclose(cuda);
    return answered && type == memory_type_device;
}

bool mapped(uint64_t address, uint64_t bytes, bool writable) {
    FILE* maps = real::fopen("/proc/self/maps", "re");
    if (!maps) return true;  // cannot be known: the NIC's own accesses are guarded
    const uint64_t end = address + bytes;
    char line[512];
    uint64_t first, last;
    char rights[8];
    while (address < end && fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s", &first, &last, rights) != 3 || last <= address) continue;
        if (first > address || rights[0] != 'r' || (writable && rights[1] != 'w')) break;
        address = last;
    }
    fclose(maps);
    return address >= end;
}

}  // namespace

int check_mapped(uint64_t address, uint64_t bytes, bool writable) {
    return mapped(address, bytes, writable) || belongs_to_gpu(address) ? 0 : EFAULT;
}

}  // namespace sim::uverbs
