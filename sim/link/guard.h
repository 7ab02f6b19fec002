// SPDX-License-Identifier: Apache-2.0
// Reads and writes of memory that belongs to the program, as a NIC makes them: the program may have unmapped or
// protected it since it was registered, and that must become an error completion, not a crash. Used by the carriers
// and by engine/memory.cc.
//
// How: a copy arms a jump buffer of its thread; a SIGSEGV or SIGBUS while one is armed jumps back and the copy answers
// false. Any other fault goes to the handler that was there before. Chosen over process_vm_readv (1 us a copy against
// 10 ns) and over reading /proc/self/maps (milliseconds). Limits: a handler installed after the NIC was created and
// which does not pass signals on hides ours; memory mapped anew at the same address is written as if it were the old.
// The copies are written out as loops that sanitizers do not watch: the NIC's accesses are not the program's.
#pragma once

#include <cstddef>
#include <cstdint>

namespace sim {

// Installs the handlers, once per process. Copies before that are unguarded.
void install_guard();

// Copies; false when a page of either side cannot be reached (then *fault is the address, part may be written).
bool guarded_copy(void* destination, const void* source, size_t bytes, uintptr_t* fault = nullptr);

// One aligned word, as another agent stores or loads it (acquire and release).
bool guarded_load32(const void* source, uint32_t* value);
bool guarded_store32(void* destination, uint32_t value);

// A completion entry: `bytes` - 4 bytes, and then the last dword with release, so that whoever sees it sees all.
bool guarded_publish(void* destination, const void* source, size_t bytes);

// One word of 4 or 8 bytes, aligned: loads it; replaces it if it is still *expected, else says in *expected what it is.
bool guarded_load(const void* source, size_t bytes, uint64_t* value);
bool guarded_replace(void* destination, size_t bytes, uint64_t* expected, uint64_t value, bool* replaced);

// The first of `count` words that is not what it was, and stores there what it is now; `count` when there is none. One
// that cannot be reached counts as changed, and so does one without an address.
struct WatchedWord {
    const uint32_t* at;
    uint32_t seen;
};
size_t guarded_first_change(WatchedWord* words, size_t count);

// Replaces a word if it is still `expected`; answers false also when it was not.
bool guarded_exchange32(void* destination, uint32_t expected, uint32_t value);

}  // namespace sim
