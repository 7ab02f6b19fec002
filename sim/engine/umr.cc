// SPDX-License-Identifier: Apache-2.0
// See umr.h.

#include "sim/engine/umr.h"

#include <cinttypes>

#include "sim/engine/ordering.h"
#include "sim/engine/vendor.h"

namespace sim {

using namespace gda::prm;

namespace {

const uint32_t CONTROL_SEGMENTS = 1 + GDA_BYTES_OF(wqe_umr_ctrl_seg) / WQE_SEGMENT_BYTES;
const uint32_t HEAD_SEGMENTS = CONTROL_SEGMENTS + GDA_BYTES_OF(mkc) / WQE_SEGMENT_BYTES;

void add(Layout* layout, uint64_t bytes, uint64_t address, uint32_t key, uint32_t stride) {
    if (!bytes) return;
    layout->pieces.push_back({layout->round_bytes, bytes, address, key, stride});
    layout->round_bytes += bytes;
}

// A block of pieces that repeat. False: its entries do not fit.
bool read_block(const uint8_t* block, uint32_t count, Layout* layout) {
    const uint32_t entries = static_cast<uint32_t>(GDA_GET(wqe_umr_repeat_block_seg, block, num_ent));
    if (entries + 1 > count) return false;
    layout->rounds = GDA_GET(wqe_umr_repeat_block_seg, block, repeat_count);
    for (uint32_t i = 1; i <= entries; ++i) {
        const uint8_t* entry = block + i * WQE_SEGMENT_BYTES;
        add(layout, GDA_GET(wqe_umr_repeat_ent_seg, entry, byte_count), GDA_GET(wqe_umr_repeat_ent_seg, entry, va),
            static_cast<uint32_t>(GDA_GET(wqe_umr_repeat_ent_seg, entry, memkey)),
            static_cast<uint32_t>(GDA_GET(wqe_umr_repeat_ent_seg, entry, stride)));
    }
    return true;
}

// The translations behind the head of the WQE in s.wqe, or where its data segment says. False: *why.
bool read_layout(DeviceState& s, Qp* qp, uint32_t count, uint32_t ds, Layout* layout, Why* why) {
    const uint8_t* list = s.wqe + HEAD_SEGMENTS * WQE_SEGMENT_BYTES;
    std::vector<uint8_t> fetched;
    if (GDA_GET(wqe_umr_ctrl_seg, s.wqe + WQE_SEGMENT_BYTES, is_inline)) {
        if (count > ds - HEAD_SEGMENTS) {
            *why = text("%u translations inline, the WQE has room for %u", count, ds - HEAD_SEGMENTS);
            return false;
        }
    } else {
        if (ds <= HEAD_SEGMENTS) {
            *why = "no data segment names the translations, and they are not inline";
            return false;
        }
        fetched.resize(size_t{count} * WQE_SEGMENT_BYTES);
        Span from;
        if (!resolve(s, static_cast<uint32_t>(GDA_GET(wqe_data_seg, list, lkey)), GDA_GET(wqe_data_seg, list, addr),
                     fetched.size(), qp, Access::local_read, &from, why)) {
            return false;
        }
        if (copy(s, plain_span(fetched.data(), fetched.size()), 0, from, qp->name) != Copied::yes) {
            *why = "the translations cannot be read";
            return false;
        }
        list = fetched.data();
    }
    if (count && GDA_GET(wqe_umr_repeat_block_seg, list, op) == UMR_OP_REPEAT) {
        if (read_block(list, count, layout)) return true;
        *why = text("a repeated block of %u pieces in %u octowords",
                    static_cast<uint32_t>(GDA_GET(wqe_umr_repeat_block_seg, list, num_ent)), count);
        return false;
    }
    read_pieces(list, count, 0, layout);
    return true;
}

// Every piece must be there, with the rights that the new key grants: a card finds out when the key is used. Model
// choice: here, where the mistake is.
bool check_pieces(const DeviceState& s, const Mkey& key, const Layout& layout, Why* why) {
    const bool written = key.local_write || key.remote_write || key.remote_atomic;
    for (const Layout::Piece& piece : layout.pieces) {
        Span unused;
        for (const uint64_t round : {uint64_t{0}, layout.rounds - 1}) {
            if (!layout.rounds) continue;
            if (!resolve(s, piece.key, piece.address + round * piece.stride, piece.bytes, Asker(key.pd, key.qpn),
                         written ? Access::local_write : Access::local_read, &unused, why)) {
                return false;
            }
        }
    }
    return true;
}

// The fields that the mask names. `mkc` as in CREATE_MKEY.
void apply(const uint8_t* control, const uint8_t* mkc, Mkey* key) {
    if (GDA_GET(wqe_umr_ctrl_seg, control, mask_free)) key->free = GDA_GET(mkc, mkc, free) != 0;
    if (GDA_GET(wqe_umr_ctrl_seg, control, mask_a)) key->remote_atomic = GDA_GET(mkc, mkc, a) != 0;
    if (GDA_GET(wqe_umr_ctrl_seg, control, mask_rw)) key->remote_write = GDA_GET(mkc, mkc, rw) != 0;
    if (GDA_GET(wqe_umr_ctrl_seg, control, mask_rr)) key->remote_read = GDA_GET(mkc, mkc, rr) != 0;
    if (GDA_GET(wqe_umr_ctrl_seg, control, mask_lw)) key->local_write = GDA_GET(mkc, mkc, lw) != 0;
    if (GDA_GET(wqe_umr_ctrl_seg, control, mask_qpn)) key->qpn = static_cast<uint32_t>(GDA_GET(mkc, mkc, qpn));
    if (GDA_GET(wqe_umr_ctrl_seg, control, mask_start_addr)) key->start = GDA_GET(mkc, mkc, start_addr);
    if (GDA_GET(wqe_umr_ctrl_seg, control, mask_len)) key->bytes = GDA_GET(mkc, mkc, len);
    if (GDA_GET(wqe_umr_ctrl_seg, control, mask_mkey)) {
        key->key = (key->key >> 8) << 8 | static_cast<uint32_t>(GDA_GET(mkc, mkc, mkey_7_0));
    }
}

void invalidate(Mkey* key) {
    key->free = true;
    key->layout = std::make_unique<Layout>();  // nothing: not addresses of the process
}

// A copy of everything but the layout, to be judged before anything changes.
Mkey outline(const Mkey& key) {
    Mkey copy;
    copy.pd = key.pd, copy.qpn = key.qpn, copy.key = key.key, copy.start = key.start, copy.bytes = key.bytes;
    copy.local_read = key.local_read, copy.local_write = key.local_write, copy.remote_read = key.remote_read;
    copy.remote_write = key.remote_write, copy.remote_atomic = key.remote_atomic, copy.free = key.free;
    return copy;
}

bool change(DeviceState& s, Qp* qp, Why* why) {
    const uint8_t* control = s.wqe + WQE_SEGMENT_BYTES;
    const uint8_t* mkc = s.wqe + CONTROL_SEGMENTS * WQE_SEGMENT_BYTES;
    const uint32_t ds = static_cast<uint32_t>(GDA_GET(wqe_ctrl_seg, s.wqe, ds));
    if (ds < HEAD_SEGMENTS) {
        *why = text("ds %u, it has at least %u segments", ds, HEAD_SEGMENTS);
        return false;
    }
    Mkey* key = find_key(s, static_cast<uint32_t>(GDA_GET(wqe_ctrl_seg, s.wqe, imm)), why);
    if (!key) return false;
    if (key->pd != qp->pd || !key->changeable) {
        *why = key->pd != qp->pd ? text("key 0x%x belongs to protection domain %u, the queue pair to %u", key->key,
                                        key->pd->number, qp->pd->number)
                                 : text("key 0x%x was not made to be changed (umr_en)", key->key);
        return false;
    }
    if (GDA_GET(wqe_umr_ctrl_seg, control, check_free) && !key->free) {
        *why = text("key 0x%x is bound already: invalidate it first (a type 2 window is bound once)", key->key);
        return false;
    }
    if (GDA_GET(wqe_umr_ctrl_seg, control, check_qpn) && key->qpn != ANY_QP && key->qpn != qp->number) {
        *why = text("key 0x%x belongs to queue pair 0x%06x", key->key, key->qpn);
        return false;
    }
    const uint32_t count = static_cast<uint32_t>(GDA_GET(wqe_umr_ctrl_seg, control, klm_octowords));
    if (count > key->room) {
        *why = text("%u translations for key 0x%x, which was made for %u", count, key->key, key->room);
        return false;
    }
    auto layout = std::make_unique<Layout>();
    if (!read_layout(s, qp, count, ds, layout.get(), why)) return false;
    Mkey wanted = outline(*key);
    apply(control, mkc, &wanted);
    if (count && !wanted.free && !check_pieces(s, wanted, *layout, why)) return false;
    apply(control, mkc, key);
    if (key->free) {
        invalidate(key);
    } else if (count) {
        key->layout = std::move(layout);
    }
    return true;
}

}  // namespace

void read_pieces(const uint8_t* entries, uint32_t count, uint64_t each, Layout* layout) {
    for (uint32_t i = 0; i < count; ++i) {
        const uint8_t* entry = entries + i * WQE_SEGMENT_BYTES;
        add(layout, each ? each : GDA_GET(wqe_umr_klm_seg, entry, byte_count), GDA_GET(wqe_umr_klm_seg, entry, address),
            static_cast<uint32_t>(GDA_GET(wqe_umr_klm_seg, entry, mkey)), 0);
    }
}

bool invalidate_for_peer(DeviceState& s, uint32_t key, const Qp* qp, Why* why) {
    Mkey* mkey = find_key(s, key, why);
    if (!mkey) return false;
    if (mkey->key != key || mkey->free) {
        *why = text("key 0x%x is %s", key, mkey->free ? "free already" : "not what it is called now");
        return false;
    }
    if (!mkey->remote_invalidate || mkey->pd != qp->pd || (mkey->qpn != ANY_QP && mkey->qpn != qp->number)) {
        *why = text("key 0x%x cannot be ended by a peer of this queue pair (en_rinval, protection domain, queue pair)",
                    key);
        return false;
    }
    place_all(s);
    invalidate(mkey);
    s.report.count(Counter::key_changes);
    return true;
}

void change_key(DeviceState& s, Qp* qp, Message* m) {
    ParsedWqe wqe;
    parse_wqe(s, qp, m->index, &wqe);  // others were read since
    if (wqe.syndrome || wqe.opcode != m->opcode) {
        m->syndrome = wqe.syndrome ? wqe.syndrome : static_cast<uint8_t>(MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR);
        m->vendor = wqe.syndrome ? wqe.vendor : static_cast<uint8_t>(VENDOR_STALE_WQE);
        return;
    }
    place_all(s);
    Why why;
    if (change(s, qp, &why)) return s.report.count(Counter::key_changes);
    Values values = why.values;
    values.insert(values.begin(), {{"qp", qp->number}, {"index", m->index}});
    s.report.say(Kind::key_change,
                 text("%s: WQE %u: a key cannot be changed as asked (bind, invalidate, list of pieces): %s", qp->name,
                      m->index, why.words.c_str()),
                 values);
    m->syndrome = MLX5_CQE_SYNDROME_MW_BIND_ERR;
    m->vendor = VENDOR_KEY_CHANGE;
}

}  // namespace sim
