// SPDX-License-Identifier: Apache-2.0
// See real.h. RTLD_NEXT would not do: a preloaded program has the C library before this library in its search order
// (this one is only a dependency of the preload library), and a Python that opened us has it after.
#include "sim/uverbs/real.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

namespace sim::uverbs::real {
namespace {

template <typename Function>
Function* find(std::atomic<void*>& cache, const char* name) {
    void* found = cache.load(std::memory_order_relaxed);
    if (!found) {
        static void* const c_library = dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD);
        found = c_library ? dlsym_function()(c_library, name) : nullptr;
        cache.store(found, std::memory_order_relaxed);
    }
    return reinterpret_cast<Function*>(found);
}

}  // namespace

// By its versions, since dlsym cannot be asked for itself, and names with a version are the C library's alone. Its
// version is the first of the architecture in a glibc before 2.34. Nothing else may be called: the runtime of a
// sanitizer comes here before its own functions, dlopen too, can be used.
SIM_UNSANITIZED DlsymFunction* dlsym_function() {
    static const char* const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
    static void* cache;
    void* found = __atomic_load_n(&cache, __ATOMIC_RELAXED);
    for (const char* version : versions)
        if (!found) found = dlvsym(RTLD_DEFAULT, "dlsym", version);
    __atomic_store_n(&cache, found, __ATOMIC_RELAXED);
    return reinterpret_cast<DlsymFunction*>(found);
}

// MISSING is the answer where the C library has no such function: the system call itself for the stat family, which
// glibc exports only since 2.33.
#define SIM_REAL(NAME, MISSING, RETURN, PARAMETERS, ARGUMENTS, TYPE) \
    RETURN NAME PARAMETERS {                                         \
        static std::atomic<void*> cache;                             \
        auto* call = find<TYPE>(cache, #NAME);                       \
        if (!call) {                                                 \
            errno = ENOSYS;                                          \
            return static_cast<RETURN>(MISSING);                     \
        }                                                            \
        return call ARGUMENTS;                                       \
    }
#define SIM_REAL_FIXED(NAME, MISSING, RETURN, PARAMETERS, ARGUMENTS) \
    SIM_REAL(NAME, MISSING, RETURN, PARAMETERS, ARGUMENTS, RETURN PARAMETERS)

SIM_REAL(open, -1, int, (const char* path, int flags, mode_t mode), (path, flags, mode), int(const char*, int, ...))
SIM_REAL(openat, -1, int, (int directory, const char* path, int flags, mode_t mode), (directory, path, flags, mode),
         int(int, const char*, int, ...))
SIM_REAL(ioctl, -1, int, (int fd, unsigned long request, void* argument), (fd, request, argument),
         int(int, unsigned long, ...))
SIM_REAL_FIXED(opendir, nullptr, DIR*, (const char* path), (path))
SIM_REAL_FIXED(fopen, nullptr, FILE*, (const char* path, const char* mode), (path, mode))
SIM_REAL_FIXED(stat, syscall(SYS_newfstatat, AT_FDCWD, path, out, 0), int, (const char* path, struct ::stat* out),
               (path, out))
SIM_REAL_FIXED(lstat, syscall(SYS_newfstatat, AT_FDCWD, path, out, AT_SYMLINK_NOFOLLOW), int,
               (const char* path, struct ::stat* out), (path, out))
SIM_REAL_FIXED(fstat, syscall(SYS_fstat, fd, out), int, (int fd, struct ::stat* out), (fd, out))
SIM_REAL_FIXED(fstatat, syscall(SYS_newfstatat, directory, path, out, flags), int,
               (int directory, const char* path, struct ::stat* out, int flags), (directory, path, out, flags))
SIM_REAL_FIXED(statx, -1, int, (int directory, const char* path, int flags, unsigned mask, struct ::statx* out),
               (directory, path, flags, mask, out))
SIM_REAL_FIXED(access, -1, int, (const char* path, int mode), (path, mode))
SIM_REAL_FIXED(faccessat, -1, int, (int directory, const char* path, int mode, int flags),
               (directory, path, mode, flags))
SIM_REAL_FIXED(realpath, nullptr, char*, (const char* path, char* resolved), (path, resolved))
SIM_REAL_FIXED(readlink, -1, ssize_t, (const char* path, char* out, size_t bytes), (path, out, bytes))
SIM_REAL_FIXED(read, -1, ssize_t, (int fd, void* data, size_t bytes), (fd, data, bytes))
SIM_REAL_FIXED(write, -1, ssize_t, (int fd, const void* data, size_t bytes), (fd, data, bytes))
SIM_REAL_FIXED(close, -1, int, (int fd), (fd))
SIM_REAL_FIXED(socket, -1, int, (int domain, int type, int protocol), (domain, type, protocol))

// The system call itself: an allocator that maps its memory by this name may call it before anything can be looked up.
void* mmap(void* address, size_t bytes, int rights, int flags, int fd, off_t offset) {
    return reinterpret_cast<void*>(syscall(SYS_mmap, address, bytes, rights, flags, fd, offset));
}

}  // namespace sim::uverbs::real
