// SPDX-License-Identifier: Apache-2.0
// What the programs of this folder that run the driver expect of each call, in C and in C++: whatever is not true ends
// the program. Used by uverbs_*, and by the benchmarks through verbs_rig.h.
#pragma once

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECT(condition)                                                                                           \
    do {                                                                                                            \
        if (!(condition)) {                                                                                         \
            fprintf(stderr, "line %d: not true: %s (errno %d %s)\n", __LINE__, #condition, errno, strerror(errno)); \
            exit(1);                                                                                                \
        }                                                                                                           \
    } while (0)
#define EXPECT_ERRNO(call, number) EXPECT(((errno = 0), (call)) && errno == (number))

// Buffers of a firmware command (gda/formats/command.h): `in` with its opcode, and `out`.
#define COMMAND(NAME, OPCODE)                   \
    uint8_t in[GDA_BYTES_OF(NAME##_in)] = {};   \
    uint8_t out[GDA_BYTES_OF(NAME##_out)] = {}; \
    GDA_SET(NAME##_in, in, opcode, OPCODE)
