// SPDX-License-Identifier: Apache-2.0
// Litmus tests: two threads that meet in two words, many times over, with and without the barrier that the device
// library has between. Blocks in threes: one writes, one reads, one disturbs both. Nobody waits, so a launch always
// ends. tests/device/test_litmus.py.
#include <gda/gda.h>

enum pattern { NOTE_BARE, NOTE, RECORD_BARE, RECORD, HAND_OVER_BARE, HAND_OVER };
enum outcome { NEITHER, FIRST, BOTH, WEAK };  // WEAK: the second store was seen and the first was not

static constexpr uint64_t PARKED_HERE = 1u << 16;

GDA_DEVICE uint32_t litmus_random(uint32_t* state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 16;
}

GDA_DEVICE void linger(uint32_t* state) {
    for (uint32_t turns = litmus_random(state) % 64; turns != 0; --turns) gda::target::clock_ns();
}

// The first word is a piece of a work request (16 bytes) or a record, the second a word of the window or a doorbell.
GDA_DEVICE void first_thread(uint32_t what, gda::target::scope s, uint8_t* first, uint64_t* second) {
    if (what == NOTE || what == NOTE_BARE) {
        gda::target::store_segment(first, 1, 1);
        if (what == NOTE) gda::target::wqe_before_doorbell_record(s);
        gda::target::set_bits(second, 1);
        return;
    }
    gda::target::store_record(first, 1);
    if (what == RECORD || what == HAND_OVER) gda::target::doorbell_record_before_doorbell(s);
    if (what == RECORD || what == RECORD_BARE) {
        gda::target::store_doorbell(second, 1);
    } else {
        gda::target::exchange_if(second, 0, PARKED_HERE);
    }
}

GDA_DEVICE uint32_t second_thread(uint32_t what, gda::target::scope s, uint8_t* first, uint64_t* second) {
    uint64_t seen;
    if (what == HAND_OVER ||
        what == HAND_OVER_BARE) {  // the next holder writes its record; what is left is judged later
        seen = gda::target::set_bits(second, 1) & PARKED_HERE;
        if (seen == 0) return NEITHER;
        if (what == HAND_OVER) gda::target::earlier_slots_before_mine(s);
        gda::target::store_record(first, 2);
        return FIRST;
    }
    seen = what == RECORD || what == RECORD_BARE ? *static_cast<volatile uint64_t*>(second)
                                                 : gda::target::load_shared(second);
    if (what == NOTE) gda::target::earlier_slots_before_mine(s);
    if (what == RECORD) __threadfence_system();  // as the NIC, which reads the record because of the doorbell
    uint64_t data = *reinterpret_cast<volatile uint64_t*>(first);
    if (seen == 0) return data == 0 ? NEITHER : FIRST;
    return data == 0 ? WEAK : BOTH;
}

// `cells` holds 64 bytes for each of `count` meetings, `words` 8. outcomes[4], counted.
GDA_KERNEL(litmus)(uint8_t* cells, uint64_t* words, uint8_t* seen, uint64_t* outcomes, uint64_t* scratch,
                   uint32_t count, uint32_t what, uint32_t system, uint32_t seed) {
    uint32_t role = blockIdx.x % 3, threads = gridDim.x / 3 * blockDim.x,
             me = blockIdx.x / 3 * blockDim.x + threadIdx.x;
    uint32_t state = seed * 2654435761u + blockIdx.x * 97 + threadIdx.x;
    gda::target::scope s = system != 0 ? gda::target::scope_system : gda::target::scope_gpu;
    for (uint32_t i = me; i < count; i += threads) {
        // Both roles go through the meetings in the same order, which scatters neighbours.
        uint32_t at = (i * 40503u + seed) % count;
        if (role == 2) {
            gda::target::add(&scratch[litmus_random(&state) % 1024], 1);
            continue;
        }
        linger(&state);
        if (role == 0) {
            first_thread(what, s, cells + 64 * at, &words[at]);
        } else {
            uint32_t found = second_thread(what, s, cells + 64 * at, &words[at]);
            seen[at] = static_cast<uint8_t>(found);
            gda::target::add(&outcomes[found], 1);
        }
    }
}

// Of hand-overs: the record must be what the next holder wrote.
GDA_KERNEL(judge)(const uint8_t* cells, const uint8_t* seen, uint64_t* outcomes, uint32_t count) {
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        if (seen[i] != FIRST) continue;
        bool kept = *reinterpret_cast<const uint32_t*>(cells + 64 * i) == 2;
        gda::target::add(&outcomes[kept ? BOTH : WEAK], 1);
    }
}
