// SPDX-License-Identifier: Apache-2.0
// For those who look at a running or hung program from outside (gda/tools/live.py): a piece of memory with a name,
// "gda-live-nic", that says where this NIC's state lies in its process. The NIC writes it once, when it is made; who
// looks finds it in /proc/PID/maps and reads on with process_vm_readv: the NIC takes no part in it, so a lock that
// somebody holds, an engine that stands still and a stopped process are no hindrance, and it costs nothing.
// Only the sentences are copied there when they are said, since they grow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace sim {

struct DeviceState;

// Layout, all little-endian: see Head in live.cc. Text behind it, lines of words:
//   at NAME ADDRESS BYTES                         one value
//   table NAME ADDRESS BLOCK                      pointers to blocks of so many pointers to objects
//   struct NAME BYTES (MEMBER OFFSET BYTES)...    the objects
//   counters NAME ADDRESS PORTS NAME...           unsigned 64-bit, ports x names
class Live {
   public:
    explicit Live(const DeviceState& s);
    ~Live();
    Live(const Live&) = delete;
    Live& operator=(const Live&) = delete;

    void set_name(const char* name);  // as programs call the NIC: mlx5_0
    // Called with the report's lock held.
    void said(const std::string& sentence);
    void forget_sentences();

   private:
    struct Head;
    Head* head_ = nullptr;  // null: no memory of that kind here, and nobody can look
};

}  // namespace sim
