// SPDX-License-Identifier: Apache-2.0
// All state of the software NIC: tables of objects and the work lists. For engine/ and firmware/ only, always with the
// device's lock held. Layout of the rings: gda/formats/{wqe,cqe,doorbell}.h.
#pragma once

#include <gda/formats/command.h>
#include <gda/formats/cqe.h>
#include <gda/formats/wqe.h>
#include <pthread.h>

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "sim/clock.h"
#include "sim/engine/device.h"
#include "sim/engine/gpu.h"
#include "sim/engine/live.h"
#include "sim/engine/profile.h"
#include "sim/engine/report.h"
#include "sim/engine/sweep.h"
#include "sim/engine/table.h"
#include "sim/engine/trace.h"
#include "sim/engine/watch.h"
#include "sim/link/fifo.h"
#include "sim/link/port.h"

namespace sim {

struct Cq;
struct Qp;
struct Xrcd;
class Shadows;
class Sources;

enum : uint32_t { ATOMIC_RESULTS = 16 };  // kept by a responder: more reads and atomics are never outstanding

struct Umem {
    uint32_t id = 0;
    uint64_t address = 0, bytes = 0;
    gpu::Context* gpu = nullptr;  // null: the CPU reaches it
    int uses = 0;                 // queues, records and keys that lie in it
};

struct Pd {
    uint32_t number = 0;
    int uses = 0;
};

// A domain of queue pairs over XRC and of the shared receive queues that their peers may name.
struct Xrcd {
    uint32_t number = 0;
    int uses = 0;
};

// A place in a umem: where a ring or a record begins.
struct Region {
    Umem* umem = nullptr;
    uint64_t offset = 0;
    uint64_t address() const { return umem->address + offset; }
};

// The bytes of a key that is made of pieces of other keys' memory: the pieces in order, then all of them again, each at
// its stride further on.
struct Layout {
    struct Piece {
        uint64_t at;     // of its first byte within a round
        uint64_t bytes;  // not zero
        uint64_t address;
        uint32_t key;
        uint32_t stride;
    };
    std::vector<Piece> pieces;
    uint64_t round_bytes = 0;
    uint64_t rounds = 1;
};

enum : uint32_t { ANY_QP = 0xffffff };

// Ordered by size: there are 65,536.
struct Mkey {
    uint32_t key = 0;       // index << 8 | the program's low byte
    uint32_t qpn = ANY_QP;  // the only queue pair that may use it
    uint32_t room = 0;      // translations that a UMR may give it
    bool whole = false;     // every address; bytes does not count
    bool local_read = false, local_write = false, remote_read = false, remote_write = false, remote_atomic = false;
    bool free = false;               // stands for nothing until a UMR makes it: a window that is not bound
    bool changeable = false;         // by UMR
    bool remote_invalidate = false;  // by a peer's send
    bool relaxed = false;            // what is written through it may pass earlier writes
    Pd* pd = nullptr;
    uint64_t start = 0, bytes = 0;   // the addresses it serves
    Umem* umem = nullptr;            // null: addresses of the process, as they are
    uint64_t offset = 0;             // of `start` in the umem
    std::unique_ptr<Layout> layout;  // of a key of pieces; null: none yet, or umem and offset say where
};

// Bytes that were found by a key. Not initialized: a parsed WQE holds 64 of them.
struct Span {
    uint8_t* address;
    uint64_t bytes;
    gpu::Context* gpu;
    const Mkey* scattered;  // not null: a key of pieces; `address` is then the offset of the first byte in its layout
    bool relaxed;           // writes to it may pass earlier ones
};
// Bytes of this NIC's own, or of the program: memory of the host unless it says whose.
inline Span plain_span(const void* address, uint64_t bytes, gpu::Context* gpu = nullptr, bool relaxed = false) {
    return {static_cast<uint8_t*>(const_cast<void*>(address)), bytes, gpu, nullptr, relaxed};
}

struct UarPage {
    uint32_t id = 0;
    uint8_t* base = nullptr;
    std::vector<Qp*> qps;
    std::vector<Cq*> cqs;
    Sweep records, arm_records;  // of all of them, in their order
    Qp* recent[4] = {};          // rang lately
    uint32_t recent_next = 0;
    bool swept = false;  // on the list of pages whose records are being looked at
};

struct Cq {
    uint32_t number = 0;
    char name[16] = {};   // begins its sentences
    Region ring, record;  // record.umem null: none
    UarPage* page = nullptr;
    uint32_t entries = 0, log_entries = 0;
    uint32_t entry_bytes = gda::prm::CQE_BYTES;  // of a slot; the entry is its last 64 bytes
    bool collapsed = false, ignore_overrun = false, failed = false;
    uint32_t producer = 0;        // entries ever written
    uint32_t consumer = 0;        // 24 bits, as last read from the record
    gpu::Job published;           // of a ring on a GPU: the last entry
    uint32_t last_solicited = 0;  // producer after the last solicited or error entry
    uint32_t announced = 0;       // producer at the last event: what was there then has been told
    bool armed = false, armed_solicited = false, arm_mailbox = false;
    uint8_t context[GDA_BYTES_OF(cqc)] = {};
    int uses = 0;  // queue pairs that report to it
    uint32_t place_on_page = 0;
};

// A shared receive queue: a linked list in its ring. Indices are slots of the ring.
struct Srq {
    uint32_t number = 0;
    char name[16] = {};  // begins its sentences
    Pd* pd = nullptr;
    Region ring, record;
    uint32_t entries = 0, stride = 0;
    bool cyclic = false;  // slots are taken in their order; else each names the next one
    uint16_t head = 0;    // the slot that is taken next
    uint16_t taken = 0;   // how many ever were, modulo 2^16
    uint32_t limit = 0;   // armed: an event when fewer are left; 0: not
    bool failed = false;
    Xrcd* xrcd = nullptr;  // of one that peers name in their requests: who may, where it reports and as what
    Cq* cq = nullptr;
    uint32_t user_index = 0;
    uint8_t context[GDA_BYTES_OF(rmpc)] = {};
    int uses = 0;  // queue pairs that take from it
};

// A send WQE from its fetch until its completion is due.
struct Message {
    uint16_t index = 0;  // its first basic block
    uint16_t blocks = 1;
    uint8_t opcode = 0, completion = 0;
    uint16_t stream = 0;   // of an initiator that has them
    bool fetches = false;  // a read or an atomic: done when its response has arrived
    gpu::Job placed;       // of one: its response on the way into GPU memory
    bool fenced = false;   // waits for all fetches before it
    uint32_t packets = 0;  // 0: nothing goes out (NOP); of a fetch: of its response
    uint32_t arrived = 0;  // of them
    uint32_t first_psn = 0;
    uint64_t bytes = 0;
    // A fault found here, told when all earlier messages are done.
    uint8_t syndrome = 0, vendor = 0;
};

// A receive WQE being filled.
struct Receive {
    bool open = false;
    uint16_t index = 0;
    uint32_t pieces = 0;
    struct Piece {
        uint32_t key;
        uint64_t address;
        uint32_t bytes;
    } piece[32];
    uint64_t filled = 0;
};

// What the responder still has to send, in the order of the requests.
struct Reply {
    enum class Kind : uint8_t { acknowledge, read, atomic } kind = Kind::acknowledge;
    uint8_t syndrome = 0;
    bool again = false;  // of a read or atomic that was answered before
    bool begun = false;  // of a read: its first packet has gone
    uint32_t psn = 0;
    uint32_t msn = 0;        // messages done when it was queued: those that arrive while it waits are not answered yet
    gpu::Job job;            // what must be done before it goes out
    uint32_t first_psn = 0;  // of an acknowledgement: the first that it stood for
    uint64_t value = 0;  // of an atomic: what was there before; on a GPU it is among the results when the job is done
    uint32_t key = 0;    // of a read
    uint64_t address = 0, bytes = 0;
    const Pd* pd = nullptr;  // whose keys it may use
};

// An atomic that was executed: asked again, it is answered from here.
struct AtomicResult {
    uint32_t psn = 0;
    uint64_t value = 0;  // when the job is done
    gpu::Job job;        // of one on a GPU
};

// What makes a queue pair the target of dynamically connected ones.
struct DcTarget {
    uint64_t access_key = 0;
    uint32_t violations = 0;  // packets with another key
    bool drained = false;
    uint8_t context[GDA_BYTES_OF(dctc)] = {};  // what the command set, for QUERY_DCT
    // By initiator: its address and number. Each is the responder of a queue pair and nothing else.
    std::map<std::string, std::unique_ptr<Qp>> connections;
};

// The streams of an initiator: each ends alone, until so many are in error.
struct DcStreams {
    size_t most_errored = 1;
    std::set<uint16_t> errored;
    uint16_t current = 0;  // whose requests are on their way
};

struct Qp {
    uint32_t number = 0;
    char name[16] = {};                       // begins its sentences
    uint8_t context[GDA_BYTES_OF(qpc)] = {};  // what commands set, for QUERY_QP
    gda::prm::qpc_state state = gda::prm::MLX5_QPC_STATE_RST;
    uint32_t transport = gda::prm::MLX5_QPC_ST_RC;  // enum qpc_st
    bool reliable() const { return transport != gda::prm::MLX5_QPC_ST_UC && !datagrams(); }
    bool datagrams() const { return transport == gda::prm::MLX5_QPC_ST_UD; }
    bool over_xrc() const { return transport == gda::prm::MLX5_QPC_ST_XRC; }
    bool dc_initiator() const { return transport == gda::prm::MLX5_QPC_ST_DCI; }
    bool dc_target() const { return transport == gda::prm::MLX5_QP_ST_DCT; }
    // Initiators only ask.
    bool takes_requests() const { return !dc_initiator() && (!over_xrc() || xrcd); }
    Pd* pd = nullptr;
    UarPage* page = nullptr;
    Cq *send_cq = nullptr, *receive_cq = nullptr;
    Srq* srq = nullptr;    // over XRC: of the request at hand, and with it the two before and the domain
    Xrcd* xrcd = nullptr;  // of the receiving end of XRC
    CounterSet* counter_set = nullptr;
    uint32_t user_index = 0;
    uint8_t port = 1;                 // of the NIC, since INIT: its addresses and its cable
    bool through_libibverbs = false;  // its requests are written by that library, on the CPU
    bool recordless = false, has_receives = false, migrated = false;
    Region send_ring, receive_ring, record;
    uint32_t send_blocks = 0, receive_entries = 0, receive_stride = 0;

