// SPDX-License-Identifier: Apache-2.0
// One software NIC: all its state, and step(), which makes it work. firmware/ fills the tables in from commands,
// uverbs/ brings memory, doorbell pages and the receivers of events; nobody else changes them.
// Every public function takes the device's lock itself; step() may be called from any thread and returns at once
// when another thread is in it. When a destroy or a move to reset has returned, the engine no longer looks at the
// object's memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "sim/engine/complaint.h"

namespace sim {

struct DeviceState;  // tables: engine/state.h, for engine/ and firmware/ only

// What the NIC tells the driver. Called from step() with no lock of the device held.
struct Events {
    std::function<void(uint32_t cqn)> completion;                  // an armed CQ got its event
    std::function<void(uint32_t number, int event)> asynchronous;  // CQ, QP or RMP number, enum AsyncEvent
};
// Values are those of enum ibv_event_type. The number names a CQ for cq_*, an RMP (shared receive queue) for srq_*.
enum class AsyncEvent : int {
    cq_error = 0,
    qp_fatal = 1,
    qp_request_error = 2,
    qp_access_error = 3,
    qp_established = 4,  // the first packet arrived in RTR
    srq_error = 14,
    srq_limit = 15,    // fewer receives are left than the armed limit; disarmed by this
    qp_last_wqe = 16,  // in ERR, and no receive of the shared queue is held any more
};

class Device {
   public:
    explicit Device(Events events);
    ~Device();
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

    // A firmware command, as DEVX carries it: `in` and `out` are structs of formats/command.h. Always fills in
    // status and syndrome; answers false when status is not OK (the driver then fails the ioctl with EREMOTEIO).
    bool command(const void* in, size_t in_bytes, void* out, size_t out_bytes);

    // Memory the NIC may reach, named by id in commands (umem). GPU addresses are recognised by asking the CUDA
    // driver when it is loaded. 0 or a negative errno; EBUSY while a queue or key uses it.
    int register_umem(uint64_t address, uint64_t bytes, uint32_t* id);
    int release_umem(uint32_t id);

    // Protection domains are numbers that must exist when a command names them.
    int allocate_pd(uint32_t* pdn);
    int release_pd(uint32_t pdn);

    // Domains of XRC. 0 or a negative errno; EBUSY while a queue pair or a shared receive queue is in it.
    int allocate_xrcd(uint32_t* number);
    int release_xrcd(uint32_t number);
    // Opens a shared receive queue to the peers of queue pairs of that domain: what they send is reported to that
    // completion queue, as `user_index`. For the rest of its life. 0 or a negative errno.
    int open_srq(uint32_t srqn, uint32_t xrcd, uint32_t cqn, uint32_t user_index);

    // The driver's own work request on a key (UMR): `in` is the struct create_mkey_in that an existing key shall now
    // stand for; its number stays. 0, or a negative errno with nothing changed.
    int rewrite_key(uint32_t index, const void* in);

    // A doorbell page, by page id, at the engine's own mapping of it.
    int attach_uar(uint32_t page_id, uint8_t* page);
    // The program sees that page at this address, too. When all of a program's mappings are known, the thread can sleep
    // until one is stored to (engine/watch.h); otherwise it looks now and then. That the program ends a mapping needs
    // not be told. 0 or -ENOENT.
    int map_uar(uint32_t page_id, uint8_t* program);
    int detach_uar(uint32_t page_id);

    // One round: look at doorbells, move packets, write completions. Returns how many things were done (0: idle).
    int step();

    // Virtual time, for all NICs of the process (sim/clock.h): only steps move them then, and a step that finds nothing
    // to do lets time jump to the next timer. For NICs without traffic; a background thread does not run meanwhile.
    static void set_virtual_time(bool on);
    static uint64_t now_ns();
    static int settle();  // under virtual time: everything that can be done before time must move

    // How the background thread behaves: off (only step() by callers), adaptive (naps, then sleeps when idle), busy
    // (spins).
    enum class Thread { off, adaptive, busy };
    void set_thread(Thread mode);
    // After how long a sleeping thread looks around though nothing has woken it; 0: as usual. For tests of what wakes.
    void set_longest_sleep(uint64_t ns);

