// SPDX-License-Identifier: Apache-2.0
// What the NIC complains about: every kind, once, with the rule that was broken, where that rule stands, and what to
// try. Used by every room that calls Report::say(), by steer.cc, and through it by Python; docs/checker.md is kept
// equal to this table by a test.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sim {

// name (in sentences and in Python with hyphens), the rule, document and section where it stands, what to try
#define SIM_COMPLAINTS(X)                                                                                              \
    X(wqe_stale, "a published slot holds the request with its own index, of its own queue pair",                       \
      "ConnectX PRM, Work Queue Entry Format, Control Segment",                                                        \
      "write the request before the doorbell record, with a barrier between them; compare index, QPN and ds")          \
    X(wqe_torn, "all blocks of a request are written before it is published", "ConnectX PRM, Work Queue Entry Format", \
      "write every block before the doorbell record, with a barrier between them")                                     \
    X(wqe_overwritten, "a slot is not written again before its request has completed",                                 \
      "ConnectX PRM, Work Queue Entry Format, Send Queue",                                                             \
      "reserve slots only up to the ring's size beyond the last completion")                                           \
    X(wqe_size, "ds counts the whole request in units of 16 bytes, the producer index in blocks of 64",                \
      "ConnectX PRM, Work Queue Entry Format, Control Segment",                                                        \
      "ds = bytes / 16; advance the producer index by ceil(ds / 4) for each request")                                  \
    X(wqe_opcode, "the opcode is one that this kind of queue pair has",                                                \
      "InfiniBand Architecture Specification, volume 1, Operations by transport",                                      \
      "look at the opcode's byte (the lowest of the first dword) and at the kind of the queue pair")                   \
    X(wqe_reserved_bits, "reserved bits are zero", "ConnectX PRM, Work Queue Entry Format",                            \
      "build the request from zeroed memory; compare with the field list of gda/formats/wqe.h")                        \
    X(wqe_segments, "the segments are those of the opcode, in its order", "ConnectX PRM, Work Queue Entry Format",     \
      "control, then remote address (write, read, atomic) or address vector, then data")                               \
    X(inline_flag_missing, "payload inside a request begins with a length that has bit 31 set",                        \
      "ConnectX PRM, Work Queue Entry Format, Inline Data Segment",                                                    \
      "set is_inline (0x80000000) in the dword before the payload")                                                    \
    X(length_unit, "byte_count is big-endian and counts bytes",                                                        \
      "ConnectX PRM, Work Queue Entry Format, Memory Pointer Data Segment",                                            \
      "store the number of bytes, swapped to big-endian once")                                                         \
    X(message_too_long, "a message has at most 2^30 bytes, and what its opcode needs",                                 \
      "InfiniBand Architecture Specification, volume 1, Message length",                                               \
      "cut it into several; for an empty message leave the data segment out: byte_count 0 means 2^31")                 \
    X(record_without_doorbell, "each increase of a doorbell record is followed by a doorbell",                         \
      "ConnectX PRM, Doorbells, Send Doorbell",                                                                        \
      "store the first 8 bytes of the last request to the doorbell register, after the record and a barrier")          \
    X(doorbell_without_record, "the doorbell record is stored before the doorbell",                                    \
      "ConnectX PRM, Doorbells, Doorbell Record",                                                                      \
      "store the producer index, big-endian, into the second dword of the record, then a barrier, then ring")          \
    X(record_went_back, "a doorbell record only grows, modulo 2^16", "ConnectX PRM, Doorbells, Doorbell Record",       \
      "let one thread at a time store it, in the order of the indices")                                                \
    X(record_wrong_word, "the send counter is the second dword of a queue pair's doorbell record",                     \
      "ConnectX PRM, Doorbells, Doorbell Record", "add 4 to the record's address: the first dword counts receives")    \
    X(sq_overrun, "at most as many blocks as the send queue has are posted and not completed",                         \
      "ConnectX PRM, Work Queue Entry Format, Send Queue",                                                             \
      "wait for a completion before a slot is taken again; make the send queue deeper")                                \
    X(doorbell_wrong_page, "a queue is rung at the doorbell page (UAR) that it was created with",                      \
      "ConnectX PRM, User Access Region",                                                                              \
      "take the page's address from the queue's own handle; each process and context has pages of its own")            \
    X(doorbell_unknown_queue, "a doorbell names a queue of this NIC", "ConnectX PRM, User Access Region",              \
      "the number is bits 8 to 31 of the doorbell's second dword, big-endian; is the queue destroyed already?")        \
    X(doorbell_in_reset, "a queue pair is rung in state RTS",                                                          \
      "InfiniBand Architecture Specification, volume 1, Queue Pair states", "connect it before anything is posted")    \
    X(blueflame_differs, "the work request in a BlueFlame register is the one in its slot",                            \
      "ConnectX PRM, Doorbells, BlueFlame", "copy the whole slot, after the record; a card may carry out either")      \
    X(doorbell_page_shared, "queue pairs without doorbell records do not share a doorbell page (model choice)",        \
      "software ConnectX, docs/simulator.md", "give each a page of its own")                                           \
    X(cq_overrun, "a completion queue never holds more than it has entries",                                           \
      "ConnectX PRM, Completion Queues, CQ overrun",                                                                   \
      "poll it more often, make it deeper, or create it with ignore-overrun")                                          \
    X(cq_consumer_never_written, "who reads completions stores the consumer index into the queue's record",            \
      "ConnectX PRM, Completion Queues, CQ Doorbell Record",                                                           \
      "store the index, big-endian, into the first dword of its record after reading")                                 \
    X(cq_doorbell_unknown, "a completion queue is armed at the page that it was created with",                         \
      "ConnectX PRM, Completion Queues, CQ Doorbell", "compare the number and the page with the queue's")              \
    X(receive_record, "the receive record counts posted receives and stays within the ring",                           \
      "ConnectX PRM, Doorbells, Doorbell Record",                                                                      \
      "post no more receives than the ring has entries; shared queues: link every entry to the next")                  \
    X(receive_too_short, "a receive is as long as the message that it takes",                                          \
      "InfiniBand Architecture Specification, volume 1, Responder length errors",                                      \
      "post longer receives, 40 bytes longer for datagrams")                                                           \
    X(receive_not_posted, "a receive is posted before the message that needs it arrives",                              \
      "InfiniBand Architecture Specification, volume 1, RNR NAK", "post receives before the peer sends")               \
    X(key_byte_swapped, "keys in a request are big-endian", "ConnectX PRM, Memory Key Context",                        \
      "swap the key's bytes once, when the request is written")                                                        \
    X(key_unknown, "a key names a registered region", "ConnectX PRM, Memory Key Context",                              \
      "use lkey for own memory and the peer's rkey for remote memory; is the region deregistered already?")            \
    X(key_other_domain, "key and queue pair belong to one protection domain",                                          \
      "InfiniBand Architecture Specification, volume 1, Protection Domains",                                           \
      "register the memory in the domain of the queue pair")                                                           \
    X(key_other_queue, "a key that belongs to one queue pair is used by no other", "ConnectX PRM, Memory Key Context", \
      "bind it to this queue pair, or use a region's own key")                                                         \
    X(key_free, "a window or free key stands for nothing until it is bound",                                           \
      "InfiniBand Architecture Specification, volume 1, Memory Windows",                                               \
      "bind it first; after an invalidation bind it again")                                                            \
    X(key_right_missing, "a region is registered with the right that is used",                                         \
      "InfiniBand Architecture Specification, volume 1, Memory Regions, access rights",                                \
      "register it with that right (remote rights need local write too, for writes and atomics)")                      \
    X(key_range, "address and length lie within the region",                                                           \
      "InfiniBand Architecture Specification, volume 1, Memory Regions",                                               \
      "compare address and length with the region's; are they of the region whose key is used?")                       \
    X(key_change, "a key is changed only in the ways that it was made for",                                            \
      "ConnectX PRM, Work Queue Entry Format, UMR", "look at the rights of the key and at what is bound already")      \
    X(operation_not_allowed, "a queue pair allows the operations that its peer asks for",                              \
      "InfiniBand Architecture Specification, volume 1, Queue Pair attributes",                                        \
      "allow it when the queue pair is moved to INIT (qp_access_flags)")                                               \
    X(request_refused, "requests follow the rules of the transport",                                                   \
      "InfiniBand Architecture Specification, volume 1, Responder errors",                                             \
      "look at the values; the peer gets an error completion")                                                         \
    X(refused_by_peer, "a request is one that the peer can and may carry out",                                         \
      "InfiniBand Architecture Specification, volume 1, NAK codes",                                                    \
      "the peer's own report says which key, range or right it was")                                                   \
    X(atomic_misaligned, "an atomic's address is a multiple of its size",                                              \
      "InfiniBand Architecture Specification, volume 1, Atomic Operations", "align the remote word")                   \
    X(memory_gone, "memory stays mapped until its key or queue is destroyed", "ibv_reg_mr(3)",                         \
      "deregister before memory is freed, unmapped or protected")                                                      \
    X(gpu_memory, "memory of a GPU stays allocated and reachable until its key or queue is destroyed",                 \
      "CUDA Driver API, Memory Management", "look at the CUDA error in the sentence")                                  \
    X(source_changed, "the source of a request is not written before its completion",                                  \
      "InfiniBand Architecture Specification, volume 1, Buffer ownership",                                             \
      "wait for the completion before the buffer is used again")                                                       \
    X(fence_missing, "payload is made visible to the system before the doorbell that sends it",                        \
      "PTX ISA, Memory Consistency Model; CUDA C++ Programming Guide, __threadfence_system",                           \
      "a fence of system scope between the stores of the payload and the post")                                        \
    X(signal_passed_data, "a signal is ordered behind the data that it announces",                                     \
      "PCI Express Base Specification, Transaction Ordering; InfiniBand volume 1, Ordering",                           \
      "signal through a key with strict ordering; over an unordered transport after the data's completion")            \
    X(retries_exceeded, "every request is answered within retry_cnt sends",                                            \
      "InfiniBand Architecture Specification, volume 1, Transport Timer",                                              \
      "is the peer alive, connected to this queue pair, and reachable? gda.diagnose(queue pair)")                      \
    X(other_gid, "packets come from the GID that the queue pair is connected to",                                      \
      "InfiniBand Architecture Specification, volume 1, annex A17 (RoCE v2)",                                          \
      "send from the GID index whose address was exchanged")                                                           \
    X(roce_version, "both ends use GIDs of one RoCE version",                                                          \
      "InfiniBand Architecture Specification, volume 1, annex A17 (RoCE v2)",                                          \
      "choose entries of the same type on both sides")                                                                 \
    X(other_port, "packets arrive at the port that the queue pair belongs to",                                         \
      "InfiniBand Architecture Specification, volume 1, Queue Pair attributes",                                        \
      "exchange a GID of that port (port_num at INIT)")                                                                \
    X(partition, "both ends have the same partition key",                                                              \
      "InfiniBand Architecture Specification, volume 1, Partitioning", "use P_Key index 0, the default partition")     \
    X(q_key, "a datagram carries the Q_Key of its receiver",                                                           \
      "InfiniBand Architecture Specification, volume 1, Q_Keys", "exchange the Q_Key with the queue pair's number")    \
    X(dc_access_key, "a dynamically connected request carries its target's access key",                                \
      "ConnectX PRM, Dynamically Connected Transport", "exchange the key with the target's number")                    \
    X(dc_streams, "a stream in error is reset before too many are", "ConnectX PRM, Dynamically Connected Transport",   \
      "reset a stream when its requests are flushed")                                                                  \
    X(bad_response, "a response has the length that was asked for",                                                    \
      "InfiniBand Architecture Specification, volume 1, RDMA READ", "look at the peer; capture the packets")           \
    X(command_refused, "firmware commands have fields that fit", "ConnectX PRM, Command Reference",                    \
      "the sentence names field and value")                                                                            \
    X(more, "at most 200 complaints are kept; the first tell most", "software ConnectX, docs/checker.md",              \
      "mend the first ones, or clear the report")                                                                      \
    X(configuration, "settings of the software NIC have values that it understands",                                   \
      "software ConnectX, docs/environment.md", "correct the variable")                                                \
    X(forked, "a NIC belongs to the process that opened it", "ibv_fork_init(3)", "open the NIC after the fork")        \
    X(internal, "the software NIC has the memory and the threads that it needs",                                       \
      "software ConnectX, docs/simulator.md", "look at the limits of the process (ulimit -a)")

