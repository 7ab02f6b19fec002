// SPDX-License-Identifier: Apache-2.0
// See events.h. One lock guards the tables and the channels: an event is a rare thing beside a completion.
#include "sim/uverbs/events.h"

#include <errno.h>
#include <fcntl.h>
#include <gda/formats/event.h>
#include <rdma/ib_user_verbs.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <mutex>
#include <vector>

#include "sim/engine/device.h"
#include "sim/uverbs/nic.h"
#include "sim/uverbs/real.h"

namespace sim::uverbs {
namespace {

using Key = std::pair<int, uint32_t>;  // the NIC, and the number there
Key key(uint32_t number) { return {Nic::current(), number}; }
using Listeners = std::multimap<Key, events::Listener>;

struct Tables {
    std::mutex mutex;
    Listeners cqs, qps, srqs;
    std::map<Channel*, int> asynchronous;  // those that are open, and of which NIC
    std::map<std::pair<events::Subject, Key>, std::map<uint32_t, std::vector<events::Subscription>>> subscribed;
};
Tables& tables() {
    static Tables* instance = new Tables;  // leaked: the engine's thread may outlive static destruction
    return *instance;
}

}  // namespace

std::shared_ptr<Channel> Channel::make(Carries what) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) return nullptr;
    const int drain = fcntl(pair[0], F_DUPFD_CLOEXEC, 0);
    if (drain < 0) {
        real::close(pair[0]);
        real::close(pair[1]);
        return nullptr;
    }
    return std::shared_ptr<Channel>(new Channel(what, pair[0], drain, pair[1]));
}

Channel::~Channel() {
    if (writer_ >= 0) real::close(writer_);
    if (drain_ >= 0) real::close(drain_);
}

