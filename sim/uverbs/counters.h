// SPDX-License-Identifier: Apache-2.0
// The counters of each port as files: ports/N/counters and ports/N/hw_counters of the sysfs tree. A file is written
// when a program is about to open it, for nobody could rewrite all of them all the time.
#pragma once

#include <string>
#include <vector>

namespace sim::uverbs::counters {

// Names of the files in a directory of the port: "counters" or "hw_counters".
std::vector<const char*> names(const std::string& directory);

// `path` lies in the tree and is about to be opened: if it is one of these files, its value is brought up to date.
void refresh(const char* path);

}  // namespace sim::uverbs::counters
