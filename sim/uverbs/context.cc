// SPDX-License-Identifier: Apache-2.0
// See context.h.
#include "sim/uverbs/context.h"

#include <errno.h>
#include <fcntl.h>
#include <rdma/mlx5-abi.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <new>

#include "sim/uverbs/dispatch.h"
#include "sim/uverbs/nic.h"
#include "sim/uverbs/poll.h"
#include "sim/uverbs/real.h"
#include "sim/uverbs/uar.h"

namespace sim::uverbs {
namespace {

constexpr off_t clock_page_offset = static_cast<off_t>(MLX5_IB_MMAP_CLOCK_INFO) << 8 << 12;  // command, index, page

}  // namespace

int Context::open(int index, int flags) {
    const Nic nic(index);
    if (!nic) return -ENODEV;
    const int fd = memfd_create(("uverbs" + std::to_string(index)).c_str(), (flags & O_CLOEXEC) ? MFD_CLOEXEC : 0);
    if (fd < 0) return -errno;
    const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    auto context = own < 0 ? nullptr : std::shared_ptr<Context>(new (std::nothrow) Context(index, own));
    if (!context || ftruncate(fd, uar::file_bytes) != 0 || !context->preset_clock_page()) {
        if (own >= 0 && !context) real::close(own);
        real::close(fd);
        return own < 0 ? -EMFILE : -ENOMEM;
    }
    files::add(fd, std::move(context));
    return fd;
}

Context::~Context() {
    close();
    real::close(memory_fd_);
}

// libmlx5 turns the raw timestamps of CQEs into nanoseconds by this page. The NIC's clock counts nanoseconds, so the
// page says "times one, from zero", which never needs an update (the kernel's page is rewritten for a drifting clock).
bool Context::preset_clock_page() {
    mlx5_ib_clock_info info{};
    info.mult = 1;
    info.mask = ~0ull;
    info.overflow_period = ~0ull >> 1;
    return pwrite(memory_fd_, &info, sizeof info, clock_page_offset) == static_cast<ssize_t>(sizeof info);
}

int Context::ioctl(void* header) {
    std::lock_guard<std::mutex> guard(mutex_);
    if (closed_) return EBADF;
    const Nic::Use use(nic_);
    return dispatch(*this, header);
}

int Context::event_channel(const Request& request, uint16_t id, std::shared_ptr<Channel>* channel) const {
    *channel = request.has(id) ? files::channel(request.file(id)) : asynchronous;
    const bool wrong = *channel && (*channel)->carries() != Channel::Carries::asynchronous;
    return (request.has(id) && !*channel) || wrong ? EBADF : 0;
}

void Context::close() {
    std::lock_guard<std::mutex> guard(mutex_);
    if (closed_) return;
    closed_ = true;
    const Nic::Use use(nic_);
    objects.destroy_all();
    if (asynchronous) asynchronous->close();
}

namespace files {
namespace {

struct Entry {
    std::shared_ptr<Context> context;
    std::shared_ptr<Channel> channel;
    dev_t device = 0;  // what the descriptor was when it became ours: a program may close it behind our back
    ino_t inode = 0;
    bool inherited = false;
};

constexpr int quick = 65536;
std::atomic<uint8_t> marks[quick];      // 1: there is an entry
std::atomic<bool> beyond_marks{false};  // some descriptor of ours has a larger number

struct Table {
    std::mutex mutex;
    std::map<int, Entry> entries;
    pid_t owner = 0;  // a vfork child shares our memory but not our descriptors: what it closes stays ours
};
Table& table() {
    static Table* instance = new Table;
    return *instance;
}

void insert(int fd, Entry entry) {
    struct stat status{};
    real::fstat(fd, &status);
    entry.device = status.st_dev;
    entry.inode = status.st_ino;
    Entry stale;  // destroyed after the lock is released
    {
        std::lock_guard<std::mutex> guard(table().mutex);
        table().owner = getpid();
        std::swap(stale, table().entries[fd]);
        std::swap(entry, table().entries[fd]);
    }
    if (fd < quick)
        marks[fd] = 1;
    else
        beyond_marks = true;
}

Entry take(int fd) {
    std::lock_guard<std::mutex> guard(table().mutex);
    auto found = table().entries.find(fd);
    if (found == table().entries.end()) return {};
    Entry entry = std::move(found->second);
    table().entries.erase(found);
    if (fd < quick) marks[fd] = 0;
    return entry;
}

// A context lives as long as one of its descriptors.
void end(const Entry& entry) {
    if (entry.context) {
        bool open = false;
        {
            std::lock_guard<std::mutex> guard(table().mutex);
            for (const auto& [fd, other] : table().entries) open = open || other.context == entry.context;
        }
        if (!open) entry.context->close();
    }
    if (entry.channel) entry.channel->close();
}

Entry look(int fd) {
    if (!maybe(fd)) return {};
    Entry entry;
    {
        std::lock_guard<std::mutex> guard(table().mutex);
        auto found = table().entries.find(fd);
        if (found == table().entries.end()) return {};
        entry = found->second;
    }
    struct stat status{};
    if (real::fstat(fd, &status) == 0 && status.st_dev == entry.device && status.st_ino == entry.inode) return entry;
    // close_range(), dup2() or a direct system call ended it: so it ends here, too.
    end(take(fd));
    return {};
}

}  // namespace

bool maybe(int fd) {
    if (fd < 0) return false;
    return fd < quick ? marks[fd].load(std::memory_order_relaxed) != 0 : beyond_marks.load(std::memory_order_relaxed);
}

std::shared_ptr<Context> context(int fd) { return look(fd).context; }
std::shared_ptr<Channel> channel(int fd) { return look(fd).channel; }

bool inherited(int fd) { return look(fd).inherited; }

void add(int fd, std::shared_ptr<Context> context) {
    Entry entry;
    entry.context = std::move(context);
    insert(fd, std::move(entry));
}
void add(int fd, std::shared_ptr<Channel> channel) {
    Entry entry;
    entry.channel = std::move(channel);
    insert(fd, std::move(entry));
}

int close(int fd) {
    {
        std::lock_guard<std::mutex> guard(table().mutex);
        if (table().owner != getpid()) return real::close(fd);
    }
    look(fd);  // drops a stale entry, so that a stranger's descriptor with this number is only closed
    end(take(fd));
    return real::close(fd);
}

bool adopt(int fd, const struct ::stat& status) {
    // Cheap for all others: a device file is the only kind of this size without a name.
    if (!S_ISREG(status.st_mode) || status.st_size != uar::file_bytes || status.st_nlink != 0) return false;
    std::shared_ptr<Context> found;
    {
        std::lock_guard<std::mutex> guard(table().mutex);
        if (table().owner != getpid()) return false;
        for (const auto& [other, entry] : table().entries)
            if (entry.context && entry.device == status.st_dev && entry.inode == status.st_ino) found = entry.context;
    }
    if (found) add(fd, found);
    return found != nullptr;
}

bool is_device(dev_t device, ino_t inode) {
    std::lock_guard<std::mutex> guard(table().mutex);
    for (const auto& [fd, entry] : table().entries)
        if (entry.context && entry.device == device && entry.inode == inode) return true;
    return false;
}

void lock() { table().mutex.lock(); }
void unlock() { table().mutex.unlock(); }

void forget() {
    // The objects behind the entries belong to the parent's NIC. They are leaked, for their end would be commands.
    static auto* leaked = new std::vector<Entry>;
    for (auto& [fd, entry] : table().entries) {
        leaked->push_back(entry);
        entry.context = nullptr;
        entry.channel = nullptr;
        entry.inherited = true;
    }
    table().owner = getpid();
}

}  // namespace files
}  // namespace sim::uverbs
