// SPDX-License-Identifier: Apache-2.0
// The addresses of a NIC and the links behind its ports. Used by device.cc when the NIC is made, and by the responder
// to tell whether a packet is for this NIC.
#pragma once

#include "sim/engine/state.h"

namespace sim {

// The slot's own addresses, and those that GDA_SIM_MTU and the carriers bring. With the NIC not yet shared.
void fill_addresses(DeviceState& s);

// The port that a packet is for; 1 when no port has its address.
uint32_t arrival_port(const DeviceState& s, const Packet& packet);

// How an address that a packet names fits a port, and its RoCE version.
enum class Own { yes, other_version, no };
Own own_address(const DeviceState& s, uint32_t port, const uint8_t gid[16], bool version1);

// Whether a packet is for an address of the queue pair's port, and of the RoCE version that it speaks; else the report
// says why it is dropped.
bool addressed(DeviceState& s, const Qp* qp, const Packet& packet);

}  // namespace sim
