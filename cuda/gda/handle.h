// SPDX-License-Identifier: Apache-2.0
// The device ABI: plain structs that the host fills in (gda/nic/handle.py) and kernels use. Offsets are asserted here
// and read from this text by Python, so a struct member is one line `type name;` of a type in the table of
// gda/formats/headers.py. A change of layout changes GDA_HANDLE_VERSION.
#pragma once

#include <gda/formats/status.h>
#include <gda/target/types.h>

// What is in `version` of a handle. A kernel refuses a handle of another version (GDA_BAD_HANDLE).
enum { GDA_HANDLE_VERSION = 0x67646106 };  // "gda", 6

// What a device function answers: see formats/status.h. Zero is success.
typedef uint64_t gda_status;
// The index after a message's last basic block: the message is complete when the queue's `done` has reached it.
// With GDA_TICKET_FAILED set the put was refused and the low bits are a gda_status.
typedef uint64_t gda_ticket;

// What a queue pair is like, and how the NIC is told: set by the host when it is made.
enum gda_qp_flags {
    GDA_QP_RECORDLESS = 0x1,  // kernels write no record: the doorbell alone says what is there
    GDA_QP_OWNED = 0x2,       // one thread, or one warp, owns the queue: no atomics
    GDA_QP_GPU_SCOPE = 0x4,   // rings, record and payload all lie in GPU memory: gpu-scope fences are enough
    GDA_QP_CONNECTED = 0x8,   // ready to send
    // How the NIC is told, where not by record and doorbell: see tell.h
    GDA_QP_DOORBELL_FIRST = 0x10,  // doorbell, record, doorbell
    GDA_QP_BLUEFLAME = 0x20,       // one work request alone goes to the register
    GDA_QP_ASSISTED = 0x40,        // RECORDLESS too. `doorbell` is a word in memory: a host thread tells the NIC
};

// How a request is posted; the last parameter of every function that posts.
enum gda_post_flags {
    GDA_MORE = 0x1,        // another request follows at once on this queue: it, or a wait, rings for this one
    GDA_UNSIGNALED = 0x2,  // no completion of its own; its ticket is complete when a later request's is
    GDA_FENCE = 0x4,       // the NIC begins it when all reads and atomics posted before it are over
};

// What a signal does to the other side's eight bytes.
enum gda_signal_operation {
    GDA_SIGNAL_ADD = 0,  // many may signal
    GDA_SIGNAL_SET = 1,  // one signals: no atomic in the NIC
};

// What a signal is waited for, compared as numbers that go round: a value is reached when it is at most 2^63 - 1
// behind.
enum gda_comparison {
    GDA_REACHED = 0,  // at or above
    GDA_EQUAL = 1,
    GDA_NOT_EQUAL = 2,
};

// What a completion queue is like.
enum gda_cq_flags {
    GDA_CQ_COLLAPSED = 0x1,       // one entry, overwritten by each completion
    GDA_CQ_IGNORE_OVERRUN = 0x2,  // the NIC does not read the consumer index: it need not be written
};

// What memory is like.
enum gda_mr_flags {
    GDA_MR_GPU = 0x1,      // the bytes lie in GPU memory
    GDA_MR_RELAXED = 0x2,  // registered with relaxed ordering: what is written there may be seen before earlier writes
    GDA_MR_EPOCHS = 0x4,   // signals; as many words behind them say how far this rank has waited for each
};

// A registered memory region. Passed to kernels by value.
struct gda_mr {
    uint64_t addr;     // first byte, as the NIC and the kernel see it
    uint64_t bytes;    // length
    uint32_t lkey_be;  // keys as a WQE carries them
    uint32_t rkey_be;
    uint32_t flags;  // enum gda_mr_flags
    uint32_t reserved;
};

// Where a datagram goes: an address vector's 48 bytes as a work request carries them (wqe_av_seg). Made by
// QueuePair.peer(). Passed to kernels by value.
struct gda_address {
    uint64_t key;    // Q_Key
    uint64_t queue;  // the receiver's queue pair
    uint64_t hardware;
    uint64_t route;
    uint64_t gid_first;
    uint64_t gid_last;
};

// A completion queue. Written by the NIC (ring) and by whoever polls (record).
struct gda_cq {
    uint64_t ring;    // 64-byte entries
    uint64_t record;  // cq_doorbell_record; the NIC reads consumer_index unless GDA_CQ_IGNORE_OVERRUN
    uint32_t cqn;
    uint32_t log_size;  // entries
    uint32_t flags;     // enum gda_cq_flags
    uint32_t reserved;
};

// A queue pair with its completion queue. The first 128 bytes are constant while kernels run; the words that threads
// contend for lie behind them, in lines of their own. What a queue needs besides lies behind it: struct gda_queue.
struct gda_qp {
    uint32_t version;   // GDA_HANDLE_VERSION
    uint32_t flags;     // enum gda_qp_flags
    uint64_t sq;        // send queue: 64-byte basic blocks; the NIC reads it
    uint64_t doorbell;  // the 8-byte register in the UAR page; the NIC reads it (GDA_QP_ASSISTED: a host thread)
    uint64_t record;    // send_counter word (not the record's start); the NIC reads it
    uint32_t qpn;
    uint32_t log_sq_size;        // basic blocks
    uint64_t deadline_ns;        // how long a put waits for a free slot
    uint64_t max_message_bytes;  // larger transfers are split
    gda_cq cq;
    uint64_t scratch;          // eight bytes where the NIC puts old values that nobody wants (signals that add)
    uint32_t scratch_lkey_be;  // of the region that it lies in
    uint8_t pad0[28];

