// SPDX-License-Identifier: Apache-2.0
// Memory windows: bound, used, ended by their owner and by a peer; their rights, ranges and owners.

#include "tests/sim/engine_pieces.h"

using namespace rig;

namespace {

void windows() {
    World w;
    const uint64_t t = w.target.address(), s = w.source.address();
    Pieces window(w.nic, {});
    const uint32_t bound = window.key | 0x21;
    bind(w.b, window.key, 0x21, t + 100, {t + 100, 50, w.dst.key});
    CHECK(done(w.b_cq));
    w.a.write(t + 100, bound, s, w.src.key, 50);
    w.a.write(t, bound, s, w.src.key, 8);
    w.a.ring();
    CHECK(done(w.a_cq));
    CHECK(std::memcmp(w.target.p + 100, w.source.p, 50) == 0);
    expect_error(w, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, 0, "is not within key", w.a.last);
    CHECK_EQ(w.target.p[0], 0);

    World v;
    const uint64_t r = v.target.address();
    Pieces again(v.nic, {});
    bind(v.b, again.key, 0x33, 0, {r + 100, 50, v.dst.key});  // zero-based
    CHECK(done(v.b_cq));
    v.a.write(0, again.key | 0x33, v.source.address(), v.src.key, 50);
    v.a.ring();
    CHECK(done(v.a_cq));
    CHECK(std::memcmp(v.target.p + 100, v.source.p, 50) == 0 && v.target.p[150] == 0 && v.target.p[99] == 0);
    end(v.b, again.key | 0x33);
    CHECK(done(v.b_cq));
    bind(v.b, again.key, 0x34, 0, {r + 200, 50, v.dst.key});
    CHECK(done(v.b_cq));
    v.a.write(0, again.key | 0x34, v.source.address(), v.src.key, 50);
    v.a.write(0, again.key | 0x33, v.source.address(), v.src.key, 50);  // the name it had before
    v.a.ring();
    CHECK(done(v.a_cq));
    CHECK(std::memcmp(v.target.p + 200, v.source.p, 50) == 0);
    expect_error(v, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, 0, "same index, another variant", v.a.last);
}

void send_ends_a_key() {
    Options two = with_receives();
    {
        World w(two, two);
        Pieces window(w.nic, {}, 4, MKC_ACCESS_MODE_KLM, 0, true, true);
        bind(w.b, window.key, 0x11, 0, {w.target.address(), 50, w.dst.key});
        CHECK(done(w.b_cq));
        w.b.post_receive(w.target.address() + 4096, 20000, w.dst.key);
        w.a.write(0, window.key | 0x11, w.source.address(), w.src.key, 8);
        w.a.send(w.source.address(), w.src.key, 10000, MLX5_OPCODE_SEND_INVAL, window.key | 0x11);  // in three packets
        w.a.write(0, window.key | 0x11, w.source.address(), w.src.key, 8);
        w.a.ring();
        const uint8_t* e = w.b_cq.wait();
        CHECK_EQ(opcode_of(e), MLX5_CQE_RESP_SEND_INV);
        CHECK_EQ(GDA_GET(cqe64, e, imm_inval_pkey), window.key | 0x11);
        CHECK(done(w.a_cq) && done(w.a_cq));
        CHECK(std::memcmp(w.target.p + 4096, w.source.p, 10000) == 0);
        expect_error(w, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, 0, "is free", 2);
    }
    {
        World w(two, two);  // a key that peers may not end
        w.b.post_receive(w.target.address(), 64, w.dst.key);
        w.a.send(w.source.address(), w.src.key, 8, MLX5_OPCODE_SEND_INVAL, w.dst.key);
        w.a.ring();
        expect_error(w, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, 0, "cannot be ended by a peer");
    }
}

void window_that_was_ended() {
    World w;
    Pieces window(w.nic, {});
    bind(w.b, window.key, 0, 0, {w.target.address(), 50, w.dst.key});
    end(w.b, window.key);
    CHECK(done(w.b_cq) && done(w.b_cq));
    w.a.write(0, window.key, w.source.address(), w.src.key, 8);
    w.a.ring();
    expect_error(w, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, 0, "is free");
}

void window_rights_and_owner() {
    {
        World w;  // read only
        Pieces window(w.nic, {});
        bind(w.b, window.key, 0, 0, {w.target.address(), 50, w.dst.key}, false);
        CHECK(done(w.b_cq));
        w.a.write(0, window.key, w.source.address(), w.src.key, 8);
        w.a.ring();
        expect_error(w, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, 0, "does not allow remote write");
    }
    {
        World w;  // bound by the other queue pair
        Pieces window(w.nic, {});
        bind(w.a, window.key, 0, 0, {w.target.address(), 50, w.dst.key});
        CHECK(done(w.a_cq));
        w.a.write(0, window.key, w.source.address(), w.src.key, 8);
        w.a.ring();
        expect_error(w, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, 0, "alone, not to", w.a.last);
    }
    {
        World w;  // bound twice
        Pieces window(w.nic, {});
        bind(w.a, window.key, 0, 0, {w.target.address(), 50, w.dst.key});
        bind(w.a, window.key, 1, 0, {w.target.address(), 50, w.dst.key});
        CHECK(done(w.a_cq));
        expect_error(w, MLX5_CQE_SYNDROME_MW_BIND_ERR, 0x53, "is bound already", 3);
    }
    {
        World w;  // ended by another queue pair
        Pieces window(w.nic, {});
        bind(w.b, window.key, 0, 0, {w.target.address(), 50, w.dst.key});
        CHECK(done(w.b_cq));
        end(w.a, window.key);
        expect_error(w, MLX5_CQE_SYNDROME_MW_BIND_ERR, 0x53, "belongs to queue pair");
    }
    {
        World w;  // more than the memory behind it allows
        Pages readable(4096);
        Memory memory(w.nic, readable.address(), 4096, false, 0, false);
        Pieces window(w.nic, {});
        bind(w.a, window.key, 0, 0, {readable.address(), 50, memory.key});
        expect_error(w, MLX5_CQE_SYNDROME_MW_BIND_ERR, 0x53, "does not allow local write");
    }
}

}  // namespace

int main(int argc, char** argv) {
    return run(
        {
            {"windows", windows},
            {"send_ends_a_key", send_ends_a_key},
            {"window_that_was_ended", window_that_was_ended},
            {"window_rights_and_owner", window_rights_and_owner},
        },
        argc, argv);
}
