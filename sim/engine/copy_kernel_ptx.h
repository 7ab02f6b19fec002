// SPDX-License-Identifier: Apache-2.0
// The kernel of copy_kernel.h as PTX text, written by hand: no compiler of device code is needed to build the
// simulator. Included by gpu_ring.cc alone.
//
// Parameters: control block, ring of items, results of atomics (a word for each item of the ring), the first item to
// execute, the number of this launch, how long to wait for more in nanoseconds.
// From sm_90 on fence.release does what fence.acq_rel is here for, and takes half the time: gpu_ring.cc replaces it.
// Source: PTX ISA, "Memory Consistency Model", "ld", "st", "fence", "vote.sync", "shfl.sync".
#pragma once

namespace sim::gpu {

inline const char* const COPY_KERNEL = R"ptx(
.version 6.0
.target sm_70
.address_size 64

// What all warps copy together: bytes 0 means the end.
.shared .align 8 .b64 order_to;
.shared .align 8 .b64 order_from;
.shared .align 4 .b32 order_bytes;
.shared .align 4 .b32 order_fence;  // not 0: earlier items come first

// The part of thread `rank` of `threads`: 16 bytes each time where everything is a multiple of that, or 4, or 1.
.func copy_part(.reg .b64 to, .reg .b64 from, .reg .b32 bytes, .reg .b32 rank, .reg .b32 threads)
{
    .reg .pred p;
    .reg .b16 h;
    .reg .b32 t, u, w;
    .reg .b64 offset, step, length, limit, x1, x2, x3, y1, y2, y3, v0, v1, v2, v3, v4, v5, v6, v7;
    cvt.u64.u32 length, bytes;
    or.b64 limit, to, from;
    or.b64 limit, limit, length;
    cvt.u32.u64 t, limit;
    and.b32 u, t, 3;
    setp.ne.u32 p, u, 0;
    @p bra by_1;
    and.b32 u, t, 15;
    setp.ne.u32 p, u, 0;
    @p bra by_4;
    mul.wide.u32 offset, rank, 16;
    mul.wide.u32 step, threads, 16;
    add.u64 to, to, offset;
    add.u64 from, from, offset;
fourfold:
    mad.lo.u64 limit, step, 3, offset;
    setp.ge.u64 p, limit, length;
    @p bra by_16;
    add.u64 y1, from, step;
    add.u64 y2, y1, step;
    add.u64 y3, y2, step;
    ld.relaxed.sys.global.v2.b64 {v0, v1}, [from];
    ld.relaxed.sys.global.v2.b64 {v2, v3}, [y1];
    ld.relaxed.sys.global.v2.b64 {v4, v5}, [y2];
    ld.relaxed.sys.global.v2.b64 {v6, v7}, [y3];
    add.u64 x1, to, step;
    add.u64 x2, x1, step;
    add.u64 x3, x2, step;
    st.relaxed.gpu.global.v2.b64 [to], {v0, v1};
    st.relaxed.gpu.global.v2.b64 [x1], {v2, v3};
    st.relaxed.gpu.global.v2.b64 [x2], {v4, v5};
    st.relaxed.gpu.global.v2.b64 [x3], {v6, v7};
    add.u64 to, x3, step;
    add.u64 from, y3, step;
    add.u64 offset, limit, step;
    bra fourfold;
by_16:
    setp.ge.u64 p, offset, length;
    @p bra out;
    ld.relaxed.sys.global.v2.b64 {v0, v1}, [from];
    st.relaxed.gpu.global.v2.b64 [to], {v0, v1};
    add.u64 to, to, step;
    add.u64 from, from, step;
    add.u64 offset, offset, step;
    bra by_16;
by_4:
    mul.wide.u32 offset, rank, 4;
    mul.wide.u32 step, threads, 4;
    add.u64 to, to, offset;
    add.u64 from, from, offset;
next_4:
    setp.ge.u64 p, offset, length;
    @p bra out;
    ld.relaxed.sys.global.u32 w, [from];
    st.relaxed.gpu.global.u32 [to], w;
    add.u64 to, to, step;
    add.u64 from, from, step;
    add.u64 offset, offset, step;
    bra next_4;
by_1:
    cvt.u64.u32 offset, rank;
    cvt.u64.u32 step, threads;
    add.u64 to, to, offset;
    add.u64 from, from, offset;
next_1:
    setp.ge.u64 p, offset, length;
    @p bra out;
    ld.relaxed.sys.global.u8 h, [from];
    st.relaxed.gpu.global.u8 [to], h;
    add.u64 to, to, step;
    add.u64 from, from, step;
    add.u64 offset, offset, step;
    bra next_1;
out:
    ret;
}

.visible .entry gda_copy_items(
    .param .u64 p_control, .param .u64 p_ring, .param .u64 p_results,
    .param .u64 p_first, .param .u64 p_launch, .param .u64 p_linger_ns
) .maxntid 256, 1, 1
{
    .reg .pred p, q, here, mine, alone, later, later_4;
    .reg .b32 me, n, first, last, k, t, u, bytes, what, kind, w, seen, ordered, singles, todo, size, fence;
    .reg .b64 control, ring, results, seq, launch, linger, since, now, left, x, y;
    .reg .b64 item, result, to, from, sizes, a, b, c, d, sum, check, factor, factor_too, v, old, new, was;

    mov.u32 me, %tid.x;
    setp.ge.u32 p, me, 32;
    @p bra help;
    ld.param.u64 control, [p_control];
    ld.param.u64 ring, [p_ring];
    ld.param.u64 results, [p_results];
    ld.param.u64 seq, [p_first];
    ld.param.u64 launch, [p_launch];
    ld.param.u64 linger, [p_linger_ns];
    // What each lane multiplies its two words by when four of them look at one item.
    setp.eq.u32 p, me, 0;
    selp.b64 factor, -4658895280553007687, 0, p;
    selp.b64 factor_too, -7723592293110705685, 0, p;
    setp.eq.u32 p, me, 1;
    selp.b64 factor, -2960836687051489901, factor, p;
    selp.b64 factor_too, -6884282663029611473, factor_too, p;
    setp.eq.u32 p, me, 2;
    selp.b64 factor, -1800455987208640293, factor, p;
    selp.b64 factor_too, -8161530843051276573, factor_too, p;
    setp.eq.u32 p, me, 3;
    selp.b64 factor, 6384245875588680899, factor, p;
    selp.b64 factor_too, -1, factor_too, p;

    // ---- The first warp takes items, one a lane. While it waits, four lanes look at one item, 16 bytes each: one read
    // over the bus at a time, for others have to pass there. What follows the first is looked for when that is done.
next_batch:
    mov.u64 since, %globaltimer;
    bra look_at_all;
look:
    and.b64 y, seq, 4095;
    shl.b64 item, y, 6;
    add.u64 item, ring, item;
    shl.b64 result, y, 3;
    add.u64 result, results, result;
    mul.wide.u32 x, me, 16;
    add.u64 x, item, x;
    setp.lt.u32 here, me, 4;
    mov.u64 to, 0;
    mov.u64 from, 0;
    @here ld.relaxed.sys.global.v2.b64 {to, from}, [x];
    mul.lo.u64 sum, to, factor;
    mad.lo.u64 sum, from, factor_too, sum;
    // The last lane's second word is the sum itself: its factor is -1, and all of them come to zero.
    mov.b64 {t, u}, sum;
    shfl.sync.bfly.b32 t, t, 1, 31, 0xffffffff;
    shfl.sync.bfly.b32 u, u, 1, 31, 0xffffffff;
    mov.b64 x, {t, u};
    add.u64 sum, sum, x;
    mov.b64 {t, u}, sum;
    shfl.sync.bfly.b32 t, t, 2, 31, 0xffffffff;
    shfl.sync.bfly.b32 u, u, 2, 31, 0xffffffff;
    mov.b64 x, {t, u};
    add.u64 sum, sum, x;
    add.u64 x, seq, 1;
    mul.lo.u64 x, x, -7046029254386353131;
    add.u64 sum, sum, x;
    setp.eq.and.u64 q, sum, 0, here;
    vote.sync.any.pred q, q, 0xffffffff;
    mov.u32 n, 1;
    @q bra read_one;
    mov.u64 now, %globaltimer;
    sub.u64 left, now, since;
    setp.lt.u64 p, left, linger;
    vote.sync.any.pred p, p, 0xffffffff;  // lanes read the clock at different times
    @p bra look;
    bra finish;
read_one:
    // Lane 0 gets what the others have.
    mov.b64 {t, u}, to;
    shfl.sync.idx.b32 k, t, 1, 31, 0xffffffff;
    shfl.sync.idx.b32 w, u, 1, 31, 0xffffffff;
    mov.b64 sizes, {k, w};
    shfl.sync.idx.b32 k, t, 2, 31, 0xffffffff;
    shfl.sync.idx.b32 w, u, 2, 31, 0xffffffff;
    mov.b64 b, {k, w};
    shfl.sync.idx.b32 k, t, 3, 31, 0xffffffff;
    shfl.sync.idx.b32 w, u, 3, 31, 0xffffffff;
    mov.b64 d, {k, w};
    mov.b64 {t, u}, from;
    shfl.sync.idx.b32 k, t, 1, 31, 0xffffffff;
    shfl.sync.idx.b32 w, u, 1, 31, 0xffffffff;
    mov.b64 a, {k, w};
    shfl.sync.idx.b32 k, t, 2, 31, 0xffffffff;
    shfl.sync.idx.b32 w, u, 2, 31, 0xffffffff;
    mov.b64 c, {k, w};
    bra found;

look_at_all:
    cvt.u64.u32 x, me;
    add.u64 x, x, seq;
    and.b64 y, x, 4095;
    shl.b64 item, y, 6;
    add.u64 item, ring, item;
    shl.b64 result, y, 3;
    add.u64 result, results, result;
    ld.relaxed.sys.global.v2.b64 {to, from}, [item];
    ld.relaxed.sys.global.v2.b64 {sizes, a}, [item + 16];
    ld.relaxed.sys.global.v2.b64 {b, c}, [item + 32];
    ld.relaxed.sys.global.v2.b64 {d, check}, [item + 48];
    add.u64 x, x, 1;
    mul.lo.u64 sum, x, -7046029254386353131;
    mad.lo.u64 sum, to, -4658895280553007687, sum;
    mad.lo.u64 sum, from, -7723592293110705685, sum;
    mad.lo.u64 sum, sizes, -2960836687051489901, sum;
    mad.lo.u64 sum, a, -6884282663029611473, sum;
    mad.lo.u64 sum, b, -1800455987208640293, sum;
    mad.lo.u64 sum, c, -8161530843051276573, sum;
    mad.lo.u64 sum, d, 6384245875588680899, sum;
    setp.eq.u64 q, sum, check;
    vote.sync.ballot.b32 seen, q, 0xffffffff;
    not.b32 t, seen;
    brev.b32 t, t;
    clz.b32 n, t;  // those in one piece
    setp.eq.u32 p, n, 0;
    @p bra look;

found:
    cvt.u32.u64 bytes, sizes;
    shr.u64 x, sizes, 32;
    cvt.u32.u64 what, x;
    and.b32 kind, what, 255;
    // Nothing behind an order to end.
    setp.lt.u32 mine, me, n;
    setp.eq.and.u32 q, kind, 4, mine;
    vote.sync.ballot.b32 t, q, 0xffffffff;
    setp.ne.u32 later, t, 0;  // end after this batch
    brev.b32 t, t;
    clz.b32 t, t;
    add.u32 t, t, 1;
    min.u32 n, n, t;
    setp.lt.u32 mine, me, n;

    // ---- What one lane does alone: stores, atomics, and copies of 4 or 8 bytes, whose source is read now.
    mov.b64 v, a;
    setp.ne.u32 alone, kind, 0;
    @alone bra prepared;
    @!mine bra prepared;
    setp.eq.u32 p, bytes, 4;
    setp.eq.or.u32 p, bytes, 8, p;
    @!p bra prepared;
    sub.u32 t, bytes, 1;
    or.b64 x, to, from;
    cvt.u32.u64 u, x;
    and.b32 u, u, t;
    setp.eq.u32 alone, u, 0;
    @!alone bra prepared;
    and.b32 u, what, 512;
    setp.ne.u32 p, u, 0;
    @p bra prepared;
    setp.eq.u32 p, bytes, 8;
    @p ld.relaxed.sys.global.u64 v, [from];
    @!p ld.relaxed.sys.global.u32 w, [from];
    @!p cvt.u64.u32 v, w;
prepared:
    and.pred alone, alone, mine;
    vote.sync.ballot.b32 singles, alone, 0xffffffff;
    and.b32 t, what, 256;
    setp.ne.and.u32 q, t, 0, mine;
    vote.sync.ballot.b32 ordered, q, 0xffffffff;
    mov.u32 first, 0;

    // ---- Often all are stores, each of which comes after the one before, or goes to the same 32 bytes.
    setp.lt.and.u32 q, kind, 2, alone;
    and.b32 t, what, 512;
    setp.eq.and.u32 q, t, 0, q;
    setp.ge.or.u32 q, me, n, q;
    vote.sync.all.pred q, q, 0xffffffff;
    @!q bra next_phase;
    setp.eq.and.u32 q, bytes, 8, mine;
    setp.eq.and.u32 later_4, bytes, 4, mine;
    cvt.u32.u64 w, v;
next_store:
    add.u32 t, first, 1;
    shr.u32 u, ordered, t;
    brev.b32 u, u;
    clz.b32 u, u;
    add.u32 last, t, u;
    min.u32 last, last, n;
    setp.ge.u32 here, me, first;
    setp.lt.and.u32 here, me, last, here;  // whose turn it is; their stores are one instruction
    setp.ne.and.u32 p, first, 0, here;
    @p fence.acq_rel.gpu;
    and.pred p, here, q;
    @p st.relaxed.gpu.global.u64 [to], v;
    and.pred p, here, later_4;
    @p st.relaxed.gpu.global.u32 [to], w;
    bar.warp.sync 0xffffffff;
    mov.u32 first, last;
    setp.lt.u32 p, first, n;
    @p bra next_store;
    bra batch_done;

    // ---- A phase: items first to last - 1.
next_phase:
    add.u32 t, first, 1;
    shr.u32 u, ordered, t;
    brev.b32 u, u;
    clz.b32 u, u;
    add.u32 last, t, u;
    min.u32 last, last, n;
    setp.ge.and.u32 p, me, first, alone;
    setp.lt.and.u32 p, me, last, p;
    @!p bra together;
    setp.eq.u32 p, kind, 4;
    @p bra together;
    setp.eq.u32 p, first, 0;
    @p bra single;
    fence.acq_rel.gpu;
single:
    setp.ge.u32 p, kind, 2;
    @p bra atomic;
    setp.eq.u32 p, kind, 1;
    @p bra store;
    and.b32 u, what, 512;
    setp.eq.u32 p, u, 0;
    @p bra store;
    setp.eq.u32 p, bytes, 8;
    @p ld.relaxed.sys.global.u64 v, [from];
    @!p ld.relaxed.sys.global.u32 w, [from];
    @!p cvt.u64.u32 v, w;
store:
    setp.eq.u32 p, bytes, 8;
    cvt.u32.u64 w, v;
    @p st.relaxed.gpu.global.u64 [to], v;
    @!p st.relaxed.gpu.global.u32 [to], w;
    bra together;

    // a: operand, b: compare, c: bits that are written (of an addition: that no carry leaves), d: bits that are compared
atomic:
    setp.eq.u32 p, bytes, 8;
    @p ld.relaxed.sys.global.u64 old, [to];
    @!p ld.relaxed.sys.global.u32 w, [to];
    @!p cvt.u64.u32 old, w;
again:
    not.b64 y, c;
    setp.eq.u32 p, kind, 3;
    @p bra swap;
    and.b64 x, old, y;
    and.b64 y, a, y;
    add.u64 x, x, y;
    xor.b64 y, old, a;
    and.b64 y, y, c;
    xor.b64 new, x, y;
    bra replace;
swap:
    xor.b64 x, old, b;
    and.b64 x, x, d;
    setp.ne.u64 p, x, 0;
    @p bra performed;
    and.b64 x, old, y;
    and.b64 y, a, c;
    or.b64 new, x, y;
replace:
    setp.eq.u32 p, bytes, 8;
    @!p bra replace_4;
    atom.relaxed.sys.global.cas.b64 was, [to], old, new;
    bra replaced;
replace_4:
    cvt.u32.u64 t, old;
    cvt.u32.u64 u, new;
    atom.relaxed.sys.global.cas.b32 w, [to], t, u;
    cvt.u64.u32 was, w;
replaced:
    setp.eq.u64 p, was, old;
    @p bra performed;
    mov.b64 old, was;
    bra again;
performed:
    st.relaxed.sys.global.u64 [result], old;

    // ---- What is copied together: up to 512 bytes by this warp, more by all.
together:
    not.b32 todo, singles;
    shl.b32 t, 0xffffffff, first;
    and.b32 todo, todo, t;
    shl.b32 t, 0xffffffff, last;
    not.b32 t, t;
    and.b32 todo, todo, t;
    setp.ne.u32 p, first, 0;
    selp.u32 fence, 1, 0, p;
next_item:
    setp.eq.u32 p, todo, 0;
    @p bra phase_done;
    brev.b32 k, todo;
    clz.b32 k, k;
    sub.u32 t, todo, 1;
    and.b32 todo, todo, t;
    shfl.sync.idx.b32 size, bytes, k, 31, 0xffffffff;
    mov.b64 {t, u}, to;
    shfl.sync.idx.b32 t, t, k, 31, 0xffffffff;
    shfl.sync.idx.b32 u, u, k, 31, 0xffffffff;
    mov.b64 x, {t, u};
    mov.b64 {t, u}, from;
    shfl.sync.idx.b32 t, t, k, 31, 0xffffffff;
    shfl.sync.idx.b32 u, u, k, 31, 0xffffffff;
    mov.b64 y, {t, u};
    setp.gt.u32 p, size, 512;
    @p bra by_all;
    setp.eq.u32 p, fence, 0;
    @p bra copy;
    fence.acq_rel.gpu;
copy:
    {
    .reg .b32 threads;
    mov.u32 threads, 32;
    call copy_part, (x, y, size, me, threads);
    }
    bra next_item;
by_all:
    setp.ne.u32 p, me, 0;
    @p bra ordered_all;
    st.shared.u64 [order_to], x;
    st.shared.u64 [order_from], y;
    st.shared.u32 [order_bytes], size;
    st.shared.u32 [order_fence], fence;
ordered_all:
    bar.sync 0;
    setp.eq.u32 p, fence, 0;
    @p bra copy_all;
    fence.acq_rel.gpu;
copy_all:
    {
    .reg .b32 threads;
    mov.u32 threads, 256;
    call copy_part, (x, y, size, me, threads);
    }
    bar.sync 0;
    bra next_item;

phase_done:
    bar.warp.sync 0xffffffff;
    mov.u32 first, last;
    setp.lt.u32 p, first, n;
    @p bra next_phase;

batch_done:
    // ---- All of the batch is performed: told to the CPU, which sees with it what it left in host memory, too.
    cvt.u64.u32 x, n;
    add.u64 seq, seq, x;
    setp.ne.u32 p, me, 0;
    @p bra told;
    fence.acq_rel.sys;
    st.relaxed.sys.global.u64 [control], seq;
told:
    bar.warp.sync 0xffffffff;
    @!later bra next_batch;

finish:
    setp.ne.u32 p, me, 0;
    @p bra leave;
    st.shared.u32 [order_bytes], 0;
leave:
    bar.sync 0;
    @p bra out;
    fence.acq_rel.sys;
    st.relaxed.sys.global.u64 [control + 8], launch;
out:
    ret;

    // ---- The other warps.
help:
    bar.sync 0;
    ld.shared.u32 size, [order_bytes];
    setp.eq.u32 p, size, 0;
    @p bra out;
    ld.shared.u64 x, [order_to];
    ld.shared.u64 y, [order_from];
    ld.shared.u32 fence, [order_fence];
    setp.eq.u32 p, fence, 0;
    @p bra help_copy;
    fence.acq_rel.gpu;
help_copy:
    {
    .reg .b32 threads;
    mov.u32 threads, 256;
    call copy_part, (x, y, size, me, threads);
    }
    bar.sync 0;
    bra help;
}
)ptx";

}  // namespace sim::gpu
