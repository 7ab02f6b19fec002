// SPDX-License-Identifier: Apache-2.0
// The C library's functions as programs call them, with one question before each: is this path or descriptor ours?
// Two front ends: preload.cc exports them under their own names, attach.cc writes their addresses into the import
// tables of libibverbs, libmlx5 and libnl-3.
#pragma once

#include <dirent.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/types.h>

struct statx;

#define SIM_EXPORT __attribute__((visibility("default")))

// Of functions that a sanitizer's own runtime calls before it is ready: they must not tell it of their memory.
#define SIM_UNSANITIZED __attribute__((no_sanitize("address"), no_sanitize("thread"), no_sanitize("undefined")))

namespace sim::uverbs::hook {

// Set by the preload library when it is loaded: the whole process is under the software NIC then.
SIM_EXPORT extern bool preloaded;

SIM_EXPORT int open(const char* path, int flags, mode_t mode);
SIM_EXPORT int openat(int directory, const char* path, int flags, mode_t mode);
SIM_EXPORT DIR* opendir(const char* path);
SIM_EXPORT FILE* fopen(const char* path, const char* mode);
SIM_EXPORT int stat(const char* path, struct ::stat* out);
SIM_EXPORT int lstat(const char* path, struct ::stat* out);
SIM_EXPORT int fstat(int fd, struct ::stat* out);
SIM_EXPORT int fstatat(int directory, const char* path, struct ::stat* out, int flags);
SIM_EXPORT int statx(int directory, const char* path, int flags, unsigned mask, struct ::statx* out);
SIM_EXPORT int access(const char* path, int mode);
SIM_EXPORT int faccessat(int directory, const char* path, int mode, int flags);
SIM_EXPORT char* realpath(const char* path, char* resolved);
SIM_EXPORT ssize_t readlink(const char* path, char* out, size_t bytes);
SIM_EXPORT int ioctl(int fd, unsigned long request, void* argument);
SIM_EXPORT ssize_t read(int fd, void* data, size_t bytes);
SIM_EXPORT ssize_t write(int fd, const void* data, size_t bytes);
SIM_EXPORT int close(int fd);
SIM_EXPORT void* mmap(void* address, size_t bytes, int rights, int flags, int fd, off_t offset);
SIM_EXPORT int socket(int domain, int type, int protocol);

}  // namespace sim::uverbs::hook