    // This NIC on its host: slot number (0..), how many ports it has (GDA_SIM_PORTS; they count from 1), and the table
    // of addresses of each. At first it has four: 0 and 1 link-local, 2 and 3 IPv4-mapped (::ffff:127.x.y.z), of each
    // pair RoCE v1 and then v2; the rest is empty.
    uint32_t slot() const;
    uint32_t ports() const;
    static int gid_count();
    void gid(int index, uint8_t out[16], uint32_t port = 1) const;  // all zero: the entry is empty
    bool gid_is_version1(int index, uint32_t port = 1) const;
    // The network changed: the entry becomes that address, or empty (null). Queue pairs that used it stay as they are:
    // what they send still carries the old address. 0, -EINVAL for a bad index or port, -EEXIST when another entry of
    // the NIC has it.
    int set_gid(int index, const uint8_t* gid, bool version1, uint32_t port = 1);
    // What a neighbour table answers: the MAC of whoever has `gid`, for packets from entry `index`. 0; -ENODATA: that
    // entry is empty; -ETIMEDOUT: nobody on this link answers for the address; -EHOSTUNREACH: no way leads there.
    int neighbour(int index, const uint8_t gid[16], uint8_t mac[6], uint32_t port = 1);
    // The link behind a port: MTU of the network device in bytes, and whether there is a link at all.
    uint32_t link_mtu(uint32_t port = 1) const;
    int set_link_mtu(uint32_t bytes, uint32_t port = 1);  // -EINVAL below 352 (a path MTU of 256) or above 65535
    bool link_up(uint32_t port = 1) const;
    int set_link_up(bool up, uint32_t port = 1);
    void mac(uint8_t out[6], uint32_t port = 1) const;

    std::string profile() const;      // lines: what it was asked for by operation and size, and its counters
    void set_name(const char* name);  // as programs call it, for those who look from outside (engine/live.h)

    // For people and tests.
    uint64_t counter(const char* name) const;  // 0 for an unknown name
    // Of one port. What the ports share (the counters of link/counters.h) is told for each of them.
    uint64_t counter(const char* name, uint32_t port) const;
    std::vector<std::string> counter_names() const;
    std::vector<Complaint> complaints() const;  // what programs did wrong, oldest first
    std::vector<std::string> report() const;    // their sentences
    void clear_report();
    bool last_doorbell(uint32_t qpn, uint64_t* value) const;  // as stored: eight big-endian bytes
    // Faults of the network and a capture of what it carries: link/fault_spec.h, link/capture.h. An empty text or path
    // ends it. False: *problem says why, and nothing changed.
    bool set_faults(const std::string& text, std::string* problem);
    bool set_capture(const std::string& path, std::string* problem);
    // The requests of that queue pair are written by libibverbs, on the CPU; of others by a kernel. For captures.
    void set_through_libibverbs(uint32_t qpn);
    // A trace of what it does (engine/trace.h), in a file of that directory; an empty path ends it.
    bool set_trace(const std::string& directory, uint32_t log_events, uint32_t skip, std::string* problem);
    void synchronize_trace();
    static bool check_faults(const std::string& text, std::string* problem);
    // Writes through keys with relaxed ordering become visible late and in random order (engine/ordering.h).
    void set_relaxed_ordering(bool on, uint64_t seed);
    // Store-buffer mode (engine/shadow.h), and what device code tells for it: 0 a fence of system scope, 1 the
    // beginning of a kernel, 2 its end.
    void set_store_buffer(bool on);
    void device_code(int moment);
    // Complains of payload that changes while it is being sent (engine/sources.h).
    void set_watch_sources(bool on);
    void set_gpu_staging(bool on);  // copy GPU memory through pinned host memory: kernels may fill the GPU
    size_t objects() const;         // umems + PDs + keys + CQs + QPs + pages that exist

   private:
    std::unique_ptr<DeviceState> state_;
};

}  // namespace sim
