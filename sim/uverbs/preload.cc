// SPDX-License-Identifier: Apache-2.0
// The front end for programs that nobody may change: LD_PRELOAD puts these names before the C library's. It covers
// libraries opened later, too. Nothing happens until a path or device of ours is touched.
// Beside the plain names: the variants of glibc before 2.33 (__xstat), of 64-bit offsets and of _FORTIFY_SOURCE.
// <fcntl.h> and <unistd.h> are not included, since they may define some of these names in a way of their own.
#include <dlfcn.h>
#include <stdarg.h>

#include "sim/uverbs/cuda.h"
#include "sim/uverbs/interpose.h"
#include "sim/uverbs/real.h"

namespace {

constexpr int creates = 0100;         // O_CREAT: then open() has a third argument
constexpr int temporary = 020200000;  // O_TMPFILE: likewise

// All that loading does.
__attribute__((constructor)) void announce() {
    sim::uverbs::hook::preloaded = true;
    sim::uverbs::cuda::front = &creates;
}

bool has_mode(int flags) { return (flags & creates) || (flags & temporary) == temporary; }

}  // namespace

#define SIM_PRELOAD extern "C" __attribute__((visibility("default")))

#define SIM_OPEN(NAME)                                                       \
    SIM_PRELOAD int NAME(const char* path, int flags, ...) {                 \
        va_list arguments;                                                   \
        va_start(arguments, flags);                                          \
        const mode_t mode = has_mode(flags) ? va_arg(arguments, mode_t) : 0; \
        va_end(arguments);                                                   \
        return sim::uverbs::hook::open(path, flags, mode);                   \
    }
SIM_OPEN(open)
SIM_OPEN(open64)

#define SIM_OPENAT(NAME)                                                     \
    SIM_PRELOAD int NAME(int directory, const char* path, int flags, ...) {  \
        va_list arguments;                                                   \
        va_start(arguments, flags);                                          \
        const mode_t mode = has_mode(flags) ? va_arg(arguments, mode_t) : 0; \
        va_end(arguments);                                                   \
        return sim::uverbs::hook::openat(directory, path, flags, mode);      \
    }
SIM_OPENAT(openat)
SIM_OPENAT(openat64)

// struct stat64 is struct stat where long has 64 bits, the only machines this is built for.
SIM_PRELOAD int __open_2(const char* path, int flags) { return sim::uverbs::hook::open(path, flags, 0); }
SIM_PRELOAD int __open64_2(const char* path, int flags) { return sim::uverbs::hook::open(path, flags, 0); }
SIM_PRELOAD int __openat_2(int at, const char* path, int flags) {
    return sim::uverbs::hook::openat(at, path, flags, 0);
}
SIM_PRELOAD int __openat64_2(int at, const char* path, int flags) {
    return sim::uverbs::hook::openat(at, path, flags, 0);
}
SIM_PRELOAD DIR* opendir(const char* path) { return sim::uverbs::hook::opendir(path); }
SIM_PRELOAD FILE* fopen(const char* path, const char* mode) { return sim::uverbs::hook::fopen(path, mode); }
SIM_PRELOAD FILE* fopen64(const char* path, const char* mode) { return sim::uverbs::hook::fopen(path, mode); }

SIM_PRELOAD int stat(const char* path, struct stat* out) { return sim::uverbs::hook::stat(path, out); }
SIM_PRELOAD int stat64(const char* path, struct stat64* out) {
    return sim::uverbs::hook::stat(path, reinterpret_cast<struct stat*>(out));
}
SIM_PRELOAD int lstat(const char* path, struct stat* out) { return sim::uverbs::hook::lstat(path, out); }
SIM_PRELOAD int lstat64(const char* path, struct stat64* out) {
    return sim::uverbs::hook::lstat(path, reinterpret_cast<struct stat*>(out));
}
SIM_PRELOAD int fstat(int fd, struct stat* out) { return sim::uverbs::hook::fstat(fd, out); }
SIM_PRELOAD int fstat64(int fd, struct stat64* out) {
    return sim::uverbs::hook::fstat(fd, reinterpret_cast<struct stat*>(out));
}
SIM_PRELOAD int fstatat(int at, const char* path, struct stat* out, int flags) {
    return sim::uverbs::hook::fstatat(at, path, out, flags);
}
SIM_PRELOAD int fstatat64(int at, const char* path, struct stat64* out, int flags) {
    return sim::uverbs::hook::fstatat(at, path, reinterpret_cast<struct stat*>(out), flags);
}
SIM_PRELOAD int statx(int at, const char* path, int flags, unsigned mask, struct statx* out) {
    return sim::uverbs::hook::statx(at, path, flags, mask, out);
}
SIM_PRELOAD int __xstat(int, const char* path, struct stat* out) { return sim::uverbs::hook::stat(path, out); }
SIM_PRELOAD int __xstat64(int, const char* path, struct stat64* out) {
    return sim::uverbs::hook::stat(path, reinterpret_cast<struct stat*>(out));
}
SIM_PRELOAD int __lxstat(int, const char* path, struct stat* out) { return sim::uverbs::hook::lstat(path, out); }
SIM_PRELOAD int __lxstat64(int, const char* path, struct stat64* out) {
    return sim::uverbs::hook::lstat(path, reinterpret_cast<struct stat*>(out));
}
SIM_PRELOAD int __fxstat(int, int fd, struct stat* out) { return sim::uverbs::hook::fstat(fd, out); }
SIM_PRELOAD int __fxstat64(int, int fd, struct stat64* out) {
    return sim::uverbs::hook::fstat(fd, reinterpret_cast<struct stat*>(out));
}

