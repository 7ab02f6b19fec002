# SPDX-License-Identifier: Apache-2.0
"""gda.diagnose: what it puts first, of a queue pair that fails in one way after the other.

Two NICs that disagree about MTU or RoCE version: tests/nic/network_cases.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import gda
from gda import attach, sim
from gda.errors import ArgumentError, CompletionError
from gda.nic import counters
from gda.tools.diagnose import Finding

PUT = """
#include <gda/gda.h>
GDA_KERNEL(put)(gda_qp* qp, gda_mr dst, gda_mr src, uint32_t bytes, gda_status* status) {
    *status = gda_wait(qp, gda_put(qp, dst, 0, src, 0, bytes), GDA_MS(20000));
}
"""


@pytest.fixture
def nic(monkeypatch: pytest.MonkeyPatch) -> Iterator[gda.Nic]:
    monkeypatch.setenv("GDA_NIC", "software")
    with gda.open() as nic:
        attach.software_nic().clear_report()
        yield nic


@pytest.fixture
def regions(nic: gda.Nic) -> tuple[gda.Memory, gda.Memory]:
    return nic.register(np.ones(4096, np.uint8)), nic.register(np.zeros(4096, np.uint8))


def put(queue: gda.QueuePair, regions: tuple[gda.Memory, gda.Memory], bytes: int = 4096) -> None:
    gda.Kernel(PUT, target="host").put[1, 1](queue, regions[1], regions[0], bytes)


def headlines(found: list[Finding]) -> list[str]:
    return [f.headline for f in found]


def test_nothing_is_wrong(nic, regions):
    a, b = nic.loopback_pair()
    put(a, regions)
    assert headlines(gda.diagnose(a)) == headlines(gda.diagnose(a, b)) == ["nothing wrong is visible"]


def test_not_connected_yet(nic):
    found = gda.diagnose(nic.queue_pair())
    assert headlines(found) == ["state RST"] and "connect()" in found[0].advice


@pytest.mark.gda_complaints("retries-exceeded")
def test_loss_that_was_asked_for_stands_before_the_retries_it_causes(nic, regions):
    a, _ = nic.loopback_pair()
    with sim.virtual_time(), sim.faults("drop any"), pytest.raises(CompletionError):
        put(a, regions)
    found = gda.diagnose(a)
    assert found[0].headline == "packets lost to faults: 8" and found[0].values == {"fault_dropped": 8}
    error = next(f for f in found if f.headline == "first error: transport retries exhausted (0x15)")
    assert error.values == {"request": 0, "vendor syndrome": "0x81", "gave up after": "8 sends, 0.537 s"}
    assert "rounds of resending after a timeout: 7" in headlines(found) and "state ERR" in headlines(found)
    assert any("transport retry exceeded on WQE 0" in f.headline for f in found)
    assert headlines(found).index(error.headline) < headlines(found).index("rounds of resending after a timeout: 7")


def test_what_another_queue_pair_lost_before_is_not_told(nic, regions):
    a, _ = nic.loopback_pair()
    with sim.virtual_time(), sim.faults("drop any"), pytest.raises(CompletionError):
        put(a, regions)
    attach.software_nic().clear_report()
    fresh, _ = nic.loopback_pair()
    put(fresh, regions)
    assert headlines(gda.diagnose(fresh)) == ["nothing wrong is visible"]


def test_loss_that_was_mended(nic, regions):
    a, _ = nic.loopback_pair()
    with sim.virtual_time(), sim.faults("drop request nth=1 first=1"):
        put(a, regions)
    assert headlines(gda.diagnose(a))[:2] == [
        "packets lost to faults: 1", "rounds of resending after a timeout: 1",
    ]  # fmt: skip


@pytest.mark.gda_complaints("key-right-missing", "refused-by-peer")
def test_a_refusal_of_the_peer_stands_first(nic, regions):
    a, b = nic.loopback_pair()
    short = nic.register(np.zeros(4096, np.uint8), access=("local_write",))
    with pytest.raises(CompletionError):
        put(a, (regions[0], short))
    found = gda.diagnose(a, b)
    assert found[0].headline == "first error: remote access error (0x13)" and "rkey" in found[0].advice
    assert "requests of peers refused here: 1" in headlines(found)


@pytest.mark.gda_complaints("wqe-opcode")
def test_an_error_posted_by_hand_is_found_in_the_ring(nic):
    a, _ = nic.loopback_pair(completion="ring", depth=4)
    request = gda.formats.wqe_ctrl_seg.pack(opcode=0x3F, wqe_index=0, qp_or_sq=a.qpn, ds=1)
    a.write_wqe(0, request)
    a.write_record(1)
    a.ring(request[:8])
    software = attach.software_nic()
    assert any(software.step() or a.state == "ERR" for _ in range(100))
    while software.step():
        pass
    assert gda.diagnose(a)[0].headline == "first error: local queue pair operation error (0x02)"


@pytest.mark.gda_complaints("retries-exceeded")
def test_a_peer_that_is_reset(nic, regions):
    a, b = nic.loopback_pair()
    b.reset()
    with sim.virtual_time(), pytest.raises(CompletionError):
        put(a, regions)
    found = headlines(gda.diagnose(a, b))
    assert found[0] == "at the peer: state RST"
    assert "packets dropped on arrival: 8" in found


def test_an_address_that_moved(nic, regions):
    software, index, gid = attach.software_nic(), *nic.pick_gid()
    a, _ = nic.loopback_pair()
    software.set_gid(index, None)
    software.set_gid(9, gid.raw, gid.type)
    try:
        found = gda.diagnose(a)
        assert found[0].headline == f"GID index {index} is empty; the address is now at 9"
    finally:
        software.set_gid(9, None)
        software.set_gid(index, gid.raw, gid.type)


def test_a_port_without_link(nic):
    a, _ = nic.loopback_pair()
    attach.software_nic().set_link(False)
    try:
        assert headlines(gda.diagnose(a))[0] == f"port 1 of {nic.name} is DOWN"
    finally:
        attach.software_nic().set_link(True)


def test_a_card_shows_what_is_in_its_files(nic, regions, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Without the software NIC's own words: files as mlx5_ib has them, and what nobody can see there is said."""
    port = tmp_path / nic.name / "ports" / "1"
    (port / "hw_counters").mkdir(parents=True)
    (port / "counters").mkdir()
    timeouts, broken = port / "hw_counters" / "local_ack_timeout_err", port / "counters" / "link_downed"
    timeouts.write_text("41\n")
    broken.write_text("N/A (no PMA)\n")
    monkeypatch.setattr(counters, "SYSFS", tmp_path)
    monkeypatch.setattr(attach, "loaded", lambda: None)
    a, _ = nic.loopback_pair()
    timeouts.write_text("44\n")
    assert a.counters() == {"ack_timeouts": 3}
    assert headlines(gda.diagnose(a)) == ["rounds of resending after a timeout: 3", "not visible on a card"]


def test_a_finding_says_what_it_means_and_what_to_try(nic):
    text = str(gda.diagnose(nic.queue_pair())[0])
    assert text.splitlines()[0] == "state RST"
    assert [line.split(":")[0].strip() for line in text.splitlines()[1:]] == ["means", "values", "try"]
    with pytest.raises(ArgumentError, match="cannot diagnose int"):
        gda.diagnose(5)
