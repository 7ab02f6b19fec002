// SPDX-License-Identifier: Apache-2.0
// How fast a NIC answers whose program sleeps, and so does its own thread: from the moment at which a packet lies in
// its inbox to the moment at which the other process finds the answer in its own. The sender is stepped by its program,
// which yields its core after a hundred empty looks, as polling by ibv_poll_cq does. Prints one JSON object; run by
// test_engine.py and by whoever fills docs/figures.md:
//   wake_bench [ROUNDS [IDLE_MS]]

#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>

#include "tests/sim/engine_doorbells.h"

using namespace rig;

namespace {

// When the sender began and ended the first system call that wakes somebody, since it was last asked to note it.
bool noting = false;
uint64_t arrived_ns = 0, woke_ns = 0;

}  // namespace

// Instead of the C library's: a sender makes this call right after the packet lies in the inbox (sim/link/shm.cc).
extern "C" ssize_t write(int fd, const void* bytes, size_t count) {
    const bool note = noting;
    noting = false;
    if (note) arrived_ns = now_ns();
    const ssize_t written = syscall(SYS_write, fd, bytes, count);
    if (note) woke_ns = now_ns();
    return written;
}

namespace {

// The other process: says who it is, and sleeps; its engine alone answers.
int be_target(int in, int out) {
    Nic nic;
    Doorbells doorbells(nic);
    Queue cq(nic);
    Pair qp(nic, cq, &cq);
    Pages memory(4096);
    Memory key(nic, memory.address(), 4096);
    Card own = {}, peer;
    nic.device.gid(1, own.gid);
    own.qpn = qp.qpn, own.key = key.key, own.address = memory.address();
    CHECK_EQ(read(in, &peer, sizeof peer), sizeof peer);
    qp.connect(peer.qpn, peer.gid);
    nic.device.set_thread(sim::Device::Thread::adaptive);
    CHECK_EQ(write(out, &own, sizeof own), sizeof own);
    char end;
    CHECK_EQ(read(in, &end, 1), 0);
    return failures;
}

bool finish(Nic& nic, Queue& cq) {
    const uint64_t limit = now_ns() + 20000000000u;
    for (unsigned looks = 1; !cq.poll(); ++looks) {
        if (now_ns() > limit) return false;
        nic.device.step();
        if (looks % 100 == 0) sched_yield();
    }
    return true;
}

void print(const char* name, std::vector<double>& values, const char* end) {
    std::sort(values.begin(), values.end());
    std::printf("\"%s\": %.1f, \"%s_p90\": %.1f, \"%s_least\": %.1f%s", name, values[values.size() / 2], name,
                values[values.size() * 9 / 10], name, values[0], end);
}

}  // namespace

int main(int argc, char** argv) {
    const size_t rounds = argc > 1 ? static_cast<size_t>(std::atoi(argv[1])) : 20;
    const useconds_t idle_us = 1000 * (argc > 2 ? static_cast<useconds_t>(std::atoi(argv[2])) : 1200);
    int there[2], back[2];
    CHECK_EQ(pipe(there) | pipe(back), 0);
    const pid_t child = fork();
    if (child == 0) {
        close(there[1]), close(back[0]);
        _exit(be_target(there[0], back[1]));
    }
    close(there[0]), close(back[1]);

    Nic nic;
    Queue cq(nic);
    Pair away(nic, cq), near(nic, cq);
    Pages memory(4096);
    Memory key(nic, memory.address(), 4096);
    Card own = {}, peer;
    nic.device.gid(1, own.gid);
    own.qpn = away.qpn;
    CHECK_EQ(write(there[1], &own, sizeof own), sizeof own);
    CHECK_EQ(read(back[0], &peer, sizeof peer), sizeof peer);
    away.connect(peer.qpn, peer.gid);
    near.connect(near.qpn);
    std::vector<double> answered, call;
    for (size_t tries = 0; answered.size() < rounds && tries < 2 * rounds && !failures; ++tries) {
        usleep(idle_us);
        near.write(memory.address() + 8, key.key, memory.address(), key.key, 8);  // so that only the other has slept
        near.ring();
        CHECK(finish(nic, cq));
        arrived_ns = 0, noting = true;
        away.write(peer.address, peer.key, memory.address(), key.key, 8);
        away.ring();
        CHECK(finish(nic, cq));
        const uint64_t now = now_ns();
        noting = false;
        if (!arrived_ns) continue;  // it was looking around just then
        answered.push_back(static_cast<double>(now - arrived_ns) / 1e3);
        call.push_back(static_cast<double>(woke_ns - arrived_ns) / 1e3);
    }
    close(there[1]);
    int status = 0;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK_EQ(answered.size(), rounds);
    if (failures) return 1;
    std::printf("{");
    print("arrival_to_answer_us", answered, ", ");
    print("wake_call_us", call, "}\n");
    return 0;
}