SIM_PRELOAD int access(const char* path, int mode) { return sim::uverbs::hook::access(path, mode); }
SIM_PRELOAD int faccessat(int at, const char* path, int mode, int flags) {
    return sim::uverbs::hook::faccessat(at, path, mode, flags);
}
SIM_PRELOAD char* realpath(const char* path, char* resolved) { return sim::uverbs::hook::realpath(path, resolved); }
SIM_PRELOAD char* __realpath_chk(const char* path, char* resolved, size_t) {
    return sim::uverbs::hook::realpath(path, resolved);
}
SIM_PRELOAD ssize_t readlink(const char* path, char* out, size_t bytes) {
    return sim::uverbs::hook::readlink(path, out, bytes);
}
SIM_PRELOAD ssize_t __readlink_chk(const char* path, char* out, size_t bytes, size_t) {
    return sim::uverbs::hook::readlink(path, out, bytes);
}

SIM_PRELOAD int ioctl(int fd, unsigned long request, ...) {
    va_list arguments;
    va_start(arguments, request);
    void* argument = va_arg(arguments, void*);  // as the C library does, whether or not there is one
    va_end(arguments);
    return sim::uverbs::hook::ioctl(fd, request, argument);
}
SIM_PRELOAD ssize_t read(int fd, void* data, size_t bytes) { return sim::uverbs::hook::read(fd, data, bytes); }
SIM_PRELOAD ssize_t __read_chk(int fd, void* data, size_t bytes, size_t) {
    return sim::uverbs::hook::read(fd, data, bytes);
}
SIM_PRELOAD ssize_t write(int fd, const void* data, size_t bytes) { return sim::uverbs::hook::write(fd, data, bytes); }
SIM_PRELOAD int close(int fd) { return sim::uverbs::hook::close(fd); }
SIM_PRELOAD void* mmap(void* address, size_t bytes, int rights, int flags, int fd, off_t offset) {
    return sim::uverbs::hook::mmap(address, bytes, rights, flags, fd, offset);
}
SIM_PRELOAD void* mmap64(void* address, size_t bytes, int rights, int flags, int fd, off_t offset) {
    return sim::uverbs::hook::mmap(address, bytes, rights, flags, fd, offset);
}
SIM_PRELOAD int socket(int domain, int type, int protocol) { return sim::uverbs::hook::socket(domain, type, protocol); }

// The C library's dlsym looks at its return address to know what comes after its caller (RTLD_NEXT), so it is jumped
// to and not called: compilers make a jump of a last call of the same type, but for ThreadSanitizer's bookkeeping.
SIM_PRELOAD SIM_UNSANITIZED void* dlsym(void* __restrict handle, const char* __restrict name) noexcept {
    if (handle != RTLD_NEXT && sim::uverbs::cuda::concerns(name)) return sim::uverbs::cuda::look_up(handle, name);
    return sim::uverbs::real::dlsym_function()(handle, name);
}

SIM_PRELOAD int cuMemHostRegister_v2(void* address, size_t bytes, unsigned flags) {
    return sim::uverbs::cuda::host_register(address, bytes, flags);
}
SIM_PRELOAD int cuMemGetHandleForAddressRange(void* out, unsigned long long address, size_t bytes, int type,
                                              unsigned long long flags) {
    return sim::uverbs::cuda::export_range(out, address, bytes, type, flags);
}
SIM_PRELOAD int cuGetProcAddress(const char* name, void** function, int version, uint64_t flags) {
    return sim::uverbs::cuda::find_function(name, function, version, flags);
}
SIM_PRELOAD int cuGetProcAddress_v2(const char* name, void** function, int version, uint64_t flags, int* status) {
    return sim::uverbs::cuda::find_function_v2(name, function, version, flags, status);
}
