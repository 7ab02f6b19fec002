// SPDX-License-Identifier: Apache-2.0
// The words of CUDA C++ for a kernel compiled by the system's C++ compiler: qualifiers, built-in variables, barriers,
// warp operations, atomics, small functions. Source: CUDA C++ Programming Guide, "C++ Language Extensions".
// Included by target/host.h, so kernels see it through <gda/gda.h>; gda/run/host.py includes it before the source too.
// `extern __shared__` needs the source rewritten: gda/run/source.py.
#pragma once

#include <assert.h>
#include <gda/target/host/runtime.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __shared__ static thread_local
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __forceinline__ inline __attribute__((always_inline))

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
};

#define GDA_HOST_VECTOR(T, NAME)                                                                      \
    struct alignas(2 * sizeof(T)) NAME##2 { T x, y; };                                                \
    struct alignas(4 * sizeof(T) > 16 ? 16 : 4 * sizeof(T)) NAME##4 { T x, y, z, w; };                \
    static inline __attribute__((unused)) NAME##2 make_##NAME##2(T x, T y) { return NAME##2 {x, y}; } \
    static inline __attribute__((unused)) NAME##4 make_##NAME##4(T x, T y, T z, T w) { return NAME##4 {x, y, z, w}; }
GDA_HOST_VECTOR(char, char)
GDA_HOST_VECTOR(unsigned char, uchar)
GDA_HOST_VECTOR(short, short)
GDA_HOST_VECTOR(unsigned short, ushort)
GDA_HOST_VECTOR(int, int)
GDA_HOST_VECTOR(unsigned, uint)
GDA_HOST_VECTOR(long long, longlong)
GDA_HOST_VECTOR(unsigned long long, ulonglong)
GDA_HOST_VECTOR(float, float)
GDA_HOST_VECTOR(double, double)
#undef GDA_HOST_VECTOR

#define threadIdx (::gda_host_self->index)
#define blockIdx (::gda_host_here->index)
#define blockDim (::gda_host_here->threads)
#define gridDim (::gda_host_here->blocks)
static constexpr int warpSize = 32;

#define GDA_WORD static inline __attribute__((always_inline, unused)) GDA_NO_TURNS

// In the condition of a rewritten loop: the compiler must read memory again, as a spin on a plain variable hopes.
GDA_WORD void gda_host_loop() { asm volatile("" ::: "memory"); }

// ---- barriers and fences
GDA_WORD void __syncthreads() { gda_host_syncthreads(GDA_HOST_NONE, 0); }
GDA_WORD int __syncthreads_count(int predicate) { return gda_host_syncthreads(GDA_HOST_COUNT, predicate); }
GDA_WORD int __syncthreads_and(int predicate) { return gda_host_syncthreads(GDA_HOST_AND, predicate); }
GDA_WORD int __syncthreads_or(int predicate) { return gda_host_syncthreads(GDA_HOST_OR, predicate); }
GDA_WORD void __syncwarp(unsigned mask = 0xffffffffu) { gda_host_syncwarp(mask); }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Wunknown-warning-option"
#pragma GCC diagnostic ignored "-Wtsan"
GDA_WORD void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
#pragma GCC diagnostic pop
GDA_WORD void __threadfence_block() { __threadfence(); }
GDA_WORD void __threadfence_system() {
    __threadfence();
    gda_host_fence();
}

// ---- warp operations
namespace gda {
namespace target {
template <class T>
GDA_WORD uint64_t to_word(T v) {
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable<T>::value, "warp operations move up to 8 bytes");
    uint64_t word = 0;
    memcpy(&word, &v, sizeof v);
    return word;
}
template <class T>
GDA_WORD T from_word(uint64_t word) {
    T v;
    memcpy(&v, &word, sizeof v);
    return v;
}
// The lanes of one segment of `width` lanes: first one, and own position.
GDA_WORD int segment(int width) { return static_cast<int>(gda_host_self->lane) & ~(width - 1); }
}  // namespace target
}  // namespace gda

