# SPDX-License-Identifier: Apache-2.0
"""What a GPU may keep back from the NIC, made visible on a CPU: case C4c; and sources that change under way."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import gda
from gda import attach, formats

ROOT = Path(__file__).resolve().parents[2]

# The payload, then record and doorbell by hand, with and without what a GPU needs between them.
KERNELS = r"""
#include <gda/gda.h>
GDA_KERNEL(post)(uint64_t payload, uint64_t bytes, uint64_t record, uint64_t doorbell, uint32_t index_be,
                 uint64_t value, int fence, uint64_t* seen) {
    volatile uint8_t* p = reinterpret_cast<volatile uint8_t*>(payload);
    for (uint64_t i = 0; i < bytes; ++i) p[i] = 0xaa;
    if (fence == 1) __threadfence();
    if (fence == 2) __threadfence_system();
    *reinterpret_cast<volatile uint32_t*>(record) = index_be;
    __threadfence();
    *reinterpret_cast<volatile uint64_t*>(doorbell) = value;
    *seen = 1;
}
GDA_KERNEL(put)(gda_qp* qp, gda_mr dst, gda_mr src, gda_status* status) {
    volatile uint8_t* p = reinterpret_cast<volatile uint8_t*>(src.addr);
    for (uint64_t i = threadIdx.x; i < 64; i += blockDim.x) p[i] = 0xaa;
    __syncthreads();
    if (threadIdx.x == 0) *status = gda_wait(qp, gda_put(qp, dst, 0, src, 0, 64), GDA_MS(10000));
}
// Forward and back: what came from the peer goes out again. Its second hop needs what the NIC itself wrote.
GDA_KERNEL(there_and_back)(gda_qp* qp, gda_mr dst, gda_mr src, gda_status* status) {
    gda_status first = gda_wait(qp, gda_get(qp, src, 0, dst, 0, 64), GDA_MS(10000));
    *status = gda_failed(first) ? first : gda_wait(qp, gda_put(qp, dst, 64, src, 0, 64), GDA_MS(10000));
}
"""


@pytest.fixture(scope="module")
def kernels() -> gda.Kernel:
    return gda.Kernel(KERNELS, target="host")


@pytest.fixture
def nic(monkeypatch: pytest.MonkeyPatch) -> Iterator[gda.Nic]:
    monkeypatch.setenv("GDA_NIC", "software")
    with gda.open() as one:
        attach.software_nic().store_buffer(True)
        yield one
        attach.software_nic().store_buffer(False)


@pytest.mark.parametrize(
    "fence",
    [
        pytest.param(0, marks=pytest.mark.gda_complaints("fence-missing"), id="none"),
        pytest.param(1, marks=pytest.mark.gda_complaints("fence-missing"), id="device"),
        pytest.param(2, id="system"),
    ],
)
def test_payload_without_a_fence_of_system_scope_arrives_old(nic, fence):
    """Case C4c. The kernel stays until the NIC has done its work, as kernels do that wait."""
    waits = KERNELS.replace(
        "    *seen = 1;",
        "    uint64_t start = gda_now_ns();\n"
        "    volatile uint8_t* cqe = reinterpret_cast<volatile uint8_t*>(*seen);\n"
        "    while (cqe[63] >> 4 == 0xf && gda_now_ns() - start < GDA_S(10)) { }",
    )
    source, target = nic.register(np.full(64, 0x55, np.uint8)), nic.register(np.zeros(64, np.uint8))
    a, _ = nic.loopback_pair(depth=16, completion="ring")
    request = (
        formats.wqe_ctrl_seg.pack(
            opcode=formats.MLX5_OPCODE_RDMA_WRITE, wqe_index=0, qp_or_sq=a.qpn, ds=3, ce=formats.CE_ALWAYS
        )
        + formats.wqe_raddr_seg.pack(raddr=target.address, rkey=target.rkey)
        + formats.wqe_data_seg.pack(byte_count=64, lkey=source.lkey, addr=source.address)
    )
    a.write_wqe(0, request)
    where = a.where()
    gda.Kernel(waits, target="host").post[1, 1](
        source.address, 64, where["record"][1] + 4, where["doorbell"][1],
        int.from_bytes((1).to_bytes(4, "big"), "little"), int.from_bytes(request[:8], "little"), fence,
        np.array([where["cq"][1]], np.uint64),
    )  # fmt: skip
    assert source.array.tolist() == [0xAA] * 64
    assert target.array.tolist() == [0xAA if fence == 2 else 0x55] * 64
    complaints = attach.software_nic().report()
    assert [c.kind for c in complaints] == ([] if fence == 2 else ["fence-missing"])
    for complaint in complaints:
        assert (complaint.qpn, complaint.wqe_index) == (a.qpn, 0)
        assert complaint.values["address"] == source.address
        assert (complaint.values["memory"], complaint.values["seen"]) == (0xAA, 0x55)
        assert "__threadfence_system" in complaint


def test_the_library_makes_the_fence(nic, kernels):
    """A correct kernel is not accused: what other threads of the block stored is behind the barrier, too."""
    source, target = nic.register(np.full(64, 0x55, np.uint8)), nic.register(np.zeros(64, np.uint8))
    a, _ = nic.loopback_pair()
    kernels.put[1, 32](a, target, source)
    assert target.array.tolist() == [0xAA] * 64


def test_what_the_nic_wrote_goes_out_again(nic, kernels):
    source = nic.register(np.zeros(64, np.uint8))
    target = nic.register(np.concatenate([np.arange(64, dtype=np.uint8), np.zeros(64, np.uint8)]))
    a, _ = nic.loopback_pair()
    kernels.there_and_back[1, 1](a, target, source)
    assert target.array[64:].tolist() == list(range(64))


EXAMPLES = ("05_get_and_atomics.py", "06_send_receive.py", "09_put_with_signal.py")  # one who waits in each way


@pytest.mark.parametrize("name", EXAMPLES)
def test_no_example_is_accused(name, tmp_path):
    """In this mode, strictly: a complaint would end the process with another status."""
    start = (
        "import runpy, sys\nfrom gda import attach\nimport gda\n"
        "nic = gda.open()\nattach.software_nic().store_buffer(True)\nattach.software_nic().watch_sources(True)\n"
        f"runpy.run_path({str(ROOT / 'examples' / name)!r}, run_name='__main__')\n"
    )
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "GDA_NIC": "software", "GDA_TARGET": "host",
        "GDA_SIM_COMPLAINTS": "strict",
    }  # fmt: skip
    result = subprocess.run([sys.executable, "-c", start], capture_output=True, text=True, timeout=120, env=environment)
    assert (result.returncode, result.stderr) == (0, ""), result.stderr


@pytest.mark.parametrize(
    "what",
    [
        pytest.param("source", marks=pytest.mark.gda_complaints("source-changed")),
        pytest.param("request", marks=pytest.mark.gda_complaints("wqe-overwritten")),
        pytest.param("nothing"),
    ],
)
def test_what_changes_before_the_completion(nic, what):
    """The answer is held back; meanwhile the program writes where it must not."""
    software = attach.software_nic()
    software.store_buffer(False)
    software.watch_sources(True)
    software.set_thread("off")
    try:
        source, target = nic.register(np.full(64, 0x55, np.uint8)), nic.register(np.zeros(64, np.uint8))
        a, _ = nic.loopback_pair(depth=16, completion="ring")
        request = (
            formats.wqe_ctrl_seg.pack(
                opcode=formats.MLX5_OPCODE_RDMA_WRITE, wqe_index=0, qp_or_sq=a.qpn, ds=3, ce=formats.CE_ALWAYS
            )
            + formats.wqe_raddr_seg.pack(raddr=target.address, rkey=target.rkey)
            + formats.wqe_data_seg.pack(byte_count=64, lkey=source.lkey, addr=source.address)
        )
        software.set_faults("delay=20ms")
        a.write_wqe(0, request)
        a.write_record(1)
        a.ring(request[:8])
        assert software.step()
        if what == "source":
            source.array[7] = 0
        if what == "request":
            a.write_wqe(0, request[:8] + request[8:12] + b"\1" + request[13:])
        software.set_faults("")
        while formats.cqe64.unpack(a.read_cqe(0))["opcode"] == formats.MLX5_CQE_INVALID:
            software.step()
        for complaint in software.report():
            assert (complaint.qpn, complaint.wqe_index) == (a.qpn, 0)
    finally:
        software.set_faults("")
        software.watch_sources(False)
        software.set_thread("adaptive")
