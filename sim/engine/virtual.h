// SPDX-License-Identifier: Apache-2.0
// Virtual time (sim/clock.h): all NICs of the process move together, in the order in which they were made, and time
// moves when nothing else can. Called instead of a single NIC's step.
#pragma once

#include "sim/engine/state.h"

namespace sim {

// What every NIC can do now; if that is nothing, time jumps to the next moment at which one can. Returns how many
// things were done, a jump among them; 0: nothing will ever happen by itself.
int step_virtual();
// The same at this moment only: time stands. Returns how many things were done.
int settle_virtual();

}  // namespace sim
