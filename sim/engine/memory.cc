// SPDX-License-Identifier: Apache-2.0
// See memory.h.

#include "sim/engine/memory.h"

#include <cinttypes>

#include "sim/engine/shadow.h"
#include "sim/link/guard.h"

namespace sim {

namespace {

bool gone(DeviceState& s, const char* whose, const void* address, const char* what) {
    s.report.count(Counter::copy_faults);
    s.report.say(Kind::memory_gone,
                 text("%s: %s at %p is registered but no longer mapped (or not accessible): it was freed or protected "
                      "before its key or queue was destroyed",
                      whose, what, address),
                 about(whose, {{"address", reinterpret_cast<uint64_t>(address)}}));
    return false;
}

void said(DeviceState& s, const char* whose, const std::string& problem) {
    s.report.count(Counter::copy_faults);
    s.report.say(Kind::gpu_memory, std::string(whose) + ": " + problem, about(whose));
}

}  // namespace

Span payload_span(const DeviceState& s, const iovec& part) {
    Span span = plain_span(part.iov_base, part.iov_len);
    const uint64_t address = reinterpret_cast<uint64_t>(part.iov_base);
    for (const Umem* umem : s.gpu_memory) {
        if (address >= umem->address && address - umem->address < umem->bytes) span.gpu = umem->gpu;
    }
    return span;
}

namespace {

// One side at least is scattered: part by part.
Copied copy_parts(DeviceState& s, const Span& destination, uint64_t offset, const Span& source, const char* whose) {
    Copied copied = Copied::yes;
    uint64_t at = 0;
    const bool split_source = source.scattered != nullptr;
    const Span& split = split_source ? source : destination;
    const bool whole = each_part(s, split, split_source ? 0 : offset, source.bytes, [&](const Span& part) {
        copied = split_source ? copy(s, destination, offset + at, part, whose)
                              : copy(s, part, 0, plain_span(source.address + at, part.bytes, source.gpu), whose);
        at += part.bytes;
        return copied == Copied::yes;
    });
    if (whole || copied != Copied::yes) return copied;
    return split_source ? Copied::no_source : Copied::no_destination;
}

}  // namespace

Copied copy(DeviceState& s, const Span& destination, uint64_t offset, const Span& source, const char* whose) {
    if (destination.scattered || source.scattered) return copy_parts(s, destination, offset, source, whose);
    uint8_t* to = destination.address + offset;
    const uint64_t to_gpu = reinterpret_cast<uint64_t>(to);
    const uint64_t from_gpu = reinterpret_cast<uint64_t>(source.address);
    const size_t bytes = source.bytes;
    if (!destination.gpu && !source.gpu) {
        uintptr_t fault = 0;
        if (guarded_copy(to, source.address, bytes, &fault)) return shadow_wrote(s, to, bytes), Copied::yes;
        const bool at_source = fault - reinterpret_cast<uintptr_t>(source.address) < bytes;
        gone(s, whose, reinterpret_cast<void*>(fault), at_source ? "payload to be read" : "memory to be written");
        return at_source ? Copied::no_source : Copied::no_destination;
    }
    std::string problem;
    bool done;
    if (destination.gpu && source.gpu) {
        done = s.copier.within_gpu(destination.gpu, to_gpu, source.gpu, from_gpu, bytes, &problem);
    } else if (destination.gpu) {
        done = s.copier.to_gpu(destination.gpu, to_gpu, source.address, bytes, &problem);
    } else {
        done = s.copier.from_gpu(source.gpu, to, from_gpu, bytes, &problem);
        if (done) shadow_wrote(s, to, bytes);
    }
    if (done) return Copied::yes;
    if (problem.empty()) {  // the host's side of the copy is gone
        gone(s, whose, source.gpu ? to : source.address, source.gpu ? "memory to be written" : "payload to be read");
    } else {
        said(s, whose, problem);
    }
    return destination.gpu && !source.gpu && problem.empty() ? Copied::no_source : Copied::no_destination;
}

Copied copy_later(DeviceState& s, const Span& destination, uint64_t offset, const Span& source,
                  gpu::Copier::Order order, gpu::Job* job, const char* whose) {
    const bool on_gpu = destination.gpu && !destination.scattered && !source.scattered && source.bytes;
    if (!on_gpu) return s.copier.is_done(*job) ? copy(s, destination, offset, source, whose) : Copied::later;
    std::string problem;
    const uint64_t to = reinterpret_cast<uint64_t>(destination.address) + offset;
    switch (s.copier.copy_later(destination.gpu, to, source.gpu, reinterpret_cast<uint64_t>(source.address),
                                source.bytes, order, job, &problem)) {
        case gpu::Copier::Later::yes:
            return Copied::yes;
        case gpu::Copier::Later::not_now:
            return Copied::later;
        case gpu::Copier::Later::cannot:
            return copy(s, destination, offset, source, whose);
        case gpu::Copier::Later::no_source:
            if (problem.empty()) gone(s, whose, source.address, "payload to be read");
            if (!problem.empty()) said(s, whose, problem);
            return Copied::no_source;
        case gpu::Copier::Later::no_destination:
            break;
    }
    said(s, whose, problem);
    return Copied::no_destination;
}

uint8_t* bring_to_host(DeviceState& s, const Span& source, uint64_t offset, const char* whose) {
    s.bounce.resize(Inbox::PACKET_PAYLOAD_BYTES);
    const Span to = plain_span(s.bounce.data() + offset, source.bytes);
    return copy(s, to, 0, source, whose) == Copied::yes ? to.address : nullptr;
}

bool list_parts(DeviceState& s, const Span& span, uint64_t offset, uint64_t bytes, bool local, uint64_t* bounced,
                std::vector<iovec>* list, const char* whose) {
    const auto add = [&](const Span& part) {
        uint8_t* from = part.address;
        if (part.gpu && !local) {
            from = bring_to_host(s, part, *bounced, whose);
            if (!from) return false;
            *bounced += part.bytes;
        }
        iovec& last = list->emplace_back();
        last.iov_base = from;
        last.iov_len = part.bytes;
        return true;
    };
    // The ordinary span is spared the indirection.
    return span.scattered ? each_part(s, span, offset, bytes, add)
                          : add(plain_span(span.address + offset, bytes, span.gpu));
}

bool read_ring(DeviceState& s, const Region& region, uint64_t offset, void* to, size_t bytes, const char* whose) {
    const uint64_t address = region.address() + offset;
    if (region.umem->gpu) {
        std::string problem;
        if (s.copier.from_gpu(region.umem->gpu, to, address, bytes, &problem)) return true;
        said(s, whose, problem);
        return false;
    }
    const void* from = reinterpret_cast<const void*>(address);
    return guarded_copy(to, from, bytes) || gone(s, whose, from, "queue memory");
}

bool read_word(DeviceState& s, const Region& region, uint64_t offset, uint32_t* big_endian, const char* whose) {
    uint32_t word = 0;
    if (region.umem->gpu) {
        if (!read_ring(s, region, offset, &word, sizeof word, whose)) return false;
    } else {
        const void* from = reinterpret_cast<const void*>(region.address() + offset);
        if (!guarded_load32(from, &word)) return gone(s, whose, from, "a doorbell record");
    }
    *big_endian = word;
    return true;
}

bool read_word_and_ring(DeviceState& s, const Region& record, uint64_t record_offset, uint32_t* big_endian,
                        const Region& ring, uint64_t ring_offset, void* to, size_t bytes, const char* whose) {
    std::string problem;
    if (s.copier.from_gpu(record.umem->gpu, {big_endian, record.address() + record_offset, sizeof *big_endian},
                          {to, ring.address() + ring_offset, bytes}, &problem)) {
        return true;
    }
    said(s, whose, problem);
    return false;
}

bool publish(DeviceState& s, const Region& region, uint64_t offset, const void* from, size_t bytes, gpu::Job* job,
             const char* whose) {
    const uint64_t address = region.address() + offset;
    if (region.umem->gpu) {
        std::string problem;
        if (s.copier.hand_over(region.umem->gpu, address, from, bytes, job, &problem)) return true;
        said(s, whose, problem);
        return false;
    }
    void* to = reinterpret_cast<void*>(address);
    return guarded_publish(to, from, bytes) || gone(s, whose, to, "completion queue memory");
}

}  // namespace sim
