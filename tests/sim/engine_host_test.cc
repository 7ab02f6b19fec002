// SPDX-License-Identifier: Apache-2.0
// More than one NIC on a host: two in one process, two processes, processes that die, processes that fork, a host
// without shared memory. The other process is this program again, started as `peer MODE FD`; they talk over a socket
// pair.

#include <dirent.h>
#include <grp.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/sim/engine_rig.h"

using namespace rig;

namespace {

struct Card {  // what the two tell each other
    uint8_t gid[16];
    uint32_t qpn, key;
    uint64_t address;
};

const uint32_t BYTES = (2 << 20) + 13;

uint8_t pattern(uint32_t i, uint32_t seed) { return static_cast<uint8_t>(i * 31 + (i >> 11) + seed); }

bool tell(int fd, const void* p, size_t n) { return write(fd, p, n) == static_cast<ssize_t>(n); }
bool hear(int fd, void* p, size_t n) {
    size_t got = 0;
    while (got < n) {
        const ssize_t r = read(fd, static_cast<uint8_t*>(p) + got, n - got);
        if (r <= 0) return false;
        got += static_cast<size_t>(r);
    }
    return true;
}

Options with_receives() {
    Options o;
    o.receives = true;
    o.log_rq = 7;
    return o;
}

// One side: a NIC, a queue pair, memory; connected to whoever is at the other end of the socket.
struct Side {
    explicit Side(int socket, Options o = with_receives())
        : fd(socket), cq(nic, 8), qp(nic, cq, &cq, o), memory(BYTES), key(nic, memory.address(), BYTES) {
        Card own = {};
        nic.device.gid(3, own.gid);  // addressed by its IPv4 address, sends from index 3
        own.qpn = qp.qpn;
        own.key = key.key;
        own.address = memory.address();
        CHECK(tell(fd, &own, sizeof own));
        CHECK(hear(fd, &peer, sizeof peer));
        CHECK_EQ(qp.to_init(), MLX5_CMD_STAT_OK);
        CHECK_EQ(to_rtr(), MLX5_CMD_STAT_OK);
        CHECK_EQ(qp.to_rts(), MLX5_CMD_STAT_OK);
        char ready = 1;
        CHECK(tell(fd, &ready, 1));
        CHECK(hear(fd, &ready, 1));
    }
    uint32_t to_rtr() {
        Call c = CALL(init2rtr_qp, MLX5_CMD_OP_INIT2RTR_QP);
        uint8_t* q = c.in.data() + GDA_BYTE_OFFSET(init2rtr_qp_in, qpc);
        GDA_SET(init2rtr_qp_in, c.in.data(), qpn, qp.qpn);
        GDA_SET(qpc, q, mtu, 5);
        GDA_SET(qpc, q, remote_qpn, peer.qpn);
        GDA_SET(qpc, q, next_rcv_psn, 0x100);
        GDA_SET(qpc, q, min_rnr_nak, 1);
        GDA_SET(qpc, q, primary_address_path.src_addr_index, 3);
        std::memcpy(q + GDA_BYTE_OFFSET(qpc, primary_address_path.rgid_rip), peer.gid, 16);
        c.send(nic);
        return c.status();
    }
    int fd;
    Nic nic;
    Queue cq;
    Pair qp;
    Pages memory;
    Memory key;
    Card peer = {};
};

// The other process.
struct Process {
    explicit Process(const char* mode) {
        int pair[2];
        CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        fd = pair[0];
        pid = fork();
        if (pid == 0) {
            close(pair[0]);
            const std::string number = std::to_string(pair[1]);
            execl("/proc/self/exe", "peer", "peer", mode, number.c_str(), static_cast<char*>(nullptr));
            _exit(127);
        }
        close(pair[1]);
    }
    ~Process() {
        if (pid > 0) kill_it();
        close(fd);
    }
    void kill_it() {
        kill(pid, SIGKILL);
        int status;
        waitpid(pid, &status, 0);
        pid = -1;
    }
    int join() {
        int status = 0;
        waitpid(pid, &status, 0);
        pid = -1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
    }
    int fd = -1;
    pid_t pid = -1;
};

// Peer that serves: checks what was written when told the seed, and answers sends.
int serve(int fd) {
    Side side(fd);
    side.nic.device.set_thread(sim::Device::Thread::adaptive);
    uint32_t request[2];  // bytes, seed
    for (uint32_t i = 0; i < 100; ++i) side.qp.post_receive(side.memory.address(), BYTES, side.key.key);
    while (hear(fd, request, sizeof request)) {
        uint32_t wrong = 0;
        for (uint32_t i = 0; i < request[0]; ++i) wrong += side.memory.p[i] != pattern(i, request[1]);
        wrong += side.memory.p[request[0]] != 0;
        std::memset(side.memory.p, 0, BYTES);
        tell(fd, &wrong, sizeof wrong);
    }
    return failures;
}

// Peer that never stops writing.
int blast(int fd) {
    Side side(fd);
    for (;;) {
        while (side.qp.producer - side.cq.consumer < 32) {
            side.qp.write(side.peer.address, side.peer.key, side.memory.address(), side.key.key, 200000);
        }
        side.qp.ring();
        side.nic.device.step();
        while (side.cq.poll()) {
        }
    }
}

void two_processes() {
    Process process("serve");
    Side side(process.fd);
    uint32_t seed = 1;
    for (uint32_t bytes : {1u, 8u, 65535u, 65536u, 65537u, 1u << 20, BYTES - 1}) {
        for (uint32_t opcode :
             {MLX5_OPCODE_RDMA_WRITE, MLX5_OPCODE_RDMA_WRITE_IMM, MLX5_OPCODE_SEND, MLX5_OPCODE_SEND_IMM}) {
            for (uint32_t i = 0; i < bytes; ++i) side.memory.p[i] = pattern(i, seed);
            if (opcode == MLX5_OPCODE_SEND || opcode == MLX5_OPCODE_SEND_IMM) {
                side.qp.send(side.memory.address(), side.key.key, bytes, opcode, 5);
            } else {
                side.qp.write(side.peer.address, side.peer.key, side.memory.address(), side.key.key, bytes, CE_ALWAYS,
                              opcode, 5);
            }
            side.qp.ring();
            CHECK_EQ(opcode_of(side.cq.wait(20000000000u)), MLX5_CQE_REQ);
            const uint32_t request[2] = {bytes, seed++};
            uint32_t wrong = 1;
            CHECK(tell(process.fd, request, sizeof request) && hear(process.fd, &wrong, sizeof wrong));
            CHECK_EQ(wrong, 0);
        }
    }
    // Many small ones in flight, and a refusal.
    for (uint32_t done = 0; done < 2000 && !failures;) {
        while (side.qp.producer - side.cq.consumer < 60) {
            side.qp.write(side.peer.address, side.peer.key, side.memory.address(), side.key.key, 100);
        }
        side.qp.ring();
        CHECK_EQ(opcode_of(side.cq.wait(20000000000u)), MLX5_CQE_REQ);
        ++done;
    }
    while (side.cq.consumer < side.qp.producer) CHECK_EQ(opcode_of(side.cq.wait(20000000000u)), MLX5_CQE_REQ);
    side.qp.write(side.peer.address + BYTES, side.peer.key, side.memory.address(), side.key.key, 1);
    side.qp.ring();
    CHECK_EQ(syndrome_of(side.cq.wait(20000000000u)), MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR);
    shutdown(process.fd, SHUT_WR);
    CHECK_EQ(process.join(), 0);
}

void unreadable_payload_to_another_process() {
    Process process("serve");
    Side side(process.fd);
    CHECK_EQ(mprotect(side.memory.p + 4096 * 20, 4096, PROT_NONE), 0);
    side.qp.write(side.peer.address, side.peer.key, side.memory.address(), side.key.key, 1 << 20);
    side.qp.ring();
    const uint8_t* e = side.cq.wait();
    CHECK_EQ(syndrome_of(e), MLX5_CQE_SYNDROME_LOCAL_PROT_ERR);
    CHECK_EQ(mprotect(side.memory.p + 4096 * 20, 4096, PROT_READ | PROT_WRITE), 0);
}

void two_nics_of_one_process() {
    Nic a, b;
    CHECK(a.device.slot() != b.device.slot());
    Queue a_cq(a), b_cq(b);
    Options near_the_end;
    near_the_end.psn = 0xfffffa;  // sequence numbers go round within the first message
    Pair x(a, a_cq, nullptr, near_the_end), y(b, b_cq, nullptr, near_the_end);
    connect(x, y);
    Pages source(1 << 20), target(1 << 20);
    Memory src(a, source.address(), 1 << 20), dst(b, target.address(), 1 << 20);
    for (uint32_t i = 0; i < (1 << 20); ++i) source.p[i] = pattern(i, 3);
    x.write(target.address(), dst.key, source.address(), src.key, 1 << 20);
    x.ring();
    const uint8_t* e = nullptr;
    CHECK(a.until([&] { return b.device.step(), (e = a_cq.poll()) != nullptr; }));
    CHECK_EQ(opcode_of(e), MLX5_CQE_REQ);
    CHECK(std::memcmp(source.p, target.p, 1 << 20) == 0);
    // The same queue pair number does not exist there: numbers carry their NIC.
    CHECK(x.qpn != y.qpn);
    // A peer that lives but is never stepped is waited for longer than the timeouts say.
    x.move(MLX5_CMD_OP_2RST_QP);
    y.move(MLX5_CMD_OP_2RST_QP);
    std::memset(x.record, 0, 8);
    x.producer = 0;
    x.options.timeout = 8, x.options.retry = 1;  // 2 ms in all
    connect(x, y);
    x.write(target.address(), dst.key, source.address(), src.key, 64);
    x.ring();
    CHECK(!x.nic.until([&] { return a_cq.poll() != nullptr; }, 100000000));
    CHECK(a.until([&] { return b.device.step(), (e = a_cq.poll()) != nullptr; }));
    CHECK_EQ(opcode_of(e), MLX5_CQE_REQ);
}

// How many inboxes there are; each has its wake pipe beside it.
size_t files_of_nics() {
    size_t inboxes = 0, pipes = 0;
    DIR* d = opendir(getenv("GDA_SIM_DIRECTORY"));
    while (const dirent* e = readdir(d)) {
        if (std::strncmp(e->d_name, "nic-", 4) == 0) ++(std::strstr(e->d_name, ".wake") ? pipes : inboxes);
    }
    closedir(d);
    CHECK_EQ(pipes, inboxes);
    return inboxes;
}

void killed_peer() {
    auto process = std::make_unique<Process>("serve");
    {
        Options o = with_receives();
        o.timeout = 12, o.retry = 3;  // 67 ms in all
        Side side(process->fd, o);
        process->kill_it();
        side.qp.write(side.peer.address, side.peer.key, side.memory.address(), side.key.key, 64);
        side.qp.ring();
        const uint8_t* e = side.cq.wait();
        CHECK_EQ(syndrome_of(e), MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
        CHECK(side.nic.said("its process is gone"));
        CHECK_EQ(files_of_nics(), 2);
        Nic next;  // takes the dead one's slot, or sweeps it
        CHECK_EQ(files_of_nics(), 2);
        CHECK(next.device.slot() < 2);
        CHECK(next.device.slot() != side.nic.device.slot());
    }
    CHECK_EQ(files_of_nics(), 0);
}

void sender_killed_in_the_middle() {
    // Whatever it was doing, our inbox stays whole and others get through.
    for (int round = 0; round < 12; ++round) {
        Process blaster("blast");
        Side side(blaster.fd);
        const uint64_t end = now_ns() + 3000000 + static_cast<uint64_t>(round) * 370000;
        while (now_ns() < end) side.nic.device.step();
        blaster.kill_it();
        side.nic.until([&] { return side.nic.device.step() == 0; });
        const uint64_t before = side.nic.device.counter("bytes_written");
        Nic other;
        Queue cq(other), own_cq(side.nic);
        Pair x(other, cq), y(side.nic, own_cq);
        uint8_t g1[16], g2[16];
        side.nic.device.gid(1, g1);
        other.device.gid(1, g2);
        x.connect(y.qpn, g1);
        y.connect(x.qpn, g2);
        Pages p(4096);
        Memory m(other, p.address(), 4096);
        x.write(side.memory.address(), side.key.key, p.address(), m.key, 4096);
        x.ring();
        CHECK(other.until([&] { return side.nic.device.step(), cq.poll() != nullptr; }));
        CHECK_EQ(side.nic.device.counter("bytes_written"), before + 4096);
        if (failures) return;
    }
}

void full_inbox_waits() {
    Nic a, b;
    Queue a_cq(a, 8), b_cq(b);
    Options o;
    o.log_sq = 8;
    Pair x(a, a_cq, nullptr, o), y(b, b_cq);
    connect(x, y);
    Pages source(1 << 20), target(1 << 20);
    Memory src(a, source.address(), 1 << 20), dst(b, target.address(), 1 << 20);
    for (int i = 0; i < 40; ++i)
        x.write(target.address(), dst.key, source.address(), src.key, 1 << 20);  // 40 MiB into 8
    x.ring();
    for (int i = 0; i < 50; ++i) a.device.step();
    CHECK(a.device.counter("link_full") > 0);
    uint32_t done = 0;
    CHECK(a.until([&] { return b.device.step(), done += a_cq.poll() != nullptr, done == 40; }, 20000000000u));
    CHECK_EQ(a.device.counter("retries"), 0);
}

void forked_child_is_refused() {
    World w;
    w.nic.device.set_thread(sim::Device::Thread::adaptive);
    w.write(8);
    w.a.ring();
    w.nic.until([&] { return w.a_cq.poll() != nullptr; });
    const pid_t child = fork();
    if (child == 0) {
        alarm(20);
        int wrong = 0;
        wrong += w.nic.device.step() != 0;
        wrong += !w.nic.said("forked");
        Call c = CALL(query_qp, MLX5_CMD_OP_QUERY_QP);
        wrong += c.send(w.nic);
        uint32_t id;
        wrong += w.nic.device.allocate_pd(&id) == 0;
        {
            Nic own;  // one of its own works
            wrong += own.device.slot() == w.nic.device.slot();
            Queue cq(own);
            Pair p(own, cq);
            p.connect(p.qpn);
            p.control(0, MLX5_OPCODE_NOP, 1);
            p.producer = 1;
            p.ring();
            wrong += cq.wait() == nullptr;
        }
        {
            auto* leaked = &w;
            (void)leaked;
        }
        w.nic.device.~Device();  // as at exit: neither hangs nor takes the parent's slot away
        _exit(wrong + failures);
    }
    int status = 0;
    waitpid(child, &status, 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    w.write(8);
    w.a.ring();
    CHECK(w.nic.until([&] { return w.a_cq.poll() != nullptr; }));
    Nic other;
    CHECK(other.device.slot() != w.nic.device.slot());
    w.nic.device.set_thread(sim::Device::Thread::off);
}

void host_without_shared_memory() {
    const std::string before = getenv("GDA_SIM_DIRECTORY");
    setenv("GDA_SIM_DIRECTORY", "/proc/there/is/nothing", 1);
    {
        World w;
        CHECK(w.nic.said("no link to other processes"));
        w.write(100);
        w.a.ring();
        CHECK_EQ(opcode_of(w.a_cq.wait()), MLX5_CQE_REQ);
        CHECK(w.same(100));
        // A foreign address leads nowhere, also not to ourselves.
        Options o;
        o.timeout = 8, o.retry = 0;
        Queue cq(w.nic);
        Pair p(w.nic, cq, nullptr, o);
        uint8_t gid[16];
        w.nic.device.gid(1, gid);
        gid[15] ^= 1;
        p.connect(w.b.qpn, gid);
        p.write(w.target.address(), w.dst.key, w.source.address(), w.src.key, 8);
        p.ring();
        CHECK_EQ(syndrome_of(cq.wait()), MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR);
    }
    // A directory that others can write is not trusted.
    const std::string open = before + "-open";
    CHECK(mkdir(open.c_str(), 0777) == 0 && chmod(open.c_str(), 0777) == 0);
    setenv("GDA_SIM_DIRECTORY", open.c_str(), 1);
    {
        Nic nic;
        CHECK(nic.said("only this user can write"));
    }
    rmdir(open.c_str());
    setenv("GDA_SIM_DIRECTORY", before.c_str(), 1);
}

// In a directory like /tmp the NICs of several users meet. Without the right to become somebody else the peer is this
// user too: the directory is then all that is tested.
void several_users() {
    const std::string before = getenv("GDA_SIM_DIRECTORY"), open = before + "-all";
    CHECK(mkdir(open.c_str(), 0777) == 0 && chmod(open.c_str(), 01777) == 0);
    setenv("GDA_SIM_DIRECTORY", open.c_str(), 1);
    {
        Process process("other");
        Side side(process.fd);
        const uint32_t bytes = 100000;
        for (uint32_t i = 0; i < bytes; ++i) side.memory.p[i] = pattern(i, 3);
        side.qp.write(side.peer.address, side.peer.key, side.memory.address(), side.key.key, bytes);
        side.qp.ring();
        CHECK_EQ(opcode_of(side.cq.wait()), MLX5_CQE_REQ);
        const uint32_t request[2] = {bytes, 3};
        uint32_t wrong = 1;
        CHECK(tell(side.fd, request, sizeof request) && hear(side.fd, &wrong, sizeof wrong));
        CHECK_EQ(wrong, 0);
        process.kill_it();
        Nic next;  // what the other user left does not stand in the way
        CHECK(!next.said("no link to other processes"));
    }
    for (const char* name : {"/nic-0", "/nic-1", "/nic-2"}) unlink((open + name).c_str());
    CHECK_EQ(rmdir(open.c_str()), 0);
    setenv("GDA_SIM_DIRECTORY", before.c_str(), 1);
}

int serve_as_other(int fd) {
    const unsigned nobody = 65534;
    if (geteuid() == 0 && (setgroups(0, nullptr) != 0 || setgid(nobody) != 0 || setuid(nobody) != 0)) return 99;
    return serve(fd);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc == 4 && std::string(argv[1]) == "peer") {
        const int fd = std::atoi(argv[3]);
        const std::string mode = argv[2];
        return mode == "serve" ? serve(fd) : mode == "other" ? serve_as_other(fd) : blast(fd);
    }
    signal(SIGPIPE, SIG_IGN);
    char directory[] = "/dev/shm/gda-test-XXXXXX";
    char fallback[] = "/tmp/gda-test-XXXXXX";
    const char* made = mkdtemp(directory);
    setenv("GDA_SIM_DIRECTORY", made ? made : mkdtemp(fallback), 1);
    const Cases cases = {
        {"two_processes", two_processes},
        {"unreadable_payload_to_another_process", unreadable_payload_to_another_process},
        {"two_nics_of_one_process", two_nics_of_one_process},
        {"killed_peer", killed_peer},
        {"sender_killed_in_the_middle", sender_killed_in_the_middle},
        {"full_inbox_waits", full_inbox_waits},
        {"forked_child_is_refused", forked_child_is_refused},
        {"host_without_shared_memory", host_without_shared_memory},
        {"several_users", several_users},
    };
    const int result = run(cases, argc, argv);
    const std::string path = getenv("GDA_SIM_DIRECTORY");
    if (DIR* d = opendir(path.c_str())) {
        while (const dirent* e = readdir(d)) unlink((path + "/" + e->d_name).c_str());
        closedir(d);
    }
    rmdir(path.c_str());
    return result;
}
