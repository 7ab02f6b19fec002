// SPDX-License-Identifier: Apache-2.0
// What a thread of the engine needs that sleeps: a doorbell page as a driver lays it out. And what two processes tell
// each other. For the test and the benchmark of the idle engine.
#pragma once

#include "tests/sim/engine_rig.h"

namespace rig {

// Shared memory that the engine and the program map each for itself.
struct Doorbells {
    explicit Doorbells(Nic& n) : nic(n), fd(memfd_create("doorbells", MFD_CLOEXEC)) {
        CHECK_EQ(ftruncate(fd, 4096), 0);
        CHECK_EQ(nic.device.detach_uar(Nic::PAGE), 0);
        engine = map(nullptr, 0);
        program = map(nic.page_memory->p, MAP_FIXED);
        CHECK_EQ(nic.device.attach_uar(Nic::PAGE, engine), 0);
        CHECK_EQ(nic.device.map_uar(Nic::PAGE, program), 0);
    }
    ~Doorbells() {
        nic.device.set_thread(sim::Device::Thread::off);
        nic.device.detach_uar(Nic::PAGE);
        munmap(engine, 4096);
        close(fd);
    }
    uint8_t* map(uint8_t* at, int flags) const {
        return static_cast<uint8_t*>(mmap(at, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | flags, fd, 0));
    }
    Nic& nic;
    int fd;
    uint8_t *engine = nullptr, *program = nullptr;
};

struct Card {
    uint8_t gid[16];
    uint32_t qpn, key;
    uint64_t address;
};

}  // namespace rig
