// SPDX-License-Identifier: Apache-2.0
// Integer types, offsets and byte order for every compiler that reads the formats: g++ and clang++, nvcc, NVRTC.
// The lowest floor: formats/, handle.h and the software NIC stand on this file; it includes the toolchain only.
// NVRTC has no <stdint.h>, no offsetof and no __builtin_offsetof (12.8 and 13.0), hence the second branch.
#pragma once

#if defined(__CUDACC_RTC__)
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
typedef unsigned long long uintptr_t;
#define GDA_OFFSETOF(type, member) (__INTADDR__(&(((type*)0)->member)))
#else
#include <stddef.h>
#include <stdint.h>
#define GDA_OFFSETOF(type, member) offsetof(type, member)
#endif

#if defined(__CUDACC__)
#define GDA_INLINE __host__ __device__ __forceinline__
#else
#define GDA_INLINE inline __attribute__((always_inline))
#endif

namespace gda {

// The network and the NIC are big-endian; every supported CPU and GPU here is little-endian.
GDA_INLINE constexpr uint32_t swap32(uint32_t v) {
    return (v >> 24) | ((v >> 8) & 0x0000ff00u) | ((v << 8) & 0x00ff0000u) | (v << 24);
}
GDA_INLINE constexpr uint64_t swap64(uint64_t v) {
    return (static_cast<uint64_t>(swap32(static_cast<uint32_t>(v))) << 32) | swap32(static_cast<uint32_t>(v >> 32));
}

// For literals: nvcc folds a shift expression but not __byte_perm.
#define GDA_BE32_LITERAL(v) (::gda::swap32(v))

// For values: one PRMT on the GPU, one BSWAP on the CPU.
GDA_INLINE uint32_t be32(uint32_t v) {
#if defined(__CUDA_ARCH__)
    return __byte_perm(v, 0, 0x0123);
#else
    return __builtin_bswap32(v);
#endif
}
GDA_INLINE uint64_t be64(uint64_t v) {
#if defined(__CUDA_ARCH__)
    return (static_cast<uint64_t>(be32(static_cast<uint32_t>(v))) << 32) | be32(static_cast<uint32_t>(v >> 32));
#else
    return __builtin_bswap64(v);
#endif
}

// One dword of a buffer that nobody else writes meanwhile (commands, copies of WQEs and CQEs). Shared words go
// through the target's loads and stores instead.
GDA_INLINE uint32_t load32(const void* p) {
#if defined(__CUDACC__)
    return *static_cast<const uint32_t*>(p);
#else
    uint32_t v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
#endif
}
GDA_INLINE void store32(void* p, uint32_t v) {
#if defined(__CUDACC__)
    *static_cast<uint32_t*>(p) = v;
#else
    __builtin_memcpy(p, &v, sizeof v);
#endif
}

// Bytes from one object to another of a different type, neither of them shared.
namespace target {
template <uint64_t BYTES>
GDA_INLINE void copy(void* to, const void* from) {
#if defined(__CUDACC__)
    memcpy(to, from, BYTES);
#else
    __builtin_memcpy(to, from, BYTES);
#endif
}
}  // namespace target

}  // namespace gda
