// SPDX-License-Identifier: Apache-2.0
// See mapping.h. Read from /proc/self/maps: touching the pages instead would allocate memory that a program reserved
// but may never use.
#include "sim/uverbs/mapping.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>

#include "sim/uverbs/context.h"
#include "sim/uverbs/real.h"
#include "sim/uverbs/uar.h"

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

// PROCMAP_QUERY of /proc/self/maps (Linux 6.11): which area holds an address, without printing all of them. Declared
// here, since the headers of older systems lack it. Source: <linux/fs.h>, "struct procmap_query".
struct AreaQuery {
    uint64_t size, flags, address;
    uint64_t first, last, area_flags, page_bytes, offset, inode;
    uint32_t device_major, device_minor, name_bytes, build_id_bytes;
    uint64_t name, build_id;
};
constexpr uint64_t area_readable = 1, area_writable = 2;
constexpr unsigned long query_area = _IOWR('f', 17, AreaQuery);

// False: this kernel cannot be asked.
bool ask_kernel(uint64_t address, uint64_t end, bool writable, bool* mapped) {
    const int maps = real::open("/proc/self/maps", O_RDONLY | O_CLOEXEC, 0);
    if (maps < 0) return false;
    int result = 0;
    while (address < end && result == 0) {
        AreaQuery area{};
        area.size = sizeof area;
        area.flags = area_readable | (writable ? area_writable : 0);
        area.address = address;
        result = real::ioctl(maps, query_area, &area);
        address = area.last;
    }
    const bool asked = result == 0 || errno == ENOENT;
    *mapped = result == 0;
    real::close(maps);
    return asked;
}

bool mapped(uint64_t address, uint64_t bytes, bool writable) {
    bool answer = false;
    if (ask_kernel(address, address + bytes, writable, &answer)) return answer;
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

bool is_doorbell_page(uint64_t address, uint64_t bytes) {
    FILE* maps = real::fopen("/proc/self/maps", "re");
    if (!maps) return false;
    bool found = false;
    char line[512];
    uint64_t first, last, offset, inode;
    unsigned device_major, device_minor;
    while (!found && fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %*s %" SCNx64 " %x:%x %" SCNu64, &first, &last, &offset,
                   &device_major, &device_minor, &inode) != 6)
            continue;
        found = first <= address && address < last && bytes <= last - address &&
                offset >= static_cast<uint64_t>(uar::first_page) << 12 &&
                files::is_device(makedev(device_major, device_minor), inode);
    }
    fclose(maps);
    return found;
}

int check_mapped(uint64_t address, uint64_t bytes, bool writable) {
    return mapped(address, bytes, writable) || belongs_to_gpu(address) ? 0 : EFAULT;
}

}  // namespace sim::uverbs