    // Connection.
    Gid local_gid = {}, remote_gid = {};
    bool version1 = false;  // RoCE v1: the kind of the GID it sends from
    uint32_t remote_qpn = 0;
    Link* link = nullptr;    // null: each datagram has its own
    uint32_t mtu = 4096;     // of the path, bytes of payload
    uint16_t flow_port = 0;  // UDP source port: the same for all packets, so that they take one path
    uint8_t traffic_class = 0, hop_limit = 64;
    bool remote_write_allowed = false, remote_read_allowed = false, remote_atomic_allowed = false;
    uint32_t q_key = 0;
    uint32_t most_fetches = 1, most_replies = 1;  // outstanding reads and atomics: as requester, as responder
    bool established = false;                     // the event that something arrived was told
    uint32_t retry_count = 0, rnr_retry = 0, ack_timeout = 0, min_rnr_nak = 0;
    uint64_t max_message_bytes = 0;

    // Dynamically connected (engine/dc.h). An initiator's connection is the one that it has now.
    std::unique_ptr<DcTarget> dc;  // of a target
    std::unique_ptr<DcStreams> streams;
    Qp* target = nullptr;     // of a connection: the target whose number it bears
    uint64_t connection = 0;  // 0: none
    uint64_t access_key = 0;  // of the target that an initiator is connected to
    uint64_t heard_ns = 0;    // a connection's last packet

