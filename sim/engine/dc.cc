// SPDX-License-Identifier: Apache-2.0
// See dc.h.

#include "sim/engine/dc.h"

#include <algorithm>
#include <cinttypes>
#include <cstring>

#include "sim/engine/packet.h"
#include "sim/engine/receive.h"
#include "sim/engine/requester.h"
#include "sim/engine/retry.h"

namespace sim {

using namespace gda::prm;

namespace {

// A connection with nothing to do ends: the initiator begins another one after a short time, the target forgets one
// after a time that no packet of it can have been on its way. So the target never forgets one that is still used.
const uint64_t INITIATOR_IDLE_NS = seconds(1);
const uint64_t TARGET_IDLE_NS = seconds(60);
const size_t MOST_CONNECTIONS = 4096;  // of a target: the one that was idle longest makes room

const uint8_t* dceth_of(const Packet& packet) { return packet.header + GDA_BYTES_OF(bth); }

std::string initiator_of(const Packet& packet) {
    std::string key(reinterpret_cast<const char*>(packet.source), sizeof packet.source);
    const uint32_t number = static_cast<uint32_t>(GDA_GET(dceth, dceth_of(packet), src_qp));
    return key.append(reinterpret_cast<const char*>(&number), sizeof number);
}

void end(DeviceState& s, Qp* connection) {
    if (connection->receive.open) flush_receives(s, connection);
    forget(s, connection);
}

// Makes room in the table of a target. Of the connections that are forgotten, none is at work.
void forget_idle(DeviceState& s, DcTarget* dc) {
    auto oldest = dc->connections.end();
    for (auto at = dc->connections.begin(); at != dc->connections.end();) {
        Qp* connection = at->second.get();
        if (s.now_ns - connection->heard_ns > TARGET_IDLE_NS) {
            if (oldest == at) oldest = dc->connections.end();
            end(s, connection);
            at = dc->connections.erase(at);
            continue;
        }
        if (oldest == dc->connections.end() || connection->heard_ns < oldest->second->heard_ns) oldest = at;
        ++at;
    }
    if (dc->connections.size() < MOST_CONNECTIONS || oldest == dc->connections.end()) return;
    end(s, oldest->second.get());
    dc->connections.erase(oldest);
}

std::unique_ptr<Qp> connect(const DeviceState& s, Qp* target, const Packet& packet) {
    auto made = std::make_unique<Qp>();
    made->counter_set = target->counter_set;
    made->number = target->number;
    made->port = target->port;
    std::memcpy(made->name, target->name, sizeof made->name);
    made->transport = target->transport;
    made->target = target;
    made->state = MLX5_QPC_STATE_RTR;
    made->established = true;
    made->pd = target->pd;
    made->srq = target->srq;
    made->receive_cq = target->receive_cq;
    made->user_index = target->user_index;
    std::memcpy(made->local_gid, packet.destination, sizeof made->local_gid);
    std::memcpy(made->remote_gid, packet.source, sizeof made->remote_gid);
    made->version1 = packet.version1;
    made->mtu = target->mtu;
    made->traffic_class = target->traffic_class;
    made->hop_limit = target->hop_limit;
    made->remote_write_allowed = target->remote_write_allowed;
    made->remote_read_allowed = target->remote_read_allowed;
    made->remote_atomic_allowed = target->remote_atomic_allowed;
    made->most_replies = ATOMIC_RESULTS;
    made->min_rnr_nak = target->min_rnr_nak;
    made->max_message_bytes = target->max_message_bytes;
    made->remote_qpn = static_cast<uint32_t>(GDA_GET(dceth, dceth_of(packet), src_qp));
    made->flow_port = flow_port_of(made->number, made->remote_qpn);
    made->link = s.port->route(made->remote_gid);
    made->connection = GDA_GET(dceth, dceth_of(packet), connection);
    return made;
}

}  // namespace

bool must_turn(const DeviceState& s, const Qp* qp, const ParsedWqe& wqe) {
    if (qp->streams && qp->streams->current != wqe.stream) return true;
    if (!qp->connection || qp->remote_qpn != wqe.to_qpn || qp->access_key != wqe.access_key ||
        std::memcmp(qp->remote_gid, wqe.to_gid, sizeof qp->remote_gid) != 0 ||
        std::memcmp(qp->local_gid, s.gids[wqe.from_gid], sizeof qp->local_gid) != 0) {
        return true;
    }
    const bool idle = qp->cursor == 0 && qp->cursor_psn == qp->fresh_psn &&
                      qp->sent.front().first_psn == qp->fresh_psn;  // all before it is answered, nothing of it was sent
    return idle && s.now_ns - qp->first_try_ns > INITIATOR_IDLE_NS;
}

void turn(DeviceState& s, Qp* qp, const ParsedWqe& wqe, Message* m) {
    s.last_connection = std::max(s.now_ns, s.last_connection + 1);  // greater than that of any earlier process
    qp->connection = s.last_connection;
    if (qp->streams) qp->streams->current = wqe.stream;
    qp->access_key = wqe.access_key;
    qp->remote_qpn = wqe.to_qpn;
    std::memcpy(qp->remote_gid, wqe.to_gid, sizeof qp->remote_gid);
    std::memcpy(qp->local_gid, s.gids[wqe.from_gid], sizeof qp->local_gid);
    qp->version1 = s.gid_version1[wqe.from_gid];
    qp->traffic_class = wqe.traffic_class;
    qp->hop_limit = wqe.hop_limit ? wqe.hop_limit : static_cast<uint8_t>(DEFAULT_HOP_LIMIT);
    qp->flow_port = wqe.flow_port ? wqe.flow_port : flow_port_of(qp->number, qp->remote_qpn);
    qp->link = s.port->route(qp->remote_gid);
    m->first_psn = qp->cursor_psn = qp->fresh_psn = 0;
    qp->next_psn = m->packets;
    qp->acked_psn = psn_add(0, 0xffffff);
    qp->asked_again = ~0u;
    qp->deadline_ns = qp->rnr_until_ns = qp->rnr_since_ns = 0;
    qp->first_try_ns = s.now_ns;
    qp->retries_left = qp->retry_count;
    qp->rnr_left = qp->rnr_retry;
}

bool end_stream(DeviceState& s, Qp* qp, const Message& failed) {
    if (!qp->streams || qp->state != MLX5_QPC_STATE_RTS) return false;
    DcStreams& streams = *qp->streams;
    if (streams.errored.insert(failed.stream).second && streams.errored.size() >= streams.most_errored) {
        s.report.say(Kind::dc_streams,
                     text("%s: %zu streams are in error, as many as it may have (log_num_dci_errored_streams): it goes "
                          "to the error state; reset a stream when its work requests are flushed",
                          qp->name, streams.errored.size()),
                     {{"qp", qp->number}, {"streams", streams.errored.size()}});
        return false;
    }
    if (streams.current != failed.stream || !qp->connection) return true;  // nothing of it was sent
    // Its connection ends with it. Of what was fetched, the last may be another stream's, which waits for its turn.
    while (!qp->sent.empty() && qp->sent.front().stream == failed.stream) flush_oldest(s, qp);
    qp->connection = 0;
    qp->deadline_ns = qp->rnr_until_ns = qp->rnr_since_ns = 0;
    s.look_at(qp);
    return true;
}

bool of_connection(const Qp* qp, const Packet& packet) {
    return qp->connection && GDA_GET(dceth, dceth_of(packet), connection) == qp->connection &&
           GDA_GET(dceth, dceth_of(packet), src_qp) == qp->remote_qpn;
}

Qp* connection_of(DeviceState& s, Qp* target, const Packet& packet) {
    DcTarget* dc = target->dc.get();
    const uint8_t* dceth = dceth_of(packet);
    if (GDA_GET(dceth, dceth, access_key) != dc->access_key) {
        ++dc->violations;
        s.report.say(Kind::dc_access_key,
                     text("%s: dropped a packet with the access key 0x%" PRIx64 " from queue pair 0x%06x: this DCT has "
                          "another one; the initiator will say that nobody answers",
                          target->name, static_cast<uint64_t>(GDA_GET(dceth, dceth, access_key)),
                          static_cast<uint32_t>(GDA_GET(dceth, dceth, src_qp))),
                     {{"qp", target->number}, {"access_key", GDA_GET(dceth, dceth, access_key)}});
        return nullptr;
    }
    const uint64_t number = GDA_GET(dceth, dceth, connection);
    const std::string initiator = initiator_of(packet);
    auto found = dc->connections.find(initiator);
    if (found != dc->connections.end() && number < found->second->connection) return nullptr;  // of an earlier one
    if (found == dc->connections.end() || number > found->second->connection) {
        if (found != dc->connections.end()) {
            end(s, found->second.get());
            dc->connections.erase(found);
        } else {
            forget_idle(s, dc);
        }
        found = dc->connections.emplace(initiator, connect(s, target, packet)).first;
    }
    Qp* connection = found->second.get();
    connection->heard_ns = s.now_ns;
    return connection->state == MLX5_QPC_STATE_RTR ? connection : nullptr;  // else it was refused
}

void end_connections(DeviceState& s, Qp* target) {
    for (auto& connection : target->dc->connections) end(s, connection.second.get());
    target->dc->connections.clear();
}

void add_dceth(const Qp* qp, Packet* packet) {
    uint8_t* at = packet->header + packet->header_bytes;
    GDA_SET(dceth, at, access_key, qp->dc_initiator() ? qp->access_key : 0);
    GDA_SET(dceth, at, connection, qp->connection);
    GDA_SET(dceth, at, src_qp, qp->number);
    packet->header_bytes += GDA_BYTES_OF(dceth);
}

}  // namespace sim
