// SPDX-License-Identifier: Apache-2.0
// The carrier from this NIC to itself. A request is handed over within send(), so that a message is one copy from the
// source to the destination; an acknowledgement is kept until poll(), so that no answer arrives inside the call that
// asked for it.
#pragma once

#include "sim/link/fifo.h"
#include "sim/link/link.h"

namespace sim {

class Loopback final : public Link {
   public:
    explicit Loopback(Receive receive) : receive_(std::move(receive)) {}
    bool send(const Packet& packet) override;
    int poll(const Receive& receive, int budget) override;
    bool empty() const { return answers_.empty(); }
    // A whole message, whatever its size.
    size_t run_bytes() const override { return size_t{1} << 31; }

   private:
    Receive receive_;
    Fifo<Packet> answers_;
};

}  // namespace sim
