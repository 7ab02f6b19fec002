#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the tests with the software NIC and device code built under AddressSanitizer with UBSan, then ThreadSanitizer.
# The interpreter itself is not instrumented, so the sanitizer's runtime is preloaded and leaks of others are not asked
# for. `make test` runs a short part of this (tests/sim/test_engine.py, tests/device/test_sanitized.py).
set -u
cd "$(dirname "$0")"
python=$(cat build/python)
failed=0

suite() {
    kind=$1
    flags=$2
    runtime=$3
    shift 3
    "$python" setup.py -q sanitized --kind "$kind" >"build/$kind.log" 2>&1 || { tail -5 "build/$kind.log"; exit 1; }
    library=$("${CXX:-g++}" -print-file-name="$runtime")
    case $library in
        /*) ;;
        *) echo "not run: $kind sanitizer (the compiler has no $runtime)"; return ;;
    esac
    echo "the tests under -fsanitize=$flags"
    GDA_SIM_LIBRARY=$PWD/build/$kind/libgda_sim.so GDA_CXXFLAGS="-fsanitize=$flags -fno-omit-frame-pointer" \
        ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0 UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1 \
        TSAN_OPTIONS=halt_on_error=1:report_signal_unsafe=0:die_after_fork=0 LD_PRELOAD=$library \
        "$python" -m pytest -q --timeout 600 "$@" || failed=1
}

# ThreadSanitizer sees only instrumented code, so what Python writes into a ring by hand would look like a race; and it
# knows at most 8,128 fibers, so wide grids are left out. memory_bench.c counts what is allocated by standing in the
# allocator's place, which is AddressSanitizer's; and what posting costs is not compared where half of it is instrumented.
# A forked child may find AddressSanitizer's allocator locked by a thread that it does not have (GCC 12), and wait.
suite address address,undefined libasan.so tests/verbs tests/nic tests/run tests/whole/test_bad_input.py \
    tests/sim/test_uverbs.py --deselect "tests/sim/test_uverbs.py::test_check[children]" \
    -k "not test_memory_of_idle_objects and not test_posting_side_by_side"
suite thread thread libtsan.so tests/verbs tests/nic/test_queue.py tests/whole/test_forward_progress.py -k "not 1024"
exit $failed
