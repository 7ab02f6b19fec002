// SPDX-License-Identifier: Apache-2.0
// What `python -m gda profile` asks for: with a variable that names a file, FILE, each process writes at exit, into
// FILE.PID, what its NICs were asked for and how long its threads waited. Without the variable nothing is measured.
// Part of two libraries: the software NIC (GDA_SIM_PROFILE), and the one that watches calls of libibverbs, whatever
// NIC is behind them (sim/calls, GDA_PROFILE).
//
// A thread waits while a poll that finds nothing steps the NIC, until one that finds something as long as it asks again
// and again; and while it sleeps in a read of a completion channel. Device code on the CPU waits while it steps the
// NIC.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace sim::uverbs::profile {

extern const char* const variable;  // its name, defined once in each library

enum class Wait : int { poll, channel, kernel, count };

bool on();
// A question that was answered at once; one that was not: since when it waits (0: nothing is measured), and its end.
void found(Wait how);
uint64_t begin();
void end(Wait how, uint64_t since_ns, bool vain);
// A thread sleeps in a read from here to the end of the object's life.
class Sleeping {
   public:
    Sleeping();
    ~Sleeping();
    Sleeping(const Sleeping&) = delete;
    Sleeping& operator=(const Sleeping&) = delete;

   private:
    uint64_t since_ns_;
};

// Called at exit: `nics` are lines that each NIC tells of itself.
void write(const std::vector<std::string>& nics);

}  // namespace sim::uverbs::profile
