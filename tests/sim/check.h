// SPDX-License-Identifier: Apache-2.0
// What every C++ test program of the software NIC shares: checks that go on after a failure, and main().
#pragma once

#include <cstdio>
#include <functional>
#include <map>
#include <string>

namespace rig {

inline int failures = 0;
#define CHECK(condition)                                                            \
    do {                                                                            \
        if (!(condition)) {                                                         \
            std::printf("  %s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
            ++rig::failures;                                                        \
        }                                                                           \
    } while (0)
#define CHECK_EQ(a, b)                                                                                             \
    do {                                                                                                           \
        const unsigned long long left = static_cast<unsigned long long>(a),                                        \
                                 right = static_cast<unsigned long long>(b);                                       \
        if (left != right) {                                                                                       \
            std::printf("  %s:%d: %s is 0x%llx, expected 0x%llx (%s)\n", __FILE__, __LINE__, #a, left, right, #b); \
            ++rig::failures;                                                                                       \
        }                                                                                                          \
    } while (0)

typedef std::map<std::string, std::function<void()>> Cases;

// main() of a test program: `list`, or names of cases to run (none: all).
inline int run(const Cases& cases, int argc, char** argv) {
    setvbuf(stdout, nullptr, _IOLBF, 0);
    if (argc > 1 && std::string(argv[1]) == "list") {
        for (const auto& c : cases) std::printf("%s\n", c.first.c_str());
        return 0;
    }
    for (const auto& c : cases) {
        bool wanted = argc == 1;
        for (int i = 1; i < argc; ++i) wanted = wanted || c.first == argv[i];
        if (!wanted) continue;
        const int before = failures;
        c.second();
        std::printf("%s %s\n", failures == before ? "ok" : "FAILED", c.first.c_str());
    }
    return failures ? 1 : 0;
}

}  // namespace rig
