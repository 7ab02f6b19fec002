// SPDX-License-Identifier: Apache-2.0
// Events on their way to the program: completion channels and the asynchronous channel of each context, and the
// table that tells which channel wants to hear about which CQ or QP. The engine calls in from step(), on any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

namespace sim::uverbs {

// The far end of a file descriptor that the program reads, polls or makes non-blocking as it likes: one record per
// read, so it is a SEQPACKET socket pair.
class Channel {
   public:
    enum class Carries { completions, asynchronous, firmware, firmware_without_data, commands };
    // Null with errno set when no descriptors are left. reader() then belongs to the program.
    static std::shared_ptr<Channel> make(Carries what);
    ~Channel();
    Channel(const Channel&) = delete;
    Channel& operator=(const Channel&) = delete;

    int reader() const { return reader_; }
    Carries carries() const { return carries_; }
    void send(const void* record, size_t bytes);
    // Takes back the records that the program has not read and whose first eight bytes are `element`; how many.
    // libibverbs waits on destroy until it has acknowledged all that were reported: only those it read may count.
    uint32_t withdraw(uint64_t element);
    // The program closed its end, or the context did: readers see end of file.
    void close();

   private:
    Channel(Carries what, int reader, int drain, int writer)
        : carries_(what), reader_(reader), drain_(drain), writer_(writer) {}
    void flush();
    const Carries carries_;
    int reader_, drain_, writer_;      // drain_ is our own descriptor of the reader's end
    std::deque<std::string> waiting_;  // records for which the socket had no room
};

namespace events {

// A CQ's, QP's or SRQ's place in the table while it exists. user_handle comes back in the records. Numbers are those of
// the NIC that this thread works for (Nic::Use). A queue pair that several contexts have opened has one for each.
struct Listener {
    uint64_t user_handle = 0;
    std::shared_ptr<Channel> completion;    // null: the CQ has no completion channel
    std::shared_ptr<Channel> asynchronous;  // null: the context has none
    uint32_t completions_sent = 0, asynchronous_sent = 0;
};
struct Reported {
    uint32_t completions = 0, asynchronous = 0;  // records that the program has read, or will
};

void add_cq(uint32_t cqn, Listener listener);
void add_qp(uint32_t qpn, Listener listener);
void add_srq(uint32_t srqn, Listener listener);
Reported remove_cq(uint32_t cqn);
Reported remove_qp(uint32_t qpn, std::optional<uint64_t> user_handle = {});  // not given: it has one listener
Reported remove_srq(uint32_t srqn);

// DEVX: a program subscribes to events of a firmware object of its own. `event` is an event_type of formats/event.h.
enum class Subject { cq, qp, srq };
struct Subscription {
    std::weak_ptr<Channel> channel;
    uint64_t cookie = 0;
    int eventfd = -1;  // our own copy, closed with the subscription; -1: the event goes to the channel
};
void subscribe(Subject subject, uint32_t number, uint32_t event, Subscription subscription);
void unsubscribe(Subject subject, uint32_t number);  // when the object ends

// The channel hears of events of the device and the port until it is closed.
void listen(const std::shared_ptr<Channel>& channel);

// IB_EVENT_*: not in the ABI headers, the numbers of libibverbs' enum ibv_event_type.
enum : int {
    device_fatal = 8,
    port_active = 9,
    port_error = 10,
    sm_change = 13,
    client_reregister = 17,
    gid_change = 18,
};

// An event of a NIC or of one of its ports (enum ib_event_type), to the asynchronous channel of every context of it.
// How many channels heard it, or -EINVAL.
int raise(int event, int nic, uint32_t port);

// A record that no event makes: the answer of an asynchronous command.
void send(Channel& channel, const void* record, size_t bytes);

// From the engine (struct Events of engine/device.h).
void completion(int nic, uint32_t cqn);
void asynchronous(int nic, uint32_t number, int event);

void lock();  // around fork()
void unlock();
void forget();  // in the child, with the lock held

}  // namespace events
}  // namespace sim::uverbs
