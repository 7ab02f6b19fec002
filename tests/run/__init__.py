# SPDX-License-Identifier: Apache-2.0
"""Kernels from Python: the words of CUDA on the CPU, arguments, deadlines, errors, the cache."""
