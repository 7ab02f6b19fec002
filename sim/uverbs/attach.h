// SPDX-License-Identifier: Apache-2.0
// The front end inside a running process: hooks written into the import tables of the verbs libraries already loaded.
#pragma once

#include <string>

namespace sim::uverbs::attach {

// Patches libibverbs, libmlx5 and libnl-3 wherever they are loaded. May be called again, after more were loaded.
// Nothing to do under the preload library. 0 or a negative errno, with the reason in *message.
int attach(std::string* message);
bool attached();

}  // namespace sim::uverbs::attach
