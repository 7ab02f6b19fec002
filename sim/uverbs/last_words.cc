// SPDX-License-Identifier: Apache-2.0
// See last_words.h.
#include "sim/uverbs/last_words.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <atomic>

namespace sim::uverbs::last_words {
namespace {

const size_t MOST_PRINTED = 20;

Manner from_environment() {
    const char* value = getenv("GDA_SIM_COMPLAINTS");
    if (value && strcmp(value, "silent") == 0) return Manner::silent;
    return value && strcmp(value, "strict") == 0 ? Manner::strict : Manner::print;
}
std::atomic<Manner>& chosen() {
    static std::atomic<Manner> it{from_environment()};
    return it;
}

}  // namespace

Manner manner() { return chosen().load(); }
void set(Manner manner) { chosen().store(manner); }

int say(const std::vector<Complaint>& complaints, int status) {
    if (complaints.empty() || manner() == Manner::silent) return status;
    fflush(stdout);
    fprintf(stderr,
            "gda: the software NIC has complaints: %zu (docs/checker.md; GDA_SIM_COMPLAINTS=silent hides them)\n",
            complaints.size());
    for (size_t i = 0; i < complaints.size() && i < MOST_PRINTED; ++i) {
        const KindWords& words = words_of(complaints[i].kind);
        fprintf(stderr, "gda:   %s: %s", words.name.c_str(), complaints[i].sentence.c_str());
        if (complaints[i].times > 1)
            fprintf(stderr, " (%llu times)", static_cast<unsigned long long>(complaints[i].times));
        fprintf(stderr, "\ngda:     try: %s\n", words.advice.c_str());
    }
    if (complaints.size() > MOST_PRINTED) fprintf(stderr, "gda:   and %zu more\n", complaints.size() - MOST_PRINTED);
    return manner() == Manner::strict && status == 0 ? int{FAILED} : status;
}

}  // namespace sim::uverbs::last_words
