// SPDX-License-Identifier: Apache-2.0
// Work that one CUDA context does in the background, of two kinds. Ring: small things, written as items into pinned
// memory and executed by a kernel of ours (copy_kernel.h), which stays for a moment so that the next ones need no
// launch. Bulk: large copies by the driver, on a stream of their own. Between the two there is no order but what the
// caller waits for. Called by gpu_later.cc with the device's lock held; nothing here waits for the GPU.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "sim/engine/copy_kernel.h"
#include "sim/engine/cuda_driver.h"

namespace sim::gpu {

enum class State { done, pending, failed };

// Works that end in the order in which they were begun, counted from 1.
class Line {
   public:
    State state_of(uint64_t number) const {
        if (number <= done_) return State::done;
        return failed_ && number <= failed_to_ ? State::failed : State::pending;
    }
    uint64_t begun() const { return begun_; }
    bool idle() const { return done_ == begun_; }
    bool busy() const { return done_ != begun_ && !(failed_ && failed_to_ == begun_); }
    // What failed is still on its way when the GPU was merely occupied; until it has ended nothing else is begun.
    bool usable() const { return !failed_; }
    const std::string& problem() const { return problem_; }

   protected:
    Line(CUcontext context, const char* what) : context_(context), what_(what) {}
    uint64_t begin(uint64_t now_ns);
    // True: some have ended since.
    bool ended(uint64_t number, uint64_t now_ns);
    // Asks the driver about the stream when nothing has ended for a while, or `at_once`.
    void watch(uint64_t now_ns, bool at_once);
    void fail(const std::string& problem);

    CUcontext context_;
    const char* what_;
    CUstream stream_ = nullptr;
    uint64_t begun_ = 0, done_ = 0, failed_to_ = 0;
    uint64_t moved_ns_ = 0, asked_ns_ = 0;
    bool failed_ = false;
    std::string problem_;
};

class Ring : public Line {
   public:
    enum : uint32_t { ITEMS = 1u << COPY_KERNEL_LOG_RING, DATA_BYTES = 256 };

    // Null: not with this driver. The context is current. Everything that could wait for a kernel happens here: the
    // code is loaded, the memory allocated.
    static std::unique_ptr<Ring> make(CUcontext context);

    bool has_room(uint32_t items = 1) const { return begun_ - done_ + items < ITEMS; }
    // Host memory of DATA_BYTES that belongs to the next item.
    uint8_t* data() { return data_ + (begun_ % ITEMS) * DATA_BYTES; }
    // Appends it behind item `after` (0: behind none) and answers its number. `sink`: where the result of an atomic
    // goes when it is done, or null.
    uint64_t append(Item item, uint64_t after, uint64_t now_ns, uint64_t* sink = nullptr);
    // A kernel that is there takes what was appended by itself; else one is launched.
    void flush();
    bool poll(uint64_t now_ns, bool ask_at_once);
    // The kernel leaves the GPU, as an item among the others; afterwards, when that is done, whether it has.
    void ask_to_end(uint64_t now_ns);
    bool has_ended();

    uint64_t launches() const { return launch_; }

   private:
    explicit Ring(CUcontext context) : Line(context, "the copy kernel") {}
    bool running() const;
    void launch();

    CUfunction function_ = nullptr;
    Control* control_ = nullptr;
    Item* items_ = nullptr;
    uint64_t* results_ = nullptr;
    uint8_t* data_ = nullptr;
    // Whether the item may join the last phase though it comes after it.
    bool joins(const Item& item) const;
    uint64_t phase_ = 0;        // the first item of the last phase
    Item phase_item_ = {};      // it
    uint32_t phase_bytes_ = 0;  // of its 32 bytes of memory, those that the phase stores; 0: it does other things
    uint64_t launch_ = 0;       // launches so far, and the number of the last
    struct Sink {
        uint64_t number;
        uint64_t* word;
    };
    std::deque<Sink> sinks_;
};

class Bulk : public Line {
   public:
    enum : uint64_t { MOST = 256 };  // copies on their way

    static std::unique_ptr<Bulk> make(CUcontext context);
    bool has_room() const { return begun_ - done_ < MOST; }
    // 0: the driver refused, *problem says so.
    uint64_t append(uint64_t to, uint64_t from, size_t bytes, uint64_t now_ns, std::string* problem);
    void flush();
    bool poll(uint64_t now_ns, bool ask_at_once);

   private:
    explicit Bulk(CUcontext context) : Line(context, "a device-to-device copy") {}
    uint64_t* flag_ = nullptr;  // pinned: the last copy that has ended
    uint64_t flagged_ = 0;      // copies behind which the flag will be written
};

}  // namespace sim::gpu
