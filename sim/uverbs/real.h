// SPDX-License-Identifier: Apache-2.0
// The C library as it is without our hooks. Everything in uverbs/ that means the real file system or the real kernel
// calls these; a plain close() would come back to us through preload.cc. Found with dlsym on first use, so nothing
// happens when the library is merely loaded.
#pragma once

#include <dirent.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "sim/uverbs/interpose.h"

namespace sim::uverbs::real {

// Calls the C library's function of that name, whatever was put in front of it. A name that this C library lacks
// (the __xstat family in a future one) sets ENOSYS and answers -1 or a null pointer.
int open(const char* path, int flags, mode_t mode);
int openat(int directory, const char* path, int flags, mode_t mode);
DIR* opendir(const char* path);
FILE* fopen(const char* path, const char* mode);
int stat(const char* path, struct ::stat* out);
int lstat(const char* path, struct ::stat* out);
int fstat(int fd, struct ::stat* out);
int fstatat(int directory, const char* path, struct ::stat* out, int flags);
int statx(int directory, const char* path, int flags, unsigned mask, struct ::statx* out);
int access(const char* path, int mode);
int faccessat(int directory, const char* path, int mode, int flags);
char* realpath(const char* path, char* resolved);
ssize_t readlink(const char* path, char* out, size_t bytes);
int ioctl(int fd, unsigned long request, void* argument);
ssize_t read(int fd, void* data, size_t bytes);
ssize_t write(int fd, const void* data, size_t bytes);
int close(int fd);
void* mmap(void* address, size_t bytes, int rights, int flags, int fd, off_t offset);
int socket(int domain, int type, int protocol);

// dlsym itself. noexcept, so that a call of it can be a jump.
using DlsymFunction = void*(void* handle, const char* name) noexcept;
SIM_EXPORT DlsymFunction* dlsym_function();

}  // namespace sim::uverbs::real