template <class T>
GDA_WORD T __shfl_sync(unsigned mask, T v, int source, int width = 32) {
    int from = gda::target::segment(width) + (source & (width - 1));
    return gda::target::from_word<T>(gda_host_shuffle(mask, gda::target::to_word(v), static_cast<uint32_t>(from)));
}
template <class T>
GDA_WORD T __shfl_up_sync(unsigned mask, T v, unsigned delta, int width = 32) {
    int lane = static_cast<int>(gda_host_self->lane), from = lane - static_cast<int>(delta);
    if (from < gda::target::segment(width)) from = lane;
    return gda::target::from_word<T>(gda_host_shuffle(mask, gda::target::to_word(v), static_cast<uint32_t>(from)));
}
template <class T>
GDA_WORD T __shfl_down_sync(unsigned mask, T v, unsigned delta, int width = 32) {
    int lane = static_cast<int>(gda_host_self->lane), from = lane + static_cast<int>(delta);
    if (from >= gda::target::segment(width) + width) from = lane;
    return gda::target::from_word<T>(gda_host_shuffle(mask, gda::target::to_word(v), static_cast<uint32_t>(from)));
}
template <class T>
GDA_WORD T __shfl_xor_sync(unsigned mask, T v, int lanes, int width = 32) {
    int lane = static_cast<int>(gda_host_self->lane), from = lane ^ lanes;
    if (from >= gda::target::segment(width) + width) from = lane;
    return gda::target::from_word<T>(gda_host_shuffle(mask, gda::target::to_word(v), static_cast<uint32_t>(from)));
}
GDA_WORD unsigned __ballot_sync(unsigned mask, int predicate) { return gda_host_ballot(mask, predicate); }
GDA_WORD int __any_sync(unsigned mask, int predicate) { return gda_host_ballot(mask, predicate) != 0; }
GDA_WORD int __all_sync(unsigned mask, int predicate) { return gda_host_ballot(mask, !predicate) == 0; }
template <class T>
GDA_WORD unsigned __match_any_sync(unsigned mask, T v) {
    return gda_host_match_any(mask, gda::target::to_word(v));
}
template <class T>
GDA_WORD unsigned __match_all_sync(unsigned mask, T v, int* same) {
    unsigned lanes = gda_host_match_all(mask, gda::target::to_word(v));
    *same = lanes != 0;
    return lanes;
}
#define __activemask() gda_host_activemask()

// ---- atomics. All scopes are one; each is sequentially consistent, which is more than CUDA promises.
namespace gda {
namespace target {
template <class T, class F>
GDA_WORD T update(T* p, F change) {
    typedef typename std::conditional<sizeof(T) == 8, uint64_t, uint32_t>::type word;
    static_assert(sizeof(T) == sizeof(word), "atomics work on 4 or 8 bytes");
    word* at = reinterpret_cast<word*>(p);
    word old = __atomic_load_n(at, __ATOMIC_SEQ_CST);
    for (;;) {
        T before = from_word<T>(old);
        word after = static_cast<word>(to_word<T>(change(before)));
        if (__atomic_compare_exchange_n(at, &old, after, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) return before;
    }
}
template <class T>
struct same {
    typedef T type;
};
}  // namespace target
}  // namespace gda

#define GDA_HOST_ATOMIC(NAME, CHANGE)                                                   \
    template <class T>                                                                  \
    GDA_WORD T NAME(T* p, typename gda::target::same<T>::type v) {                      \
        return gda::target::update(p, [v](T old) GDA_NO_TURNS -> T { return CHANGE; }); \
    }                                                                                   \
    template <class T>                                                                  \
    GDA_WORD T NAME##_system(T* p, typename gda::target::same<T>::type v) {             \
        return NAME(p, v);                                                              \
    }                                                                                   \
    template <class T>                                                                  \
    GDA_WORD T NAME##_block(T* p, typename gda::target::same<T>::type v) {              \
        return NAME(p, v);                                                              \
    }
