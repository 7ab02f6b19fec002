// SPDX-License-Identifier: Apache-2.0
// What is printed when the process ends and the NIC has complained: on stderr, once. Called by nic.cc; a program that
// was started by `sim run` hears of its mistakes in no other way. docs/checker.md.
#pragma once

#include <vector>

#include "sim/engine/complaint.h"

namespace sim::uverbs::last_words {

// How GDA_SIM_COMPLAINTS has it, until set() changes it: printed (the default), silent, or strict: printed, and a
// process that would end with status 0 ends with FAILED.
enum class Manner { print, silent, strict };
enum : int { FAILED = 86 };
Manner manner();
void set(Manner manner);

// Prints them, after everything else that the process printed. The exit status that the process shall have.
int say(const std::vector<Complaint>& complaints, int status);

}  // namespace sim::uverbs::last_words
