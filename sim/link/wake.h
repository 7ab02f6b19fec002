// SPDX-License-Identifier: Apache-2.0
// How the engine of one process wakes that of another which sleeps (inbox.h): one byte into a named pipe beside the
// inbox, `nic-<slot>.wake`. A pipe, since the sleeper waits for several things at once with poll().
#pragma once

#include <cstdint>
#include <string>

namespace sim {

// The sleeper's end, made with the NIC and removed with it.
class WakePipe {
   public:
    WakePipe() = default;
    ~WakePipe() { close(); }
    WakePipe(const WakePipe&) = delete;
    WakePipe& operator=(const WakePipe&) = delete;

    // Makes it anew; `shared`: other users may write. 0 or errno, and then nobody can wake this NIC.
    int make(const std::string& path, bool shared);
    int descriptor() const { return fd_; }  // readable when somebody woke us
    void drain();
    void close();   // before the slot is given up: its next owner makes its own
    void disown();  // in a forked child: closes it and leaves the name to the parent

   private:
    std::string path_;
    int fd_ = -1;
};

// The other end.
class WakeCall {
   public:
    WakeCall() = default;
    ~WakeCall() { forget(); }
    WakeCall(const WakeCall&) = delete;
    WakeCall& operator=(const WakeCall&) = delete;

    void wake(const std::string& path);  // opens it the first time; a sleeper that cannot be woken looks by itself
    void forget();                       // the NIC in that slot is gone: the next one has another pipe

   private:
    int fd_ = -1;
};

}  // namespace sim
