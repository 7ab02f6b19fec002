// SPDX-License-Identifier: Apache-2.0
// Runs a program of a few threads in every way, one execution after the other. Used by target.h and explore.cc.
//
// Depth-first and stateless: an execution is a list of choices (which thread goes on; which value a load answers), and
// the next one differs in the last choice that had another. Threads are fibers that stop before each access that others
// can see. Sleep sets leave out executions that differ only in the order of accesses that do not meet (Godefroid,
// "Partial-Order Methods", section 5). Or at random, by seed, for programs with too many executions.
#pragma once

#include <gda/target/host/fiber.h>
#include <stdint.h>

#include <string>
#include <vector>

namespace model {

constexpr uint32_t MOST_THREADS = 8;

// What a thread is about to do: which words, by bit, and whether it only reads them.
struct access {
    uint64_t words = 0;
    bool reads_only = false;
    bool meets(const access& o) const { return (words & o.words) != 0 && !(reads_only && o.reads_only); }
};

// What a program is to the explorer.
struct program {
    virtual ~program() = default;
    virtual uint32_t threads() const = 0;
    virtual void begin() = 0;                     // of an execution
    virtual void run(uint32_t thread) = 0;        // on its fiber
    virtual bool can_go_on(uint32_t thread) = 0;  // of one that waits
    virtual bool may_stay(uint32_t thread) = 0;   // one that need not end
    virtual void end() = 0;                       // all threads have ended: whole-execution checks
};

struct outcome {
    uint64_t executions = 0, cut = 0, accesses = 0;
    bool complete = false;
    std::string violation;
    std::vector<std::string> log;
};

class explorer {
   public:
    explorer(program& p, uint64_t most, uint64_t seed);
    outcome explore();

    // By the running thread.
    uint32_t self() const { return running_; }
    void before(const access& a, bool waits = false);  // a point where any thread may go on
    uint32_t choose(uint32_t n);                       // 0 to n - 1
    [[noreturn]] void violated(const std::string& what);
    void failed(const std::string& what) {
        if (outcome_.violation.empty()) outcome_.violation = what;
    }
    void note(const std::string& line) { log_.push_back(line); }
    bool noting() const { return noting_; }

   private:
    enum state : uint8_t { ready, ended };
    struct thread {
        gda::host::context where;
        uint8_t* stack;
        state now;
        bool waits;
        access next;
    };
    struct node {
        bool of_value;
        uint32_t chosen, n;      // value: of n. Thread: which one
        uint32_t asleep, other;  // threads by bit: that need not run here; that may
    };

    static void enter(void* argument);
    void execute();
    void resume(uint32_t t);
    void stop();
    bool next();
    uint64_t random(uint64_t n);
    uint32_t pick(uint32_t able, uint32_t* asleep);

    program& program_;
    uint64_t most_, seed_, state_;
    std::vector<thread> threads_;
    gda::host::context scheduler_;
    uint32_t running_ = 0;
    std::vector<node> path_;
    size_t depth_ = 0;
    bool cut_ = false, noting_ = false;
    std::vector<std::string> log_;
    outcome outcome_;
};

}  // namespace model
