# SPDX-License-Identifier: Apache-2.0
"""Device library and runtime under the compilers' sanitizers, each in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gda.run.host import find_compiler

ROOT = Path(__file__).resolve().parents[2]

# A launch that is given up and one whose threads block each other: what they leave behind must not disturb what comes
# next. Then a shared queue with many producers, one with many receivers, and every operation.
PROGRAM = r"""
import sys
sys.path[:0] = sys.argv[1:]
import numpy as np
from device.test_operations import LOCAL, OPERATIONS, REMOTE
from device.test_stress import MESSAGES, SOURCE, run, run_messages
from device.toy_queue import ToyQueue
from gda.errors import DeadlineError, DeviceStatusError
from gda.run import Kernel

MORE = '''
#include <gda/gda.h>
GDA_KERNEL(for_ever)() { volatile int x = 0; while (true) x = x + 1; }
GDA_KERNEL(blocked)() { if (threadIdx.x) __syncthreads(); else __syncwarp(3); }
GDA_KERNEL(sum)(int* out) {
    __shared__ int part[64];
    part[threadIdx.x] = threadIdx.x;
    __syncthreads();
    for (int half = 32; half > 0; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = part[0];
}
'''
more = Kernel(MORE, target="host")
for _ in range(2):
    out = np.zeros(8, np.int32)
    more.sum[8, 64](out)
    assert (out == 2016).all()
    for kernel, error in ((more.for_ever, DeadlineError), (more.blocked, DeviceStatusError)):
        try:
            kernel.start[4, 64]().wait(0.1)
        except error:
            pass
        else:
            raise AssertionError(f"{kernel} ended well")
for converged in ("all", "random"):
    kernel = Kernel(SOURCE, target="host", converged=converged)
    # Of 32 slots, where puts wait for room, and of more than the window has.
    for record, collapsed, depth in ((True, True, 32), (False, False, 4096)):
        queue = ToyQueue(depth, record=record, collapsed=collapsed, ignore_overrun=False, deadline_ns=60_000_000_000)
        run(kernel, queue, blocks=4, threads=16, puts=100, seed=2)
    messages = Kernel(MESSAGES, target="host", converged=converged)
    run_messages(messages, ToyQueue(receive_depth=64), blocks=4, threads=16, messages=50)
    operations = Kernel(OPERATIONS, target="host", converged=converged)
    for owned, lanes in ((False, 64), (True, 1)):
        queue, tickets = ToyQueue(64, owned=owned), np.zeros(64, np.uint64)
        operations.mixed[1, lanes](queue, REMOTE, LOCAL, tickets)
        for length in range(1, 29 if owned else 1):
            operations.put_inline[1, 1](queue, REMOTE, 0, np.zeros(length, np.uint8), length, tickets)
print("clean")
"""


@pytest.mark.parametrize(
    ("flags", "library"),
    [
        ("-fsanitize=thread", "libtsan.so"),
        ("-fsanitize=address -fno-omit-frame-pointer", "libasan.so"),
        ("-fsanitize=undefined -fno-sanitize-recover=undefined", "libubsan.so"),
    ],
)
def test_sanitized(flags: str, library: str) -> None:
    compiler = find_compiler()
    found = subprocess.run(
        [compiler.path, f"-print-file-name={library}"], capture_output=True, text=True
    ).stdout.strip()
    if not Path(found).is_absolute():
        pytest.skip(f"not run: {compiler.version} has no {library}")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(ROOT), str(ROOT / "tests")],
        env={
            **os.environ,
            "GDA_CXXFLAGS": flags,
            "LD_PRELOAD": found,
            "ASAN_OPTIONS": "detect_leaks=0",  # Python's own
            "TSAN_OPTIONS": "exitcode=66",
        },
        capture_output=True,
        text=True,
        timeout=170,
    )
    assert done.returncode == 0 and "Sanitizer" not in done.stderr, (done.stdout + done.stderr)[:8000]
    assert done.stdout.strip().endswith("clean")
