# SPDX-License-Identifier: Apache-2.0
"""Kernels on tensors of torch: on the CPU where torch is installed, on its streams where it has a GPU."""

from __future__ import annotations

from typing import Any

import pytest

import gda
from gda.errors import ArgumentError

torch: Any = pytest.importorskip("torch", reason="not run: torch is not installed")

TEXT = r"""
#include <gda/gda.h>
GDA_KERNEL(double_it)(float* x, const int16_t* add, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = 2 * x[i] + add[0];
}
GDA_KERNEL(report)(uint64_t word, gda_status* status) { gda_report(status, word); }
"""


def test_tensors_on_the_cpu() -> None:
    kernel = gda.Kernel(TEXT, target="host")
    x, add = torch.arange(8, dtype=torch.float32), torch.ones(1, dtype=torch.int16)
    kernel.double_it[1, 8](x, add, 8)
    assert x.tolist() == [2 * i + 1 for i in range(8)]
    for wrong, why in (
        (x.clone().requires_grad_(), r"requires? grad.*\n.*detach"),
        (x.bfloat16(), r"does not say where it lies.*\n.*view"),
        (x.double(), "float64"),
        (torch.zeros(8, 2)[:, 0], "not contiguous"),
    ):
        with pytest.raises(ArgumentError, match=why):
            kernel.double_it[1, 8](wrong, add, 8)
    kernel.double_it[1, 8](x, x.bfloat16().view(torch.int16), 0)


def test_a_put_of_a_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GDA_NIC", "software")
    monkeypatch.setenv("GDA_TARGET", "host")
    src, dst = torch.arange(1000), torch.zeros(1000, dtype=torch.int64)
    with gda.open() as nic:
        queue, _ = nic.loopback_pair()
        kernel = gda.Kernel("#include <gda/kernels/put.h>\n", target="host")
        kernel.gda_kernel_put[1, 1](queue, nic.register(dst), 0, nic.register(src), 0, 8000, int(5e9))
    assert torch.equal(src, dst)


@pytest.mark.gpu
def test_on_torchs_current_stream() -> None:
    """No wait in between: the stream alone orders torch's work and ours."""
    kernel = gda.Kernel(TEXT, target="gpu")
    add = torch.ones(1, dtype=torch.int16, device="cuda")
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            x = torch.zeros(1 << 24, device="cuda")
            launches = []
            for _ in range(5):
                x += 1
                launches.append(kernel.double_it.on(torch.cuda.current_stream())[1 << 14, 1 << 10](x, add, 1 << 24))
            total = x.double().sum()
            expected = 0
            for _ in range(5):
                expected = 2 * (expected + 1) + 1
            assert float(total) == expected * (1 << 24)
        for launch in launches:
            launch.wait()


@pytest.mark.gpu
def test_a_launch_of_its_own_begins_after_torchs_work() -> None:
    kernel = gda.Kernel(TEXT, target="gpu")
    add = torch.zeros(1, dtype=torch.int16, device="cuda")
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(3):
            x = torch.zeros(1 << 26, device="cuda")
            for _ in range(20):
                x += 1
            kernel.double_it[1, 32](x[-32:], add, 32)
            assert x[-32:].tolist() == [40.0] * 32


@pytest.mark.gpu
def test_what_a_kernel_in_a_stream_reports() -> None:
    kernel = gda.Kernel(TEXT, target="gpu")
    launch = kernel.report.on(torch.cuda.current_stream())[1, 1](5 << 48 | 0x88 << 40 | 0x13 << 32 | 0x12 << 8 | 1)
    with pytest.raises(gda.errors.CompletionError, match="remote access error"):
        launch.wait()
