// SPDX-License-Identifier: Apache-2.0
// The firmware's handlers, one per command, and how they refuse. Called by command.cc only; each gets its structs whole
// (lengths are checked there) and the device's lock held.
#pragma once

#include "sim/engine/state.h"

namespace sim::firmware {

// Why a command was refused. The syndrome is this model's choice: the cause's place in the table of command.cc.
enum class Cause : int {
    none = 0,
    unknown_opcode,
    short_input,
    short_output,
    bad_capability,
    no_such_pd,
    no_such_umem,
    no_such_page,
    no_such_cq,
    no_such_qp,
    no_such_key,
    table_full,
    no_memory,
    umem_needed,
    umem_too_small,
    misaligned,
    record_needed,
    queue_too_large,
    cqe_size,
    transport,
    receive_type,
    no_such_rmp,
    no_such_dct,
    no_such_xrcd,
    rmp_kind,
    rmp_in_use,
    doorbell_mode,
    cq_in_use,
    cq_change,
    wrong_state,
    path_mtu,
    message_size,
    address_index,
    no_remote_gid,
    port,
    migration,
    access_mode,
    translations,
    key_range,
    remote_needs_local,
    forked,
    no_such_counter,
    counter_in_use,
    dci_streams,
    no_such_stream,
};

struct Answer {
    Cause cause = Cause::none;
    std::string detail;  // values, for the report
};

typedef Answer (*Handler)(DeviceState& s, const uint8_t* in, uint8_t* out);

Answer query_hca_cap(DeviceState& s, const uint8_t* in, uint8_t* out);
// The port that a field of a command names: 0 stands for 1. `whose` begins the detail of a refusal; may be empty.
Answer port_named(const DeviceState& s, uint64_t number, const char* whose, uint32_t* port);
Answer query_roce_address(DeviceState& s, const uint8_t* in, uint8_t* out);
Answer query_lag(DeviceState& s, const uint8_t* in, uint8_t* out);
Answer allocate_q_counter(DeviceState& s, const uint8_t* in, uint8_t* out);
Answer release_q_counter(DeviceState& s, const uint8_t* in, uint8_t* out);
Answer query_q_counter(DeviceState& s, const uint8_t* in, uint8_t* out);
Answer query_vport_counter(DeviceState& s, const uint8_t* in, uint8_t* out);
Answer create_mkey(DeviceState& s, const uint8_t* in, uint8_t* out);
Answer destroy_mkey(DeviceState& s, const uint8_t* in, uint8_t* out);
Answer create_cq(DeviceState& s, const uint8_t* in, uint8_t* out);
Answer destroy_cq(DeviceState& s, const uint8_t* in, uint8_t* out);
Answer query_cq(DeviceState& s, const uint8_t* in, uint8_t* out);
Answer modify_cq(DeviceState& s, const uint8_t* in, uint8_t* out);
Answer create_rmp(DeviceState& s, const uint8_t* in, uint8_t* out);
Answer modify_rmp(DeviceState& s, const uint8_t* in, uint8_t* out);
Answer destroy_rmp(DeviceState& s, const uint8_t* in, uint8_t* out);
Answer query_rmp(DeviceState& s, const uint8_t* in, uint8_t* out);
Answer create_qp(DeviceState& s, const uint8_t* in, uint8_t* out);
Answer destroy_qp(DeviceState& s, const uint8_t* in, uint8_t* out);
Answer query_qp(DeviceState& s, const uint8_t* in, uint8_t* out);
Answer create_dct(DeviceState& s, const uint8_t* in, uint8_t* out);
Answer drain_dct(DeviceState& s, const uint8_t* in, uint8_t* out);
Answer destroy_dct(DeviceState& s, const uint8_t* in, uint8_t* out);
Answer query_dct(DeviceState& s, const uint8_t* in, uint8_t* out);
Answer rst2init(DeviceState& s, const uint8_t* in, uint8_t* out);
Answer init2rtr(DeviceState& s, const uint8_t* in, uint8_t* out);
Answer rtr2rts(DeviceState& s, const uint8_t* in, uint8_t* out);
Answer init2init(DeviceState& s, const uint8_t* in, uint8_t* out);
Answer rts2rts(DeviceState& s, const uint8_t* in, uint8_t* out);
Answer to_error(DeviceState& s, const uint8_t* in, uint8_t* out);
Answer to_reset(DeviceState& s, const uint8_t* in, uint8_t* out);

// What this model announces and enforces (caps.cc tells programs, the others refuse what is beyond).
enum Limits : uint32_t {
    LOG_MAX_OBJECTS = 15,  // of each kind: queue pairs, completion queues, shared receive queues, PDs
    MAX_OBJECTS = 1u << LOG_MAX_OBJECTS,
    LOG_MAX_KEYS = 16,
    MAX_KEYS = 1u << LOG_MAX_KEYS,
    LOG_MAX_UMEM = 17,
    LOG_MAX_CQ_ENTRIES = 22,
    LOG_MAX_QUEUE = 15,  // blocks of a send queue, entries of a receive queue: indices have 16 bits
    LOG_MAX_MESSAGE = 30,
    LOG_MAX_DATAGRAM = 12,
    LOG_MAX_STREAMS = 8,  // of a DCI: at work, and in error
    LOG_MAX_FETCHES = 4,  // reads and atomics outstanding, either way: engine/state.h ATOMIC_RESULTS
    MAX_SEND_WQE_BYTES = 1024,
    MAX_RECEIVE_WQE_BYTES = 512,
    DEVICE_MEMORY_BYTES = 128 * 1024,  // the driver hands it out: uverbs/device_memory.cc
    FIRST_CQ = 0x10,
    FIRST_RMP = 0x10,
    FIRST_QP = 0x40,
    FIRST_COUNTER_SET = 1,
    MAX_COUNTER_SETS = 255,  // numbers have eight bits, and 0 is for all other queue pairs
    FIRST_KEY = 0x1000,      // key 0x100 ends receive lists, so low indices are not used
};

// Makes the queue pair count in that set, by its number.
Answer count_in(DeviceState& s, Qp* qp, uint32_t number);

// Finds the place of a ring or record; counts its use. On refusal nothing is counted.
Answer place_in_umem(DeviceState& s, uint32_t umem_id, uint64_t offset, uint64_t bytes, uint32_t alignment,
                     const char* what, Region* region);

}  // namespace sim::firmware
