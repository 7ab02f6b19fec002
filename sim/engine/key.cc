// SPDX-License-Identifier: Apache-2.0
// See key.h.

#include "sim/engine/key.h"

#include <algorithm>
#include <cinttypes>

namespace sim {

namespace {

const int DEEPEST = 3;  // keys of pieces of keys of pieces: model choice

typedef std::function<bool(const Span&)> Visit;

const char* right_of(Access access) {
    switch (access) {
        case Access::local_read:
            return "local read";
        case Access::local_write:
            return "local write";
        case Access::remote_read:
            return "remote read";
        case Access::remote_write:
            return "remote write";
        case Access::remote_atomic:
            return "remote atomics";
    }
    return "?";
}

bool allows(const Mkey& key, Access access) {
    switch (access) {
        case Access::local_read:
            return key.local_read;
        case Access::local_write:
            return key.local_write;
        case Access::remote_read:
            return key.remote_read;
        case Access::remote_write:
            return key.remote_write;
        case Access::remote_atomic:
            return key.remote_atomic;
    }
    return false;
}

// What a peer may do with a key of pieces, the key may do with its pieces: they are used locally.
Access within(Access access) {
    return access == Access::local_read || access == Access::remote_read ? Access::local_read : Access::local_write;
}

// The key as it is written, or null and the reason.
const Mkey* find_exactly(const DeviceState& s, uint32_t key, Why* why) {
    const Mkey* mkey = s.keys.find(key >> 8);
    if (mkey && mkey->key == key) return mkey;
    const uint32_t swapped = gda::swap32(key);
    const Mkey* other = s.keys.find(swapped >> 8);
    *why = Why(Kind::key_unknown, text("key 0x%x does not exist", key), {{"key", key}});
    if (other && other->key == swapped) {
        *why =
            why->of(Kind::key_byte_swapped)
                .before(text(" (hint: 0x%08x is 0x%x byte-swapped, and that one exists: keys in a WQE are big-endian)",
                             key, swapped));
        why->values.push_back({"swapped", swapped});
    } else if (mkey) {
        *why = why->before(text(" (hint: 0x%x does: same index, another variant)", mkey->key));
    }
    return nullptr;
}

// The rights of the key itself, and its range.
bool permits(const Mkey& mkey, uint64_t address, uint64_t bytes, const Asker& asker, const Access* access, Why* why) {
    const uint32_t key = mkey.key;
    if (mkey.pd != asker.pd) {
        *why = Why(Kind::key_other_domain,
                   text("key 0x%x belongs to protection domain %u, the queue pair to %u", key, mkey.pd->number,
                        asker.pd->number),
                   {{"key", key}, {"domain", mkey.pd->number}, {"own_domain", asker.pd->number}});
        return false;
    }
    if (mkey.free) {
        *why = Why(Kind::key_free, text("key 0x%x is free: nothing was bound to it yet, or it was invalidated", key),
                   {{"key", key}});
        return false;
    }
    if (mkey.qpn != ANY_QP && asker.qpn != mkey.qpn) {
        *why = Why(Kind::key_other_queue,
                   text("key 0x%x belongs to queue pair 0x%06x alone, not to 0x%06x (0xffffff in its context: to all)",
                        key, mkey.qpn, asker.qpn),
                   {{"key", key}, {"owner", mkey.qpn}});
        return false;
    }
    if (access && !allows(mkey, *access)) {
        *why = Why(Kind::key_right_missing, text("key 0x%x does not allow %s", key, right_of(*access)),
                   {{"key", key}, {"address", address}, {"bytes", bytes}});
        return false;
    }
    if (!mkey.whole &&
        (address < mkey.start || address - mkey.start > mkey.bytes || bytes > mkey.bytes - (address - mkey.start))) {
        *why = Why(Kind::key_range,
                   text("0x%" PRIx64 "..+%" PRIu64 " is not within key 0x%x, which covers 0x%" PRIx64 "..+%" PRIu64,
                        address, bytes, key, mkey.start, mkey.bytes),
                   {{"key", key}, {"address", address}, {"bytes", bytes}, {"start", mkey.start}, {"room", mkey.bytes}});
        return false;
    }
    return true;
}

// Of a key of pieces only the range is judged here. Without `access` rights were judged before.
bool locate(const DeviceState& s, uint32_t key, uint64_t address, uint64_t bytes, const Asker& asker,
            const Access* access, Span* span, Why* why) {
    const Mkey* mkey = find_exactly(s, key, why);
    if (!mkey || !permits(*mkey, address, bytes, asker, access, why)) return false;
    span->bytes = bytes;
    span->gpu = nullptr;
    span->scattered = nullptr;
    span->relaxed = mkey->relaxed;
    if (mkey->layout) {
        const uint64_t offset = address - mkey->start;
        const uint64_t all = mkey->layout->round_bytes * mkey->layout->rounds;
        if (offset > all || bytes > all - offset) {
            *why = Why(
                Kind::key_range,
                text("0x%" PRIx64 "..+%" PRIu64 " is outside the %" PRIu64 " bytes that the pieces of key 0x%x have",
                     address, bytes, all, key),
                {{"key", key}, {"address", address}, {"bytes", bytes}});
            return false;
        }
        span->address = reinterpret_cast<uint8_t*>(offset);
        span->scattered = mkey;
        return true;
    }
    if (!mkey->umem) {
        span->address = reinterpret_cast<uint8_t*>(address);
        return true;
    }
    const uint64_t offset = mkey->offset + (address - mkey->start);
    if (offset > mkey->umem->bytes || bytes > mkey->umem->bytes - offset) {  // a key of every address over one umem
        *why = Why(Kind::key_range,
                   text("0x%" PRIx64 "..+%" PRIu64 " is outside the %" PRIu64 " bytes of memory behind key 0x%x",
                        address, bytes, mkey->umem->bytes, key),
                   {{"key", key}, {"address", address}, {"bytes", bytes}});
        return false;
    }
    span->address = reinterpret_cast<uint8_t*>(mkey->umem->address + offset);
    span->gpu = mkey->umem->gpu;
    return true;
}

bool walk(const DeviceState& s, const Mkey& mkey, uint64_t offset, uint64_t bytes, const Access* access, int depth,
          const Visit* visit, Why* why);

// One piece of a layout: checked, and its parts visited when somebody wants them.
bool walk_piece(const DeviceState& s, const Mkey& outer, uint32_t key, uint64_t address, uint64_t bytes,
                const Access* access, int depth, const Visit* visit, Why* why) {
    Span span;
    if (!locate(s, key, address, bytes, Asker(outer.pd, outer.qpn), access, &span, why)) return false;
    if (!span.scattered) return !visit || (*visit)(span);
    if (depth == DEEPEST) {
        *why = text("key 0x%x is made of keys of keys, deeper than %d", outer.key, DEEPEST);
        return false;
    }
    return walk(s, *span.scattered, reinterpret_cast<uint64_t>(span.address), bytes, access, depth + 1, visit, why);
}

bool walk(const DeviceState& s, const Mkey& mkey, uint64_t offset, uint64_t bytes, const Access* access, int depth,
          const Visit* visit, Why* why) {
    const Layout& layout = *mkey.layout;
    while (bytes) {
        const uint64_t round = offset / layout.round_bytes;
        const uint64_t inside = offset % layout.round_bytes;
        auto piece = std::upper_bound(layout.pieces.begin(), layout.pieces.end(), inside,
                                      [](uint64_t at, const Layout::Piece& p) { return at < p.at; });
        --piece;  // the first begins at 0
        const uint64_t skip = inside - piece->at;
        const uint64_t part = std::min(bytes, piece->bytes - skip);
        if (!walk_piece(s, mkey, piece->key, piece->address + round * piece->stride + skip, part, access, depth, visit,
                        why)) {
            return false;
        }
        offset += part;
        bytes -= part;
    }
    return true;
}

}  // namespace

Mkey* find_key(const DeviceState& s, uint32_t key, Why* why) {
    Mkey* mkey = s.keys.find(key >> 8);
    if (!mkey) find_exactly(s, key, why);
    return mkey;
}

bool resolve(const DeviceState& s, uint32_t key, uint64_t address, uint64_t bytes, const Asker& asker, Access access,
             Span* span, Why* why) {
    if (!locate(s, key, address, bytes, asker, &access, span, why)) return false;
    if (!span->scattered) return true;
    const Access inside = within(access);
    Why fault;
    if (walk(s, *span->scattered, reinterpret_cast<uint64_t>(span->address), bytes, &inside, 1, nullptr, &fault)) {
        return true;
    }
    *why = text("a piece of key 0x%x: ", key) + fault;
    return false;
}

bool each_part(const DeviceState& s, const Span& span, uint64_t offset, uint64_t bytes,
               const std::function<bool(const Span&)>& visit) {
    if (!span.scattered) return visit(plain_span(span.address + offset, bytes, span.gpu, span.relaxed));
    Why unused;
    return walk(s, *span.scattered, reinterpret_cast<uint64_t>(span.address) + offset, bytes, nullptr, 1, &visit,
                &unused);
}

}  // namespace sim
