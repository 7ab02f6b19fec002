// SPDX-License-Identifier: Apache-2.0
// An idle engine: its thread sleeps, and only what each case names wakes it. Nobody steps and the thread does not look
// around by itself, so a wake-up that does not come fails the case. Then, what idle objects cost: memory, and the
// search for rings that were lost among many.

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <thread>

#include "tests/sim/engine_doorbells.h"

using namespace rig;

namespace {

const uint64_t NEVER_NS = 3600u * 1000000000ull;

bool soon(const std::function<bool()>& done) {
    for (const uint64_t end = now_ns() + 20000000000u; !done();) {
        if (now_ns() > end) return false;
        usleep(200);
    }
    return true;
}

// Two connected queue pairs of a NIC with such a page, and its thread.
struct Idle {
    explicit Idle(uint64_t longest_sleep_ns = NEVER_NS, Options o = Options())
        : doorbells(nic),
          source(4096),
          target(4096),
          cq(nic, 6),
          a(nic, cq, &cq, o),
          b(nic, cq, &cq, o),
          src(nic, source.address(), 4096),
          dst(nic, target.address(), 4096) {
        alarm(120);  // a store that waits for ever ends the program
        nic.device.set_longest_sleep(longest_sleep_ns);
    }
    void connect() { a.connect(b.qpn), b.connect(a.qpn); }
    // What made the page known before is forgotten: nothing else wakes it than what the case does.
    void start() {
        nic.device.set_thread(sim::Device::Thread::adaptive);
        CHECK(soon([&] { return asleep(); }));
    }
    uint64_t counter(const char* name) const { return nic.device.counter(name); }
    uint64_t wakes() const {
        return counter("wakes_by_store") + counter("wakes_by_packet") + counter("wakes_by_call") +
               counter("wakes_by_timer") + counter("looks_around");
    }
    bool asleep() const { return counter("sleeps") == wakes() + 1; }
    // Whether a store woke it since this was asked last. Perhaps more than once: where the program's thread does not
    // get to run for long, the engine's sleeps again before the store is made again.
    bool woken_by_store() {
        const uint64_t before = stores;
        stores = counter("wakes_by_store");
        return stores > before;
    }
    void post() { a.write(target.address(), dst.key, source.address(), src.key, 8); }
    // The thread alone serves it.
    bool completed() {
        const uint8_t* e = nullptr;
        return soon([&] { return (e = cq.poll()) != nullptr; }) && opcode_of(e) == MLX5_CQE_REQ;
    }
    Nic nic;
    Doorbells doorbells;
    Pages source, target;
    Queue cq;
    Pair a, b;
    Memory src, dst;
    uint64_t stores = 0;
};

void a_store_wakes() {
    Idle w;
    w.connect();
    for (int n = 1; n <= 3; ++n) {
        w.start();
        w.post();
        w.a.ring();
        CHECK(w.completed());
        CHECK(w.woken_by_store());
    }
    w.start();
    w.cq.arm();
    CHECK(soon([&] { return w.counter("cq_doorbells") == 1; }));
    CHECK(w.woken_by_store());
    CHECK_EQ(w.wakes(), w.counter("wakes_by_store"));
}

// What was posted is served before the store that rings for it goes on: here it never rings, for what is stored is no
// doorbell. For a queue pair that rang lately.
void a_store_that_waits_is_served_by_its_record() {
    Idle w;
    w.connect();
    w.start();
    w.post();
    w.a.ring();
    CHECK(w.completed());
    CHECK(w.woken_by_store());
    for (int n = 2; n <= 4; ++n) {
        w.start();
        w.post();
        w.a.store_record(1, w.a.producer);
        w.a.store_register(UAR_SEND_DOORBELL, 0);
        CHECK(w.completed());
        CHECK(w.woken_by_store());
        CHECK_EQ(w.counter("doorbells"), 1);
    }
}

void stopped_while_asleep() {
    Idle w;
    w.connect();
    w.start();
    w.nic.device.set_thread(sim::Device::Thread::off);
    w.post();
    w.a.ring();  // nothing is protected any more
    CHECK(w.nic.until([&] { return w.cq.poll() != nullptr; }));
    CHECK_EQ(w.counter("wakes_by_call"), 1);
    for (int i = 0; i < 10; ++i) {  // and while a store waits
        w.start();
        w.post();
        std::thread program([&] { w.a.ring(); });
        w.nic.device.set_thread(sim::Device::Thread::off);
        program.join();
        CHECK(w.nic.until([&] { return w.cq.poll() != nullptr; }));
    }
}

// A forked child has no protection: its store goes through at once. The parent finds it when it looks around.
void store_of_a_forked_child() {
    Idle w(20000000);
    w.connect();
    w.start();
    w.post();
    w.a.store_record(1, w.a.producer);
    const pid_t child = fork();
    if (child == 0) {
        alarm(20);
        w.a.store_register(UAR_SEND_DOORBELL, w.a.first_bytes(0));
        _exit(0);
    }
    int status = 0;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(w.completed());
    CHECK(w.counter("looks_around") >= 1);
    CHECK_EQ(w.counter("wakes_by_store"), 0);
}

void mapping_that_ends() {
    Idle w;
    w.connect();
    uint8_t* other = w.doorbells.map(nullptr, 0);
    CHECK_EQ(w.nic.device.map_uar(Nic::PAGE, other), 0);
    w.start();
    munmap(other, 4096);
    const uint8_t* taken = static_cast<uint8_t*>(
        mmap(other, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
    CHECK(taken == other);
    *other = 1;  // what lies there now is not watched
    for (int n = 1; n <= 2; ++n) {
        w.start();
        w.post();
        w.a.ring();
        CHECK(w.completed());
        CHECK(w.woken_by_store());
    }
    munmap(other, 4096);
    // A new mapping is watched before the thread sleeps again.
    other = w.doorbells.map(nullptr, 0);
    w.start();
    CHECK_EQ(w.counter("wakes_by_call"), 0);
    CHECK_EQ(w.nic.device.map_uar(Nic::PAGE, other), 0);
    CHECK(soon([&] { return w.counter("wakes_by_call") == 1; }));
    w.start();
    w.post();
    w.a.store_record(1, w.a.producer);
    const uint64_t value = w.a.first_bytes(w.a.last);
    __atomic_store_n(reinterpret_cast<uint64_t*>(other + UAR_SEND_DOORBELL), value, __ATOMIC_RELEASE);
    CHECK(w.completed());
    CHECK(w.woken_by_store());
    munmap(other, 4096);
}

void a_timer_wakes() {
    Options o;
    o.retry = 2;
    o.timeout = 15;  // 0.13 s
    Idle w(NEVER_NS, o);
    w.a.connect(0x3fffff);  // nobody
    w.start();
    w.post();
    w.a.ring();
    const uint8_t* e = nullptr;
    CHECK(soon([&] { return (e = w.cq.poll()) != nullptr; }));
    CHECK_EQ(syndrome_of(e), MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
    CHECK(w.counter("wakes_by_timer") >= 1);
    CHECK(w.woken_by_store());
    CHECK_EQ(w.counter("looks_around"), 0);
}

// In a process of its own: says who it is, hears of the other, and writes when it is told to.
int write_from_elsewhere(int in, int out) {
    Nic nic;
    Queue cq(nic);
    Pair qp(nic, cq, &cq);
    Pages memory(4096);
    Memory key(nic, memory.address(), 4096);
    Card own = {}, peer;
    nic.device.gid(1, own.gid);
    own.qpn = qp.qpn;
    CHECK_EQ(write(out, &own, sizeof own), sizeof own);
    CHECK_EQ(read(in, &peer, sizeof peer), sizeof peer);
    qp.connect(peer.qpn, peer.gid);
    CHECK_EQ(write(out, "c", 1), 1);
    char go;
    CHECK_EQ(read(in, &go, 1), 1);
    memory.p[0] = 77;
    qp.write(peer.address, peer.key, memory.address(), key.key, 1);
    qp.ring();
    CHECK_EQ(opcode_of(cq.wait(20000000000u)), MLX5_CQE_REQ);
    return failures;
}

void a_packet_wakes() {
    int there[2], back[2];
    CHECK_EQ(pipe(there) | pipe(back), 0);
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);
        failures = 0;
        _exit(write_from_elsewhere(there[0], back[1]));
    }
    {
        Idle w;
        Card own = {}, peer;
        w.nic.device.gid(1, own.gid);
        own.qpn = w.b.qpn, own.key = w.dst.key, own.address = w.target.address();
        CHECK_EQ(read(back[0], &peer, sizeof peer), sizeof peer);
        w.b.connect(peer.qpn, peer.gid);
        CHECK_EQ(write(there[1], &own, sizeof own), sizeof own);
        char connected;
        CHECK_EQ(read(back[0], &connected, 1), 1);
        w.start();
        CHECK_EQ(write(there[1], "g", 1), 1);
        CHECK(soon([&] { return __atomic_load_n(w.target.p, __ATOMIC_ACQUIRE) == 77; }));
        CHECK_EQ(w.counter("wakes_by_packet"), 1);
        CHECK_EQ(w.wakes(), 1);
        int status = 0;
        CHECK_EQ(waitpid(child, &status, 0), child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    for (int fd : {there[0], there[1], back[0], back[1]}) close(fd);
}

// Where the system refuses userfaultfd, as containers do: the thread naps, and looks often enough.
void without_userfaultfd() {
    const pid_t child = fork();
    if (child == 0) {
        failures = 0;
        sock_filter steps[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        const sock_fprog filter = {sizeof steps / sizeof *steps, steps};
        CHECK_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        CHECK_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), 0);
        {
            Idle w;
            w.connect();
            w.nic.device.set_thread(sim::Device::Thread::adaptive);
            usleep(20000);  // longer than it would take to fall asleep
            w.post();
            w.a.ring();
            CHECK(w.completed());
            CHECK_EQ(w.counter("sleeps"), 0);
        }
        _exit(failures);
    }
    int status = 0;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// Two programs ring in one register between two looks: the first value is lost. Its record is found by looking at each
// record of the page at most once.
void lost_ring_is_found_in_one_sweep() {
    const size_t COUNT = 1000;
    Nic nic;
    Queue cq(nic, 4);
    Options o;
    o.log_sq = 2;
    std::vector<std::unique_ptr<Pair>> pairs;
    for (size_t i = 0; i < COUNT; ++i) {
        pairs.push_back(std::make_unique<Pair>(nic, cq, nullptr, o));
        pairs.back()->connect(pairs.back()->qpn);
    }
    nic.settle();
    const uint64_t before = nic.device.counter("records_swept");
    for (size_t i : {size_t{990}, size_t{3}}) {
        Pair& p = *pairs[i];
        p.control(0, MLX5_OPCODE_NOP, 1);
        p.producer = 1;
        p.ring();
    }
    int steps = 0, completions = 0;
    for (; completions < 2 && steps < 100; ++steps) {
        nic.device.step();
        while (cq.poll()) ++completions;
    }
    CHECK_EQ(completions, 2);
    CHECK(steps <= 5);
    nic.settle();
    CHECK_EQ(nic.device.counter("doorbells"), 1);
    CHECK(nic.device.counter("records_swept") - before <= COUNT);
}

size_t heap() {
    const struct mallinfo2 all = mallinfo2();
    return all.uordblks + all.hblkhd;
}

// Sanitizers have an allocator of their own, which this does not see.
void memory_of_idle_objects() {
    const size_t KEYS = 4096, QUEUE_PAIRS = 512, HEADER = 8;
    Nic nic;
    Queue cq(nic);
    Pages pages(4096);
    Options o;
    o.log_sq = 2;
    std::vector<std::unique_ptr<Memory>> keys(KEYS);
    std::vector<std::unique_ptr<Pair>> pairs(QUEUE_PAIRS);
    keys[0] = std::make_unique<Memory>(nic, pages.address(), 4096);
    pairs[0] = std::make_unique<Pair>(nic, cq, nullptr, o);
    size_t before = heap(), own = 0;
    for (size_t i = 1; i < KEYS; ++i) {
        keys[i] = std::make_unique<Memory>(nic, pages.address(), 4096);
        own += malloc_usable_size(keys[i].get()) + HEADER;
    }
    const size_t per_key = (heap() - before - own) / KEYS;
    before = heap(), own = 0;
    for (size_t i = 1; i < QUEUE_PAIRS; ++i) {
        pairs[i] = std::make_unique<Pair>(nic, cq, nullptr, o);
        pairs[i]->connect(pairs[i]->qpn);
        own += malloc_usable_size(pairs[i].get()) + HEADER;
    }
    const size_t per_pair = (heap() - before - own) / QUEUE_PAIRS;
    if (heap() == 0) return;
    std::printf("  %zu bytes for a key and its umem, %zu for a queue pair\n", per_key, per_pair);
    CHECK(per_key > 32 && per_key <= 160);  // of 256 for a region: the driver has its own part
    CHECK(per_pair > 512 && per_pair <= 4096);
}

}  // namespace

int main(int argc, char** argv) {
    return run(
        {
            {"a_store_wakes", a_store_wakes},
            {"a_store_that_waits_is_served_by_its_record", a_store_that_waits_is_served_by_its_record},
            {"stopped_while_asleep", stopped_while_asleep},
            {"store_of_a_forked_child", store_of_a_forked_child},
            {"mapping_that_ends", mapping_that_ends},
            {"a_timer_wakes", a_timer_wakes},
            {"a_packet_wakes", a_packet_wakes},
            {"without_userfaultfd", without_userfaultfd},
            {"lost_ring_is_found_in_one_sweep", lost_ring_is_found_in_one_sweep},
            {"memory_of_idle_objects", memory_of_idle_objects},
        },
        argc, argv);
}