void Channel::flush() {
    while (!waiting_.empty()) {
        const std::string& record = waiting_.front();
        if (::send(writer_, record.data(), record.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
            if (errno == EPIPE) waiting_.clear();
            return;
        }
        waiting_.pop_front();
    }
}

void Channel::send(const void* record, size_t bytes) {
    if (writer_ < 0) return;
    waiting_.emplace_back(static_cast<const char*>(record), bytes);
    flush();
}

uint32_t Channel::withdraw(uint64_t element) {
    if (writer_ < 0) return 0;
    std::vector<std::string> kept;
    uint32_t taken = 0;
    const auto sort = [&](std::string record) {
        uint64_t first = 0;
        memcpy(&first, record.data(), std::min(sizeof first, record.size()));
        if (first == element)
            ++taken;
        else
            kept.push_back(std::move(record));
    };
    char record[64];  // completion and asynchronous records, and bare cookies
    ssize_t bytes;
    while ((bytes = recv(drain_, record, sizeof record, MSG_DONTWAIT)) > 0)
        sort(std::string(record, static_cast<size_t>(bytes)));
    for (auto& waiting : waiting_) sort(std::move(waiting));
    waiting_.assign(kept.begin(), kept.end());
    flush();
    return taken;
}

void Channel::close() {
    std::lock_guard<std::mutex> guard(tables().mutex);
    tables().asynchronous.erase(this);
    if (writer_ >= 0) real::close(writer_);
    if (drain_ >= 0) real::close(drain_);
    writer_ = drain_ = -1;
    waiting_.clear();
}

namespace events {

void add_cq(uint32_t cqn, Listener listener) {
    std::lock_guard<std::mutex> guard(tables().mutex);
    tables().cqs.emplace(key(cqn), std::move(listener));
}
void add_qp(uint32_t qpn, Listener listener) {
    std::lock_guard<std::mutex> guard(tables().mutex);
    tables().qps.emplace(key(qpn), std::move(listener));
}
void add_srq(uint32_t srqn, Listener listener) {
    std::lock_guard<std::mutex> guard(tables().mutex);
    tables().srqs.emplace(key(srqn), std::move(listener));
}

namespace {

Reported remove(Listeners& table, uint32_t number, std::optional<uint64_t> user_handle = {}) {
    std::lock_guard<std::mutex> guard(tables().mutex);
    auto [found, end] = table.equal_range(key(number));
    while (found != end && user_handle && found->second.user_handle != *user_handle) ++found;
    if (found == end) return {};
    Listener listener = std::move(found->second);
    table.erase(found);
    Reported reported{listener.completions_sent, listener.asynchronous_sent};
    if (listener.completion) reported.completions -= listener.completion->withdraw(listener.user_handle);
    if (listener.asynchronous) reported.asynchronous -= listener.asynchronous->withdraw(listener.user_handle);
    return reported;
}

}  // namespace

Reported remove_cq(uint32_t cqn) { return remove(tables().cqs, cqn); }
Reported remove_qp(uint32_t qpn, std::optional<uint64_t> user_handle) { return remove(tables().qps, qpn, user_handle); }
Reported remove_srq(uint32_t srqn) { return remove(tables().srqs, srqn); }

namespace {

using namespace gda::prm;

struct Kind {
    Subject subject;
    Listeners& listeners;
    uint32_t event;  // as the firmware calls it
};

Kind kind_of(AsyncEvent event) {
    Tables& t = tables();
    switch (event) {
        case AsyncEvent::cq_error:
            return {Subject::cq, t.cqs, MLX5_EVENT_TYPE_CQ_ERROR};
        case AsyncEvent::srq_error:
            return {Subject::srq, t.srqs, MLX5_EVENT_TYPE_SRQ_CATAS_ERROR};
        case AsyncEvent::srq_limit:
            return {Subject::srq, t.srqs, MLX5_EVENT_TYPE_SRQ_RQ_LIMIT};
        case AsyncEvent::qp_request_error:
            return {Subject::qp, t.qps, MLX5_EVENT_TYPE_WQ_INVAL_REQ_ERROR};
        case AsyncEvent::qp_access_error:
            return {Subject::qp, t.qps, MLX5_EVENT_TYPE_WQ_ACCESS_ERROR};
        case AsyncEvent::qp_established:
            return {Subject::qp, t.qps, MLX5_EVENT_TYPE_COMM_EST};
        case AsyncEvent::qp_last_wqe:
            return {Subject::qp, t.qps, MLX5_EVENT_TYPE_SRQ_LAST_WQE};
        case AsyncEvent::qp_fatal:
            break;
    }
    return {Subject::qp, t.qps, MLX5_EVENT_TYPE_WQ_CATAS_ERROR};
}

// What a DEVX channel carries: the program's cookie, then the event queue entry.
struct FirmwareRecord {
    uint64_t cookie;
    uint8_t entry[GDA_BYTES_OF(eqe)];
};

void fill_entry(uint8_t* entry, Subject subject, uint32_t number, uint32_t event) {
    GDA_SET(eqe, entry, event_type, event);
    uint8_t* data = entry + GDA_BYTE_OFFSET(eqe, event_data);
    if (event == MLX5_EVENT_TYPE_COMP)
        GDA_SET(comp_event, data, cq_number, number);
    else if (subject == Subject::cq)
        GDA_SET(cq_error, data, cqn, number);
    else
        GDA_SET(qp_events, data, qpn_rqn_sqn, number);
}

// With the tables' lock held.
void tell_subscribers(Subject subject, const Key& object_key, uint32_t event) {
    auto object = tables().subscribed.find({subject, object_key});
    if (object == tables().subscribed.end()) return;
    auto found = object->second.find(event);
    if (found == object->second.end()) return;
    FirmwareRecord record{};
    fill_entry(record.entry, subject, object_key.second, event);
    for (const Subscription& subscription : found->second) {
        const auto channel = subscription.channel.lock();
        if (!channel) continue;
        if (subscription.eventfd >= 0) {
            const uint64_t one = 1;
            (void)!real::write(subscription.eventfd, &one, sizeof one);
            continue;
        }
        record.cookie = subscription.cookie;
        const bool bare = channel->carries() == Channel::Carries::firmware_without_data;
        if (bare) channel->withdraw(subscription.cookie);  // one unread record a subscription is enough
        channel->send(&record, bare ? sizeof record.cookie : sizeof record);
    }
}

}  // namespace

void subscribe(Subject subject, uint32_t number, uint32_t event, Subscription subscription) {
    std::lock_guard<std::mutex> guard(tables().mutex);
    tables().subscribed[{subject, key(number)}][event].push_back(std::move(subscription));
}

void unsubscribe(Subject subject, uint32_t number) {
    std::lock_guard<std::mutex> guard(tables().mutex);
    auto object = tables().subscribed.find({subject, key(number)});
    if (object == tables().subscribed.end()) return;
    for (const auto& [event, subscriptions] : object->second)
        for (const Subscription& subscription : subscriptions)
            if (subscription.eventfd >= 0) real::close(subscription.eventfd);
    tables().subscribed.erase(object);
}

void listen(const std::shared_ptr<Channel>& channel) {
    std::lock_guard<std::mutex> guard(tables().mutex);
    tables().asynchronous[channel.get()] = Nic::current();
}

int raise(int event, int nic, uint32_t port) {
    const bool of_port =
        (event >= port_active && event <= sm_change) || event == client_reregister || event == gid_change;
    if ((!of_port && event != device_fatal) || !Nic::has_port(port)) return -EINVAL;
    std::lock_guard<std::mutex> guard(tables().mutex);
    ib_uverbs_async_event_desc record{};
    record.element = of_port ? port : 0;
    record.event_type = static_cast<uint32_t>(event);
    int told = 0;
    for (const auto& [channel, owner] : tables().asynchronous) {
        if (owner != nic) continue;
        channel->send(&record, sizeof record);
        ++told;
    }
    return told;
}

void send(Channel& channel, const void* record, size_t bytes) {
    std::lock_guard<std::mutex> guard(tables().mutex);
    channel.send(record, bytes);
}

void completion(int nic, uint32_t cqn) {
    std::lock_guard<std::mutex> guard(tables().mutex);
    tell_subscribers(Subject::cq, {nic, cqn}, MLX5_EVENT_TYPE_COMP);
    auto found = tables().cqs.find({nic, cqn});
    if (found == tables().cqs.end() || !found->second.completion) return;
    const ib_uverbs_comp_event_desc record{found->second.user_handle};
    found->second.completion->send(&record, sizeof record);
    ++found->second.completions_sent;
}

void asynchronous(int nic, uint32_t number, int event) {
    std::lock_guard<std::mutex> guard(tables().mutex);
    const Kind kind = kind_of(static_cast<AsyncEvent>(event));
    tell_subscribers(kind.subject, {nic, number}, kind.event);
    auto [listener, end] = kind.listeners.equal_range({nic, number});
    for (; listener != end; ++listener) {
        if (!listener->second.asynchronous) continue;
        ib_uverbs_async_event_desc record{};
        record.element = listener->second.user_handle;
        record.event_type = static_cast<uint32_t>(event);  // AsyncEvent has the numbers of enum ib_event_type
        listener->second.asynchronous->send(&record, sizeof record);
        ++listener->second.asynchronous_sent;
    }
}

void lock() { tables().mutex.lock(); }
void unlock() { tables().mutex.unlock(); }
void forget() {
    tables().cqs.clear();
    tables().qps.clear();
    tables().srqs.clear();
    tables().subscribed.clear();
    tables().asynchronous.clear();
}

}  // namespace events
}  // namespace sim::uverbs