    // Requester. Indices count basic blocks, modulo 2^16: retired <= next <= producer.
    uint16_t producer = 0, next = 0, retired = 0;
    Fifo<Message> sent;       // fetched and not yet retired, oldest first
    size_t cursor = 0;        // the message that goes out next; sent.size(): none
    uint32_t cursor_psn = 0;  // its next packet
    uint32_t next_psn = 0;    // of the next message that is fetched
    uint32_t fresh_psn = 0;   // the first that was never sent
    uint32_t acked_psn = 0;
    uint32_t asked_again =
        ~0u;                   // the lost response that was asked for again last: once is enough, then the timer counts
    uint32_t fetches = 0;      // reads and atomics among `sent` whose response is not complete
    uint64_t deadline_ns = 0;  // of the answer; 0: none awaited
    uint64_t first_try_ns = 0, rnr_until_ns = 0, rnr_since_ns = 0;
    uint32_t retries_left = 0, rnr_left = 0;
    gpu::Job scattered;  // the last response on the way into GPU memory
    uint64_t last_doorbell = 0;
    bool rang = false;
    uint16_t announced = 0;     // producer index that a doorbell implied and the record does not show yet
    uint64_t announced_ns = 0;  // since when; 0: none
    uint16_t unrung = 0;        // what the record says though nobody rang (engine/unrung.h)
    uint64_t unrung_ns = 0;     // since when; 0: it does not
    bool unrung_told = false;

