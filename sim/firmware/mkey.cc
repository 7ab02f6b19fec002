// SPDX-License-Identifier: Apache-2.0
// Memory keys. Source: PRM, "CREATE_MKEY", "Memory Key Context".

#include <errno.h>

#include <algorithm>
#include <cinttypes>

#include "sim/engine/ordering.h"
#include "sim/engine/umr.h"
#include "sim/firmware/handlers.h"

namespace sim::firmware {

using namespace gda::prm;

namespace {

// The pieces that stand behind the struct, or room for those that a UMR will bring.
Answer read_list(const DeviceState& s, const uint8_t* in, uint32_t mode, Mkey* key) {
    const uint8_t* mkc = in + GDA_BYTE_OFFSET(create_mkey_in, memory_key_mkey_entry);
    const uint32_t most = 1u << LOG_MOST_TRANSLATIONS;
    const uint64_t count = GDA_GET(create_mkey_in, in, translations_octword_actual_size);
    const uint64_t room = GDA_GET(mkc, mkc, translations_octword_size);
    const size_t sent =
        s.command_bytes > GDA_BYTES_OF(create_mkey_in) ? s.command_bytes - GDA_BYTES_OF(create_mkey_in) : 0;
    if (count > most || room > most || count * GDA_BYTES_OF(wqe_umr_klm_seg) > sent) {
        return {Cause::translations, text("%" PRIu64 " pieces, room for %" PRIu64 " (at most %u), %zu bytes of list",
                                          count, room, most, sent)};
    }
    key->room = static_cast<uint32_t>(std::max(count, room));
    key->layout = std::make_unique<Layout>();
    const uint64_t each = mode == MKC_ACCESS_MODE_KSM ? uint64_t{1} << GDA_GET(mkc, mkc, log_page_size) : 0;
    read_pieces(in + GDA_BYTES_OF(create_mkey_in), static_cast<uint32_t>(count), each, key->layout.get());
    return {};
}

// What the struct asks for. Nothing is counted yet.
Answer read_key(DeviceState& s, const uint8_t* in, Mkey* key) {
    const uint8_t* mkc = in + GDA_BYTE_OFFSET(create_mkey_in, memory_key_mkey_entry);
    const uint32_t pdn = static_cast<uint32_t>(GDA_GET(mkc, mkc, pd));
    key->pd = s.pds.find(pdn);
    if (!key->pd) return {Cause::no_such_pd, text("PD %u", pdn)};
    const uint32_t mode =
        static_cast<uint32_t>(GDA_GET(mkc, mkc, access_mode_4_2) * 4 + GDA_GET(mkc, mkc, access_mode_1_0));
    const bool has_umem = GDA_GET(create_mkey_in, in, mkey_umem_valid) != 0;
    key->whole = GDA_GET(mkc, mkc, length64) != 0;
    const bool own_memory = mode == MKC_ACCESS_MODE_MEMIC;  // the driver's umem says where
    if (mode > MKC_ACCESS_MODE_KSM && !own_memory) return {Cause::access_mode, text("mode %u", mode)};
    if (GDA_GET(mkc, mkc, bsf_en)) return {Cause::access_mode, "bsf_en: signatures and encryption are not offered"};
    key->free = GDA_GET(mkc, mkc, free) != 0;
    key->changeable = GDA_GET(mkc, mkc, umr_en) != 0;
    key->remote_invalidate = GDA_GET(mkc, mkc, en_rinval) != 0;
    key->relaxed = GDA_GET(mkc, mkc, relaxed_ordering_write) != 0;
    key->qpn = static_cast<uint32_t>(GDA_GET(mkc, mkc, qpn));
    const bool of_pieces = mode == MKC_ACCESS_MODE_KLM || mode == MKC_ACCESS_MODE_KSM;
    if (of_pieces) {
        const Answer answer = read_list(s, in, mode, key);
        if (answer.cause != Cause::none) return answer;
    }
    if ((mode == MKC_ACCESS_MODE_MTT || own_memory) && !has_umem) return {Cause::umem_needed, "mkey_umem_valid is 0"};
    key->local_read = GDA_GET(mkc, mkc, lr) != 0;
    key->local_write = GDA_GET(mkc, mkc, lw) != 0;
    key->remote_read = GDA_GET(mkc, mkc, rr) != 0;
    key->remote_write = GDA_GET(mkc, mkc, rw) != 0;
    key->remote_atomic = GDA_GET(mkc, mkc, a) != 0;
    if ((key->remote_write || key->remote_atomic) && !key->local_write) return {Cause::remote_needs_local, ""};
    key->start = GDA_GET(mkc, mkc, start_addr);
    key->bytes = GDA_GET(mkc, mkc, len);
    if (!key->whole && !key->free && ((key->bytes == 0 && !own_memory) || key->start + key->bytes < key->start)) {
        return {Cause::key_range, text("0x%" PRIx64 "..+%" PRIu64, key->start, key->bytes)};
    }
    if (has_umem && !of_pieces) {
        const uint32_t id = static_cast<uint32_t>(GDA_GET(create_mkey_in, in, mkey_umem_id));
        key->umem = s.umems.find(id);
        if (!key->umem) return {Cause::no_such_umem, text("umem %u", id)};
        key->offset = GDA_GET(create_mkey_in, in, mkey_umem_offset);
        const bool fits =
            key->offset <= key->umem->bytes && (key->whole || key->bytes <= key->umem->bytes - key->offset);
        if (!fits) {
            return {Cause::key_range, text("%" PRIu64 " bytes at offset %" PRIu64 " of umem %u, which has %" PRIu64,
                                           key->bytes, key->offset, id, key->umem->bytes)};
        }
    } else if (!key->whole) {
        key->offset = 0;  // addresses as they are, within start..start + bytes
    }
    return {};
}

void count_uses(const Mkey& key, int change) {
    key.pd->uses += change;
    if (key.umem) key.umem->uses += change;
}

}  // namespace

Answer create_mkey(DeviceState& s, const uint8_t* in, uint8_t* out) {
    const uint8_t* mkc = in + GDA_BYTE_OFFSET(create_mkey_in, memory_key_mkey_entry);
    auto key = std::make_unique<Mkey>();
    const Answer answer = read_key(s, in, key.get());
    if (answer.cause != Cause::none) return answer;
    const uint32_t index = s.keys.free_index(FIRST_KEY);
    if (index >= s.keys.LIMIT || s.keys.size() >= MAX_KEYS) return {Cause::table_full, "memory keys"};
    const uint32_t variant = static_cast<uint32_t>(GDA_GET(mkc, mkc, mkey_7_0));
    key->key = index * 256 + variant;  // a key is its index and the program's byte
    count_uses(*key, 1);
    s.keys.put(index, std::move(key));
    GDA_SET(create_mkey_out, out, mkey_index, index);
    return {};
}

Answer destroy_mkey(DeviceState& s, const uint8_t* in, uint8_t* out) {
    (void)out;
    const uint32_t index = static_cast<uint32_t>(GDA_GET(destroy_mkey_in, in, mkey_index));
    Mkey* key = s.keys.find(index);
    if (!key) return {Cause::no_such_key, text("index 0x%x", index)};
    place_all(s);
    count_uses(*key, -1);
    s.keys.erase(index);
    return {};
}

}  // namespace sim::firmware

namespace sim {

int Device::rewrite_key(uint32_t index, const void* in) {
    DeviceState& s = *state_;
    Hold hold(s);
    Mkey* key = s.keys.find(index);
    if (!key) return -ENOENT;
    Mkey wanted;
    const auto answer = firmware::read_key(s, static_cast<const uint8_t*>(in), &wanted);
    if (answer.cause != firmware::Cause::none) return -EINVAL;
    place_all(s);
    firmware::count_uses(*key, -1);
    firmware::count_uses(wanted, 1);
    wanted.key = key->key;
    *key = std::move(wanted);
    return 0;
}

}  // namespace sim