GDA_HOST_ATOMIC(atomicAdd, static_cast<T>(old + v))
GDA_HOST_ATOMIC(atomicSub, static_cast<T>(old - v))
GDA_HOST_ATOMIC(atomicExch, (static_cast<void>(old), v))
GDA_HOST_ATOMIC(atomicMax, old < v ? v : old)
GDA_HOST_ATOMIC(atomicMin, v < old ? v : old)
GDA_HOST_ATOMIC(atomicOr, static_cast<T>(old | v))
GDA_HOST_ATOMIC(atomicAnd, static_cast<T>(old& v))
GDA_HOST_ATOMIC(atomicXor, static_cast<T>(old ^ v))
GDA_HOST_ATOMIC(atomicInc, old >= v ? static_cast<T>(0) : static_cast<T>(old + 1))
GDA_HOST_ATOMIC(atomicDec, (old == 0 || old > v) ? v : static_cast<T>(old - 1))
#undef GDA_HOST_ATOMIC

template <class T>
GDA_WORD T atomicCAS(T* p, typename gda::target::same<T>::type expected, typename gda::target::same<T>::type v) {
    static_assert(std::is_integral<T>::value, "atomicCAS works on integers");
    __atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    return expected;
}
template <class T>
GDA_WORD T atomicCAS_system(T* p, typename gda::target::same<T>::type expected, typename gda::target::same<T>::type v) {
    return atomicCAS(p, expected, v);
}
template <class T>
GDA_WORD T atomicCAS_block(T* p, typename gda::target::same<T>::type expected, typename gda::target::same<T>::type v) {
    return atomicCAS(p, expected, v);
}

// ---- small functions
template <class T>
GDA_WORD T __ldg(const T* p) {
    return *p;
}
GDA_WORD int __popc(unsigned v) { return __builtin_popcount(v); }
GDA_WORD int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
GDA_WORD int __ffs(int v) { return __builtin_ffs(v); }
GDA_WORD int __ffsll(long long v) { return __builtin_ffsll(v); }
GDA_WORD int __clz(int v) { return v == 0 ? 32 : __builtin_clz(static_cast<unsigned>(v)); }
GDA_WORD int __clzll(long long v) { return v == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(v)); }
GDA_WORD long long clock64() { return static_cast<long long>(gda_host_clock_ns()); }
GDA_WORD void __nanosleep(unsigned ns) {
    uint64_t end = gda_host_clock_ns() + ns;
    do gda_host_idle();
    while (gda_host_clock_ns() < end);
}
GDA_WORD void __trap() { gda_host_trap(); }
GDA_WORD float rsqrtf(float v) { return 1.0f / sqrtf(v); }
GDA_WORD float __fdividef(float a, float b) { return a / b; }

template <class A, class B>
GDA_WORD typename std::common_type<A, B>::type min(A a, B b) {
    typedef typename std::common_type<A, B>::type T;
    return static_cast<T>(b) < static_cast<T>(a) ? static_cast<T>(b) : static_cast<T>(a);
}
template <class A, class B>
GDA_WORD typename std::common_type<A, B>::type max(A a, B b) {
    typedef typename std::common_type<A, B>::type T;
    return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(b) : static_cast<T>(a);
}

// ---- how the runtime calls a kernel
namespace gda {
namespace target {
template <class T>
struct dynamic_shared {  // an extern __shared__ array outside a function
    operator T*() const { return static_cast<T*>(gda_host_here->dynamic_shared); }
};

template <class... P, size_t... I>
GDA_WORD void call_with(void (*kernel)(P...), void* const* arguments, std::index_sequence<I...>) {
    kernel(*static_cast<typename std::remove_reference<P>::type*>(arguments[I])...);
}
template <class... P>
GDA_WORD void call(void (*kernel)(P...), void* const* arguments) {
    call_with(kernel, arguments, std::index_sequence_for<P...>());
}
template <class... P>
constexpr size_t parameter_count(void (*)(P...)) {
    return sizeof...(P);
}
template <class... P>
GDA_WORD uint64_t parameter_sizes(void (*)(P...), uint64_t* bytes) {
    const uint64_t sizes[] = {sizeof(P)..., 0};
    for (size_t i = 0; i < sizeof...(P); ++i) bytes[i] = sizes[i];
    return sizeof...(P);
}
}  // namespace target
}  // namespace gda
