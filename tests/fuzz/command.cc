// SPDX-License-Identifier: Apache-2.0
// The command interface, and the work requests of what was made with it: sequences of firmware commands with any
// bytes, stores into queue memory and doorbells. An input is a list of records:
//   form  0: a command: {output size (16 bits), size (16 bits), bytes}
//         1: a store into queue memory: {offset (16 bits), size (8 bits), bytes}
//         2: a doorbell: {offset in the page (16 bits), 8 bytes}
//         3: steps: {count (8 bits)}
// Every input has a NIC of its own, so that the same numbers mean the same objects in each. What an input leaves behind
// is destroyed here. Built and run by tests/fuzz/fuzzer.py.
#include "tests/fuzz/input.h"
#include "tests/sim/engine_rig.h"

namespace {

using namespace rig;
using fuzz::Arena;
using fuzz::Input;
using fuzz::must;

enum : size_t { QUEUE_BYTES = 65536, MOST_RECORDS = 128, MOST_OUT = 8192 };

struct Destroyer {
    uint32_t create, destroy;
};
const Destroyer DESTROYERS[] = {
    {MLX5_CMD_OP_CREATE_MKEY, MLX5_CMD_OP_DESTROY_MKEY},
    {MLX5_CMD_OP_CREATE_CQ, MLX5_CMD_OP_DESTROY_CQ},
    {MLX5_CMD_OP_CREATE_RMP, MLX5_CMD_OP_DESTROY_RMP},
    {MLX5_CMD_OP_CREATE_QP, MLX5_CMD_OP_DESTROY_QP},
};

Arena& arena() {
    static Arena* const made = new Arena(0x520000000000, QUEUE_BYTES);
    return *made;
}

// What exists from the start: a PD, a doorbell page, and two umems over the same memory.
struct Machine {
    Machine() {
        for (uint32_t& umem : umems)
            must(nic.device.register_umem(arena().address(), arena().bytes, &umem) == 0, "a umem is registered");
        objects = nic.device.objects();
    }
    ~Machine() {
        for (uint32_t umem : umems) must(nic.device.release_umem(umem) == 0, "nothing stands on a umem any more");
    }
    Nic nic;
    uint32_t umems[2] = {};
    size_t objects = 0;
};

struct Made {
    uint32_t destroy, number;
};

void command(Machine& m, Input& input, std::vector<Made>* made) {
    const size_t out_bytes = input.value<uint16_t>() % MOST_OUT;
    std::vector<uint8_t> in = input.bytes(input.value<uint16_t>()), out(out_bytes);
    uint32_t opcode = 0;
    if (in.size() >= 4) opcode = static_cast<uint32_t>(GDA_GET(query_hca_cap_in, in.data(), opcode));
    if (opcode == MLX5_CMD_OP_CREATE_MKEY && in.size() >= GDA_BYTES_OF(create_mkey_in)) {
        // A key for the whole process would let the input write over this program.
        uint8_t* mkc = in.data() + GDA_BYTE_OFFSET(create_mkey_in, memory_key_mkey_entry);
        if (GDA_GET(mkc, mkc, access_mode_1_0) == MKC_ACCESS_MODE_PA)
            GDA_SET(mkc, mkc, access_mode_1_0, MKC_ACCESS_MODE_MTT);
    }
    const bool ok = m.nic.device.command(in.data(), in.size(), out.data(), out.size());
    if (out.size() >= 8)
        must(ok == (GDA_GET(query_hca_cap_out, out.data(), status) == MLX5_CMD_STAT_OK), "status tells the outcome");
    if (!ok) return;
    for (const Destroyer& d : DESTROYERS) {
        const uint32_t number = d.create == opcode ? static_cast<uint32_t>(GDA_GET(create_qp_out, out.data(), qpn))
                                                   : static_cast<uint32_t>(GDA_GET(destroy_qp_in, in.data(), qpn));
        if (d.create == opcode) made->push_back({d.destroy, number});
        if (d.destroy != opcode) continue;
        for (size_t i = 0; i < made->size(); ++i)
            if ((*made)[i].destroy == opcode && (*made)[i].number == number)
                made->erase(made->begin() + static_cast<long>(i--));
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
    sim::Device::set_virtual_time(true);
    Machine m;
    Input input(data, bytes);
    std::vector<Made> made;
    arena().clear();
    for (size_t i = 0; i < MOST_RECORDS && input.left(); ++i) {
        switch (input.value<uint8_t>() % 4) {
            case 0:
                command(m, input, &made);
                break;
            case 1: {
                const size_t at = input.value<uint16_t>();
                const std::vector<uint8_t> store = input.bytes(input.value<uint8_t>());
                if (!store.empty()) std::memcpy(arena().p + at, store.data(), std::min(store.size(), QUEUE_BYTES - at));
                break;
            }
            case 2: {
                const size_t at = input.value<uint16_t>() % 4096 & ~size_t{7};
                const uint64_t value = input.value<uint64_t>();
                __atomic_store_n(reinterpret_cast<uint64_t*>(m.nic.page_memory->p + at), value, __ATOMIC_RELEASE);
                break;
            }
            default:
                for (int n = input.value<uint8_t>() % 16; n > 0; --n) m.nic.device.step();
        }
    }
    for (int i = 0; i < 8; ++i) m.nic.device.step();
    must(!m.nic.said("no longer mapped"), "the NIC touches registered memory only");
    for (bool progress = true; progress && !made.empty();) {  // some stand on others
        progress = false;
        for (size_t i = made.size(); i-- > 0;) {
            Call c = CALL(destroy_qp, made[i].destroy);
            GDA_SET(destroy_qp_in, c.in.data(), qpn, made[i].number);
            if (!c.send(m.nic)) continue;
            made.erase(made.begin() + static_cast<long>(i));
            progress = true;
        }
    }
    must(made.empty(), "what was made can be destroyed");
    must(m.nic.device.objects() == m.objects, "nothing is left behind");
    return 0;
}