    uint64_t reserved;  // basic blocks handed out to writers
    uint8_t pad1[56];

    uint64_t ready;        // basic blocks written, in order, as last told by who had the token
    uint64_t done;         // basic blocks completed, but for the second one of the last request
    gda_status error;      // first error, latched; zero while healthy
    uint64_t cq_consumed;  // completions read (ring completion queue)
    uint64_t rung;         // basic blocks that the NIC was told of
    uint64_t deferred;     // basic blocks that were ready when a doorbell was left to a later request
    uint64_t silent;       // index behind the last request whose own completion would not tell of all of it
    uint64_t flashes;      // work requests written to the register (BlueFlame): its halves are used in turn
};

// A receive queue with its completion queue, a ring that the NIC may not overrun: no more receives are posted than it
// has entries. The first 64 bytes are constant while kernels run.
struct gda_receive_queue {
    uint64_t ring;      // data segments of 16 bytes, one a receive; the NIC reads it. Zero: there is no receive queue
    uint64_t record;    // receive_counter word; the NIC reads it
    uint32_t log_size;  // entries, of this ring and of the completion queue's
    uint32_t pad0;
    gda_cq cq;
    uint64_t cq_base;  // completions that the ring had seen when the first receive was posted

    uint64_t reserved;  // receives handed out to writers; only grows
    uint64_t ready;     // receives written, in order, and told to the NIC
    uint8_t pad1[48];

    uint64_t received;  // receives whose completion was read; its top bit: a thread is reading
    uint8_t pad2[56];
};

// All that a queue pair takes of memory beside its rings. Kernels get the address of `qp`.
struct gda_queue {
    gda_qp qp;
    uint8_t window[512];  // 64 words, each for 32 slots: which are written, and where the token lies. See token.h
    gda_receive_queue receive;
};

// What has arrived: gda_poll_receive and gda_wait_receive fill it in.
struct gda_received {
    uint64_t index;      // of the receive, as gda_post_receive answered it
    uint64_t addr;       // the memory that was posted for it
    uint32_t bytes;      // length of the message; of a put with immediate, those that it wrote elsewhere
    uint32_t immediate;  // where the operation has one
    uint32_t opcode;     // enum cqe_opcode: MLX5_CQE_RESP_SEND, _SEND_IMM or _WR_IMM
    uint32_t reserved;
};

// By what the threads of a kernel share the queues that lead to a peer: gda_which of comm.h.
enum gda_policy {
    GDA_BY_BLOCK = 0,  // each block has one, in turn
    GDA_BY_WARP = 1,   // each warp of the grid
    GDA_BY_PEER = 2,   // all have the first
};

// The queue pairs of a team (gda/comm/team.py), by peer. Passed to kernels by value; comm.h reads it.
struct gda_team {
    uint32_t version;  // GDA_HANDLE_VERSION
    uint32_t rank;     // of this process
    uint32_t size;     // ranks
    uint32_t queues_per_peer;
    uint64_t queues;  // table of addresses of gda_qp: those of rank 0 first, this rank's own lead back to itself; null
                      // of a rank that is not connected
    uint32_t policy;  // enum gda_policy
    uint32_t reserved;
};

// Memory that every rank of a team has, of the same size (gda/comm/window.py). Passed to kernels by value.
struct gda_window {
    gda_mr mine;     // this rank's
    uint64_t peers;  // table of gda_mr, by rank
    uint32_t size;   // ranks
    uint32_t rank;   // of this process
};

#define GDA_ASSERT_AT(type, member, offset) \
    static_assert(GDA_OFFSETOF(type, member) == (offset), #type "." #member " moved: change GDA_HANDLE_VERSION")
GDA_ASSERT_AT(gda_mr, lkey_be, 16);
GDA_ASSERT_AT(gda_mr, flags, 24);
GDA_ASSERT_AT(gda_cq, cqn, 16);
GDA_ASSERT_AT(gda_qp, sq, 8);
GDA_ASSERT_AT(gda_qp, record, 24);
GDA_ASSERT_AT(gda_qp, deadline_ns, 40);
GDA_ASSERT_AT(gda_qp, cq, 56);
GDA_ASSERT_AT(gda_qp, scratch, 88);
GDA_ASSERT_AT(gda_qp, reserved, 128);
GDA_ASSERT_AT(gda_qp, ready, 192);
GDA_ASSERT_AT(gda_qp, error, 208);
GDA_ASSERT_AT(gda_qp, rung, 224);
GDA_ASSERT_AT(gda_receive_queue, log_size, 16);
GDA_ASSERT_AT(gda_receive_queue, cq, 24);
GDA_ASSERT_AT(gda_receive_queue, cq_base, 56);
GDA_ASSERT_AT(gda_receive_queue, reserved, 64);
GDA_ASSERT_AT(gda_receive_queue, received, 128);
GDA_ASSERT_AT(gda_queue, window, 256);
GDA_ASSERT_AT(gda_queue, receive, 768);
GDA_ASSERT_AT(gda_received, bytes, 16);
GDA_ASSERT_AT(gda_team, queues, 16);
GDA_ASSERT_AT(gda_window, peers, 32);
static_assert(sizeof(gda_team) == 32 && sizeof(gda_window) == 48, "handle sizes are ABI");
static_assert(sizeof(gda_address) == 48, "handle sizes are ABI");
static_assert(sizeof(gda_mr) == 32 && sizeof(gda_cq) == 32 && sizeof(gda_received) == 32, "handle sizes are ABI");
static_assert(sizeof(gda_qp) == 256 && sizeof(gda_queue) == 960, "handle sizes are ABI");
