// SPDX-License-Identifier: Apache-2.0
// Memory of the card's own (ibv_alloc_dm): methods of the DM object. It lies in the context's device file, at the
// pages where libmlx5 maps a card's; how much there is counts for all contexts of a NIC.
// Source: Linux, drivers/infiniband/hw/mlx5/dm.c ("MEMIC").
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "sim/uverbs/objects.h"

namespace sim::uverbs {

class Request;
class Context;

class DeviceMemory : public Object {
   public:
    static constexpr Type kind = Type::device_memory;
    ~DeviceMemory() override;
    int destroy() override { return 0; }
    // Of the NIC: where it reaches the memory, in this process.
    uint64_t address() const { return reinterpret_cast<uint64_t>(base_); }
    uint64_t bytes() const { return bytes_; }
    uint16_t page() const { return static_cast<uint16_t>(page_); }

    // A zeroed piece for a program that asks for `bytes`. 0, EINVAL, or ENOMEM when the card has no such piece left.
    static int make(Context& context, uint64_t bytes, uint32_t log_alignment, std::unique_ptr<DeviceMemory>* made);

   private:
    DeviceMemory(const Context& context, uint64_t bytes, uint32_t page, uint32_t pages, void* base);
    const int nic_, fd_;
    const uint64_t bytes_;
    const uint32_t page_, pages_;
    void* const base_;
};

namespace device_memory {

int allocate(Context& context, Request& request);
int release(Context& context, Request& request);
int query(Context& context, Request& request);
int map_operation(Context& context, Request& request);
void forget();  // in the child of a fork: its NICs are others

}  // namespace device_memory
}  // namespace sim::uverbs
