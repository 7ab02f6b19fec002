# SPDX-License-Identifier: Apache-2.0
"""The two calls of the CUDA driver that the preload library answers, as a stack that puts from the GPU makes them.

No GPU: the driver is the one made of host memory (tests/nic/host_driver.c).
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gda import sim

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
WARNINGS = ["-Wall", "-Wextra", "-Werror"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Environment of a program on the software NIC, with a CUDA driver."""
    driver = tmp_path / "driver"
    driver.mkdir()
    source = ROOT / "tests" / "nic" / "host_driver.c"
    subprocess.run(
        ["gcc", "-std=gnu11", *WARNINGS, "-shared", "-fPIC", "-O1", "-pthread", source, "-o", driver / "libcuda.so.1",
         "-ldl"],
        check=True,
    )  # fmt: skip
    return {
        **os.environ,
        "LD_PRELOAD": ":".join(sim.preload_libraries()),
        "LD_LIBRARY_PATH": str(driver),
        "GDA_SIM_DIRECTORY": str(tmp_path / "meet"),
        "ASAN_OPTIONS": "detect_leaks=0:verify_asan_link_order=0",
    }


def run(program: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program], env=environment, timeout=120, text=True, capture_output=True, check=False)


def test_an_initiator_that_puts_from_the_gpu(tmp_path: Path, environment: dict[str, str]) -> None:
    """NVSHMEM's calls in its order: doorbells as I/O memory, queues and data in GPU memory, with, without dma-buf."""
    program = tmp_path / "initiator"
    subprocess.run(
        ["g++", "-std=c++17", "-O1", *WARNINGS, f"-I{ROOT / 'cuda'}", HERE / "uverbs_gpu_initiator.cc", "-o", program,
         "-lmlx5", "-libverbs", "-ldl"],
        check=True,
    )  # fmt: skip
    done = run(program, environment)
    assert done.returncode == 0, done.stderr
    assert "every put and signal arrived" in done.stdout


LIBRARY = """
#define _GNU_SOURCE
#include <dlfcn.h>
int number(void) { return NUMBER; }
int number_after_FIRST(void) {
    int (*next)(void) = (int (*)(void))dlsym(RTLD_NEXT, "number");
    return next ? next() : -1;
}
"""
PROGRAM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
int number_after_first(void);
int number_after_second(void);
int main(void) {
    int (*number)(void) = (int (*)(void))dlsym(RTLD_DEFAULT, "number");
    printf("%d %d %d\\n", number(), number_after_first(), number_after_second());
    return dlsym(RTLD_DEFAULT, "no_such_function") != NULL;
}
"""


def test_dlsym_still_knows_who_asks(tmp_path: Path, environment: dict[str, str]) -> None:
    """RTLD_NEXT means after the caller: dlsym finds out by its return address, so the hook must not be the caller."""
    for number, name in enumerate(("first", "second"), 1):
        source = tmp_path / f"{name}.c"
        source.write_text(LIBRARY.replace("NUMBER", str(number)).replace("FIRST", name))
        subprocess.run(["gcc", "-shared", "-fPIC", source, "-o", tmp_path / f"lib{name}.so", "-ldl"], check=True)
    source = tmp_path / "program.c"
    source.write_text(PROGRAM)
    program = tmp_path / "program"
    link = [f"-L{tmp_path}", "-Wl,--no-as-needed", "-lfirst", "-lsecond", "-ldl", f"-Wl,-rpath,{tmp_path}"]
    subprocess.run(["gcc", source, "-o", program, *link], check=True)
    done = run(program, environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1", "2", "-1"]


def test_a_process_without_cuda_has_none(environment: dict[str, str], tmp_path: Path) -> None:
    """The names that the preload library exports answer "not initialized", and nothing else is found."""
    source = tmp_path / "program.c"
    source.write_text(
        """
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <stdio.h>
        int main(void) {
            int (*enter)(void*, unsigned long, unsigned) =
                (int (*)(void*, unsigned long, unsigned))dlsym(RTLD_DEFAULT, "cuMemHostRegister_v2");
            printf("%d %d\\n", enter ? enter(&enter, 8, 4) : -1, dlsym(RTLD_DEFAULT, "cuInit") != NULL);
            return 0;
        }
        """
    )
    subprocess.run(["gcc", source, "-o", tmp_path / "program", "-ldl"], check=True)
    done = run(tmp_path / "program", environment)
    assert done.stdout.split() == ["3", "0"], done.stderr
