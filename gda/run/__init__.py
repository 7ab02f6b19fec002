# SPDX-License-Identifier: Apache-2.0
"""Where device code runs: compile CUDA C++ text and launch its kernels, on a GPU or on the CPU.

`Kernel` is what programs use. Reading order: executor (Kernel), launch (Launch), source (what is in the text),
arguments (what may be passed), host (the CPU), cuda (a GPU), status (what a kernel reported), compile (NVRTC without a
GPU), cache (compiled code on disk).
"""

from __future__ import annotations

from gda.run.compile import compile_for_gpu
from gda.run.executor import Kernel
from gda.run.launch import Launch

__all__ = ["Kernel", "Launch", "compile_for_gpu"]
