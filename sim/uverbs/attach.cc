// SPDX-License-Identifier: Apache-2.0
// See attach.h. Each call of a shared library to another goes through a slot in its global offset table; the slot is
// found by name in the relocations of the loaded library. The tables of these libraries are read-only after start-up
// (full RELRO), hence mprotect.
// Source: System V ABI, AMD64 and AArch64 supplements, "Relocation Types"; dl_iterate_phdr(3).
#include "sim/uverbs/attach.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <mutex>

#include "sim/uverbs/interpose.h"
#include "sim/uverbs/nic.h"

namespace sim::uverbs::attach {
namespace {

// Relocations that hold the address of a function. The numbers of the two machines do not overlap.
bool names_function(uint64_t type) {
    switch (type) {
        case R_X86_64_64:
        case R_X86_64_GLOB_DAT:
        case R_X86_64_JUMP_SLOT:
        case R_AARCH64_ABS64:
        case R_AARCH64_GLOB_DAT:
        case R_AARCH64_JUMP_SLOT:
            return true;
        default:
            return false;
    }
}

const char* const verbs_library = "libibverbs.so";
const char* const provider_library = "libmlx5";  // libmlx5.so.1, or the link libmlx5-rdmavNN.so to it
const char* const netlink_library = "libnl-3.so";

// The variadic forms arrive with their third argument in the same register as here.
int open_for(const char* path, int flags, mode_t mode) { return hook::open(path, flags, mode); }
int open_2(const char* path, int flags) { return hook::open(path, flags, 0); }
int xstat(int, const char* path, struct stat* out) { return hook::stat(path, out); }
int lxstat(int, const char* path, struct stat* out) { return hook::lstat(path, out); }
int fxstat(int, int fd, struct stat* out) { return hook::fstat(fd, out); }
char* realpath_chk(const char* path, char* resolved, size_t) { return hook::realpath(path, resolved); }
ssize_t readlink_chk(const char* path, char* out, size_t bytes, size_t) { return hook::readlink(path, out, bytes); }

ssize_t read_chk(int fd, void* data, size_t bytes, size_t) { return hook::read(fd, data, bytes); }

struct Replacement {
    const char* name;
    void* hook;
};
#define SIM_ADDRESS(FUNCTION) reinterpret_cast<void*>(FUNCTION)
const Replacement replacements[] = {
    {"open", SIM_ADDRESS(open_for)},
    {"open64", SIM_ADDRESS(open_for)},
    {"__open_2", SIM_ADDRESS(open_2)},
    {"__open64_2", SIM_ADDRESS(open_2)},
    {"openat", SIM_ADDRESS(hook::openat)},
    {"openat64", SIM_ADDRESS(hook::openat)},
    {"opendir", SIM_ADDRESS(hook::opendir)},
    {"fopen", SIM_ADDRESS(hook::fopen)},
    {"fopen64", SIM_ADDRESS(hook::fopen)},
    {"stat", SIM_ADDRESS(hook::stat)},
    {"stat64", SIM_ADDRESS(hook::stat)},
    {"lstat", SIM_ADDRESS(hook::lstat)},
    {"lstat64", SIM_ADDRESS(hook::lstat)},
    {"fstat", SIM_ADDRESS(hook::fstat)},
    {"fstat64", SIM_ADDRESS(hook::fstat)},
    {"fstatat", SIM_ADDRESS(hook::fstatat)},
    {"fstatat64", SIM_ADDRESS(hook::fstatat)},
    {"__xstat", SIM_ADDRESS(xstat)},
    {"__xstat64", SIM_ADDRESS(xstat)},
    {"__lxstat", SIM_ADDRESS(lxstat)},
    {"__fxstat", SIM_ADDRESS(fxstat)},
    {"__fxstat64", SIM_ADDRESS(fxstat)},
    {"access", SIM_ADDRESS(hook::access)},
    {"realpath", SIM_ADDRESS(hook::realpath)},
    {"__realpath_chk", SIM_ADDRESS(realpath_chk)},
    {"readlink", SIM_ADDRESS(hook::readlink)},
    {"__readlink_chk", SIM_ADDRESS(readlink_chk)},
    {"ioctl", SIM_ADDRESS(hook::ioctl)},
    {"read", SIM_ADDRESS(hook::read)},
    {"__read_chk", SIM_ADDRESS(read_chk)},
    {"write", SIM_ADDRESS(hook::write)},
    {"close", SIM_ADDRESS(hook::close)},
    {"mmap", SIM_ADDRESS(hook::mmap)},
    {"mmap64", SIM_ADDRESS(hook::mmap)},
    {"socket", SIM_ADDRESS(hook::socket)},
};

struct Result {
    bool verbs = false, provider = false;  // seen
    int slots = 0;                         // written now or before
    int error = 0;
};

void* hook_for(const char* name) {
    for (const Replacement& replacement : replacements)
        if (!strcmp(replacement.name, name)) return replacement.hook;
    return nullptr;
}

int write_slot(void** slot, void* value) {
    if (__atomic_load_n(slot, __ATOMIC_RELAXED) == value) return 0;
    const auto page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    auto* page = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(slot) & ~(page_bytes - 1));
    // Left writable: the page may hold slots of lazily bound calls, and what it was before is not told anywhere.
    if (mprotect(page, page_bytes, PROT_READ | PROT_WRITE) != 0) return errno;
    __atomic_store_n(slot, value, __ATOMIC_RELEASE);  // other threads may be calling through it
    return 0;
}

// The parts of a dynamic section that name calls.
struct Dynamic {
    const ElfW(Sym) * symbols = nullptr;
    const char* names = nullptr;
    const ElfW(Rela) * tables[2] = {};
    size_t bytes[2] = {};
};

Dynamic read_dynamic(const dl_phdr_info* info) {
    Dynamic found;
    const ElfW(Dyn)* entry = nullptr;
    for (int i = 0; i < info->dlpi_phnum; ++i)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            entry = reinterpret_cast<const ElfW(Dyn)*>(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    // glibc has turned the pointers here into addresses.
    for (; entry && entry->d_tag != DT_NULL; ++entry) {
        switch (entry->d_tag) {
            case DT_SYMTAB:
                found.symbols = reinterpret_cast<const ElfW(Sym)*>(entry->d_un.d_ptr);
                break;
            case DT_STRTAB:
                found.names = reinterpret_cast<const char*>(entry->d_un.d_ptr);
                break;
            case DT_JMPREL:
                found.tables[0] = reinterpret_cast<const ElfW(Rela)*>(entry->d_un.d_ptr);
                break;
            case DT_PLTRELSZ:
                found.bytes[0] = entry->d_un.d_val;
                break;
            case DT_RELA:
                found.tables[1] = reinterpret_cast<const ElfW(Rela)*>(entry->d_un.d_ptr);
                break;
            case DT_RELASZ:
                found.bytes[1] = entry->d_un.d_val;
                break;
            default:
                break;
        }
    }
    return found;
}

void patch(const dl_phdr_info* info, Result* result) {
    const Dynamic dynamic = read_dynamic(info);
    if (!dynamic.symbols || !dynamic.names) return;
    for (int table = 0; table < 2; ++table) {
        const ElfW(Rela)* relocation = dynamic.tables[table];
        for (size_t i = 0; relocation && i < dynamic.bytes[table] / sizeof *relocation; ++i) {
            if (!names_function(ELF64_R_TYPE(relocation[i].r_info))) continue;
            const auto& symbol = dynamic.symbols[ELF64_R_SYM(relocation[i].r_info)];
            if (symbol.st_shndx != SHN_UNDEF) continue;
            void* hook = hook_for(dynamic.names + symbol.st_name);
            if (!hook) continue;
            auto** slot = reinterpret_cast<void**>(info->dlpi_addr + relocation[i].r_offset);
            if (int error = write_slot(slot, hook))
                result->error = error;
            else
                ++result->slots;
        }
    }
}

int visit(dl_phdr_info* info, size_t, void* argument) {
    auto* result = static_cast<Result*>(argument);
    const char* name = info->dlpi_name ? info->dlpi_name : "";
    const char* slash = strrchr(name, '/');
    const char* file = slash ? slash + 1 : name;
    const auto is = [file](const char* library) { return strncmp(file, library, strlen(library)) == 0; };
    if (!is(verbs_library) && !is(provider_library) && !is(netlink_library)) return 0;
    patch(info, result);
    result->verbs = result->verbs || is(verbs_library);
    result->provider = result->provider || is(provider_library);
    return 0;
}

std::mutex& mutex() {
    static auto* instance = new std::mutex;
    return *instance;
}
bool done = false;

}  // namespace

int attach(std::string* message) {
    std::lock_guard<std::mutex> guard(mutex());
    if (hook::preloaded) return 0;
    {
        Nic nic;
        if (!nic) {
            *message = Nic::message();
            return -ENODEV;
        }
    }
    Result result;
    dl_iterate_phdr(visit, &result);
    // libibverbs opens its provider when it finds a device; one that came later would not be patched.
    if (result.verbs && !result.provider) {
        if (!dlopen("libmlx5.so.1", RTLD_NOW)) {
            *message = std::string("libmlx5 cannot be loaded (Debian package ibverbs-providers): ") + dlerror();
            return -ENOENT;
        }
        dl_iterate_phdr(visit, &result);
    }
    if (!result.verbs) {
        *message = "libibverbs is not loaded in this process; load it before attaching the software NIC";
        return -ENOENT;
    }
    if (result.error || !result.slots) {
        *message = std::string("the import tables of libibverbs could not be changed: ") +
                   (result.error ? strerror(result.error) : "no call to redirect was found");
        return result.error ? -result.error : -ENOTSUP;
    }
    // dlclose of this library would leave the tables pointing nowhere.
    Dl_info self;
    if (dladdr(SIM_ADDRESS(visit), &self)) dlopen(self.dli_fname, RTLD_NOW | RTLD_NODELETE | RTLD_NOLOAD);
    done = true;
    return 0;
}

bool attached() {
    std::lock_guard<std::mutex> guard(mutex());
    return done || hook::preloaded;
}

}  // namespace sim::uverbs::attach