    // Responder.
    uint32_t expected_psn = 0, msn = 0;
    bool gap_told = false, failing = false;
    uint16_t receive_next = 0;
    Receive receive;
    uint64_t write_address = 0, write_rest = 0, write_bytes = 0;
    uint32_t write_key = 0;
    gpu::Job placed;  // the last of what was written to GPU memory and is on its way there
    bool in_write = false, in_send = false;
    Fifo<Reply> replies;         // answers that found no room on the link, and fetched data
    uint32_t fetch_replies = 0;  // reads and atomics among them that are answered for the first time
    uint32_t again_replies = 0;  // and the others
    AtomicResult atomic_results[ATOMIC_RESULTS];
    uint32_t atomics_done = 0;

    bool busy = false, failed = false;  // on the lists below
    uint32_t place_on_page = 0;
};

struct PendingEvent {
    bool completion;
    uint32_t number;
    AsyncEvent type;
};

// A packet of an RDMA write that memory does not show yet: engine/ordering.h.
struct LateWrite {
    Span to;
    std::vector<uint8_t> bytes;
    const Qp* qp = nullptr;
    bool on_its_way = false;  // the transport has not brought it yet; else it is memory that does not show it
    uint32_t psn = 0, key = 0;
    uint32_t message = 0;  // the msn of its queue pair before it
    uint64_t message_address = 0, message_bytes = 0, offset = 0;
    uint64_t arrived_ns = 0;
};
struct Ordering {
    bool on = false;
    uint64_t random = 0;
    std::deque<LateWrite> late;  // in the order of their sequence numbers
};

struct DeviceState {
    std::mutex lock;
    std::atomic<int> callers{0};  // of public functions, waiting for the lock: see Hold
    Clock clock;
    Report report;
    Profile profile;
    Trace trace;
    Events events;
    uint32_t generation = 0;  // of the process: differs in a forked child
    uint64_t now_ns = 0;      // at the beginning of this step

    Table<Umem, (1 << 17) + 256> umems;  // 2^17: each key may have one, queues have two; low numbers stay free
    Table<Pd> pds;
    Table<Mkey, 1 << 17> keys;
    Table<UarPage> pages;
    Table<Cq> cqs;
    Table<Srq> srqs;
    Table<Xrcd> xrcds;
    uint64_t last_connection = 0;  // of all initiators
    Table<Qp> qps;                 // by the low 16 bits of the number
    Table<CounterSet, 256> counter_sets;
    CounterSet unnamed_set;         // number 0: of queue pairs that name none
    CounterSet cleared[MAX_PORTS];  // what a port had counted when a program set it to zero
    gpu::Copier copier;
    std::atomic<int> gpu_umems{0};        // the thread reads it without the lock
    std::vector<const Umem*> gpu_memory;  // those

