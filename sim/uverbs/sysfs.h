// SPDX-License-Identifier: Apache-2.0
// The files by which libibverbs, libmlx5, UCX and NCCL find a NIC: a real directory tree that stands for /sys, and
// the rule by which paths are moved into it. Called by interpose.cc for every path it sees, so the common answer
// ("not ours") must be cheap and touch nothing.
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace sim::uverbs::sysfs {

enum class Path {
    foreign,  // pass on unchanged
    tree,     // use the moved path
    device,   // /dev/infiniband/uverbs<n>
};

constexpr size_t path_bytes = 4096;

// Where `path` really is; for a device, *nic is which. The tree is written the first time a path of ours is seen.
Path resolve(const char* path, char (&moved)[path_bytes], int* nic = nullptr);

// Turns a path inside the tree, as realpath() answers it, back into one below /sys. True when it was one.
bool restore(char* path);

// The character device's number, as sysfs and fstat() tell it.
dev_t device_number(int nic);

// A NIC's addresses or its link have changed: the files say so from now on.
void refresh();

void remove();  // at exit
void forget();  // in the child of a fork: the tree belongs to the parent

}  // namespace sim::uverbs::sysfs
