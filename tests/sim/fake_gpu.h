// SPDX-License-Identifier: Apache-2.0
// The GPU of fake_libcuda.cc as tests of the engine see it. GDA_TEST_FAKE_CUDA is the library's path.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

struct FakeGpu {
    enum Count { to_gpu, from_gpu, within, pinned, launches, items, bad_accesses };

    uint64_t (*allocate)(size_t offset);  // the same memory each time, from that byte on
    uint8_t* (*view)(uint64_t);           // it, as the CPU may look at it
    int (*count)(int);
    void (*fill)(int);                         // kernels fill the GPU, or no longer
    void (*free)(uint64_t, size_t);            // CUDA knows no memory there any more
    void (*break_context)(int);                // every call answers this error from now on; 0: no longer
    void (*refuse)(int launches, int copies);  // so many are refused
    void (*seed)(uint64_t);                    // of what happens when
    void (*hold)(int);                         // who asks about a stream moves nothing in it, or does again
    int (*run)(int steps);                     // the GPU works; answers how many steps moved something

    bool open() {
        void* library = dlopen(getenv("GDA_TEST_FAKE_CUDA"), RTLD_NOW | RTLD_GLOBAL);
        if (!library) std::printf("cannot load the fake driver: %s\n", dlerror());
        if (!library) return false;
        const auto find = [library](auto& function, const char* name) {
            function = reinterpret_cast<typename std::decay<decltype(function)>::type>(dlsym(library, name));
        };
        find(allocate, "fake_allocate"), find(view, "fake_view"), find(count, "fake_count"), find(fill, "fake_fill");
        find(free, "fake_free"), find(break_context, "fake_break"), find(refuse, "fake_refuse");
        find(seed, "fake_seed"), find(hold, "fake_hold"), find(run, "fake_run");
        return true;
    }
};
