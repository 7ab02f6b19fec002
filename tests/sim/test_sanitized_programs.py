# SPDX-License-Identifier: Apache-2.0
"""Programs that are built with a sanitizer, on the software NIC, which is not."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from gda import sim

DEADLINE_S = 90
PROGRAM = """
#include <infiniband/verbs.h>
#include <stdio.h>
int main(void) {
    int count = 0;
    struct ibv_device** devices = ibv_get_device_list(&count);
    struct ibv_context* context = count ? ibv_open_device(devices[0]) : NULL;
    printf("%s\\n", context ? ibv_get_device_name(context->device) : "none");
    if (context) ibv_close_device(context);
    ibv_free_device_list(devices);
    return 0;
}
"""


@pytest.mark.skipif("GDA_SIM_LIBRARY" in os.environ, reason="not run: another software NIC (make sanitize)")
@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_a_program_under_a_sanitizer(tmp_path: Path, sanitizer: str) -> None:
    """The sanitizer's runtime looks up the C library's functions by our dlsym(), before it can be used itself."""
    compiler, library = shutil.which("gcc") or "cc", f"lib{sanitizer[0]}san.so"
    runtime = subprocess.run(
        [compiler, f"-print-file-name={library}"], text=True, capture_output=True, check=False
    ).stdout.strip()
    if not Path(runtime).is_absolute():
        pytest.skip(f"not run: {compiler} has no {library}")
    source, program = tmp_path / "program.c", tmp_path / "program"
    source.write_text(PROGRAM)
    command = [compiler, "-O1", f"-fsanitize={sanitizer}", "-o", str(program), str(source), "-libverbs"]
    subprocess.run(command, check=True, timeout=DEADLINE_S)
    meeting = {"LD_PRELOAD": ":".join([runtime, *sim.preload_libraries()]), "GDA_SIM_DIRECTORY": str(tmp_path / "nics")}
    done = subprocess.run(
        [program], env={**os.environ, **meeting}, timeout=DEADLINE_S, text=True, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "mlx5_0\n"), done.stderr
