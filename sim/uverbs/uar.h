// SPDX-License-Identifier: Apache-2.0
// Doorbell pages. A page is a page of the context's memfd: the program maps it with an ordinary mmap, the engine has
// its own mapping of the same memory.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "sim/uverbs/objects.h"

namespace sim::uverbs {

class Request;
class Context;

namespace uar {

// mmap offset of page n = (first_page + n) pages; below lie the fixed pages of mlx5 (clock info).
constexpr off_t first_page = 0x10000;
constexpr uint32_t max_pages = 0x10000;  // page ids have 16 bits in CREATE_CQ
constexpr off_t file_bytes = (first_page + max_pages) << 12;

// UAR object methods: 0 or errno.
int allocate(Context& context, Request& request);
int destroy(Context& context, Request& request);
// The program has mapped `bytes` of the device file from `offset` on at `address`: the engine is told of the doorbell
// pages among them.
void mapped(off_t offset, size_t bytes, void* address);

}  // namespace uar
}  // namespace sim::uverbs