    uint32_t slot = 0;
    uint32_t ports = 1;
    Gid gids[ALL_GIDS] = {};  // of each port GID_COUNT; all zero: empty
    bool gid_version1[ALL_GIDS] = {};
    std::unique_ptr<Port> port;
    std::unique_ptr<Live> live;  // for those who look from outside

    std::vector<UarPage*> page_list;
    size_t page_next = 0;            // of many pages: where the next step begins
    std::vector<UarPage*> sweeping;  // whose records are being looked at
    uint64_t unrung_look_ns = 0;     // records that nobody rang for (engine/unrung.h): when to look again, and where
    size_t unrung_page = 0, unrung_qp = 0;
    bool unrung_waits = false;
    std::vector<Qp*> busy;    // that send, wait or owe an answer
    std::vector<Qp*> failed;  // that are in error and have flushed what was posted
    size_t failed_next = 0;
    std::vector<PendingEvent> pending;
    int done = 0;  // things done in this step

    alignas(64) uint8_t wqe[1024];  // the WQE at hand
    std::vector<uint8_t> bounce;    // GPU payload on its way to another process
    Ordering ordering;
    std::string note;                  // of the packet at hand, for a capture
    std::unique_ptr<Shadows> shadows;  // of store-buffer mode (engine/shadow.h); null: off
    std::unique_ptr<Sources> sources;  // of watching what requests send (engine/sources.h); null: off
    std::vector<iovec> parts;          // of the payload at hand
    size_t command_bytes = 0;          // of the command at hand: some end in a list
    std::vector<uint8_t> window;       // basic blocks fetched from GPU memory
    const Qp* window_qp = nullptr;
    uint16_t window_first = 0, window_blocks = 0;

    // Background thread (engine/thread.cc).
    Device* device = nullptr;
    pthread_t thread = {};
    bool thread_runs = false;
    std::mutex thread_control;                 // who starts or stops it
    int thread_wake = -1;                      // eventfd: wakes it
    Watch watch;                               // how doorbells wake it
    bool ring_waits = false;                   // one of them waits for it; its own word
    std::atomic<uint64_t> asleep_until_ns{0};  // it sleeps; 0: it does not
    std::atomic<uint64_t> longest_sleep_ns{0};
    uint64_t due_ns = ~uint64_t{0};  // by its last step: when something may want it again, if nothing comes
    std::atomic<int> thread_mode{0};
    std::atomic<int> attached{0};              // doorbell pages
    std::atomic<uint64_t> outside_step_ns{0};  // last time another thread stepped
    std::atomic<uint64_t> outside_steps{0};

    Qp* qp(uint32_t number) const {
        Qp* found = (number >> 16) == slot ? qps.find(number & 0xffff) : nullptr;
        return found && found->number == number ? found : nullptr;
    }
    // Where entry `index` of a port's table lies in the two above.
    static uint32_t gid_place(uint32_t port, uint32_t index) { return (port - 1) * GID_COUNT + index; }
    bool has_gid(uint32_t port, uint32_t index) const {
        static const Gid empty = {};
        return index < GID_COUNT && std::memcmp(gids[gid_place(port, index)], empty, sizeof empty) != 0;
    }
    void look_at(Qp* qp) {
        if (qp->busy) return;
        qp->busy = true;
        busy.push_back(qp);
    }
};

// The lock, for everything but steps. Threads that step without a pause would take it again and again before one that
// was just woken for it; so they stay out while somebody waits.
class Hold {
   public:
    explicit Hold(DeviceState& s) : state_(s) {
        s.callers.fetch_add(1);
        s.lock.lock();
        s.callers.fetch_sub(1);
        s.trace.begin();
    }
    ~Hold() { state_.lock.unlock(); }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    DeviceState& state_;
};

// The process, counted by forks: a child differs from its parent.
uint32_t process_generation();

// Sequence numbers have 24 bits and go round.
inline uint32_t psn_add(uint32_t psn, uint32_t n) { return (psn + n) & 0xffffff; }
inline int32_t psn_difference(uint32_t a, uint32_t b) { return static_cast<int32_t>((a - b) << 8) >> 8; }

}  // namespace sim
