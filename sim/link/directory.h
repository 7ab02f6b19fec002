// SPDX-License-Identifier: Apache-2.0
// Where the software NICs of one host meet: a directory with one file per NIC, `nic-<slot>`, which is also that NIC's
// inbox (inbox.h). The owner holds a file lock for life, so a free lock means a dead owner, also after SIGKILL; each
// start sweeps such files. Directory: GDA_SIM_DIRECTORY, else /dev/shm/gda-sim-<uid>, for this user alone. A directory
// named by the variable that is like /tmp (writable by all, sticky: mode 1777) lets the NICs of several users meet; who
// makes one trusts those users, since each may write into the others' inboxes.
#pragma once

#include <cstdint>
#include <string>

#include "sim/link/inbox.h"
#include "sim/link/wake.h"

namespace sim {

class Directory {
   public:
    // Takes the first free slot and sweeps what dead NICs left. On failure slot() is 0, inbox() null, problem() says
    // why.
    Directory();
    ~Directory();
    Directory(const Directory&) = delete;
    Directory& operator=(const Directory&) = delete;

    uint32_t slot() const { return slot_; }
    Inbox* inbox() const { return inbox_; }
    const std::string& problem() const { return problem_; }
    const std::string& path() const { return path_; }

    // By which others wake this NIC, and it them.
    WakePipe& pipe() { return pipe_; }
    std::string pipe_path(uint32_t slot) const { return file(slot) + ".wake"; }

    // Maps the inbox of another NIC. Null: there is none, or it is being made.
    Inbox* open_peer(uint32_t slot) const;
    // Whether the NIC in that slot has an owner: its file exists and is locked.
    bool alive(uint32_t slot) const;
    // When something in the directory changed last, in nanoseconds: a NIC came, went or touched it. 0 while that is so
    // recent that another change may carry the same time.
    uint64_t age() const;
    void touch() const;
    // In a forked child: forgets the slot without giving it up, since the parent still has it.
    void disown();

   private:
    bool prepare();
    bool take(uint32_t slot);
    void sweep() const;
    std::string file(uint32_t slot) const;

    int create(const std::string& name) const;

    std::string path_, problem_;
    bool shared_ = false;  // by several users
    uint32_t slot_ = 0;
    int lock_ = -1;
    Inbox* inbox_ = nullptr;
    WakePipe pipe_;
};

}  // namespace sim