enum class Kind : uint8_t {
#define SIM_NAME(name, rule, source, advice) name,
    SIM_COMPLAINTS(SIM_NAME)
#undef SIM_NAME
        count
};

struct KindWords {
    std::string name, rule, source, advice;
};
const KindWords& words_of(Kind kind);

// A number of a complaint. Names that all complaints share: qp, cq, srq (numbers), index (of a WQE, modulo 2^16).
struct Value {
    const char* name;
    uint64_t value;
};
typedef std::vector<Value> Values;

// Said once, with how often it happened.
struct Complaint {
    Kind kind;
    std::string sentence;
    Values values;
    uint64_t times;
};

// Why something is not possible, before it is known whose request it was: the second half of a sentence.
struct Why {
    Kind kind = Kind::request_refused;
    std::string words;
    Values values;

    Why() {}
    Why(const char* w) : words(w) {}             // NOLINT(google-explicit-constructor)
    Why(std::string w) : words(std::move(w)) {}  // NOLINT(google-explicit-constructor)
    Why(Kind k, std::string w, Values v = {}) : kind(k), words(std::move(w)), values(std::move(v)) {}
    Why of(Kind k) const { return Why(k, words, values); }
    Why before(const std::string& more) const { return Why(kind, words + more, values); }
    bool empty() const { return words.empty(); }
};
inline Why operator+(const std::string& first, const Why& why) { return Why(why.kind, first + why.words, why.values); }

}  // namespace sim
