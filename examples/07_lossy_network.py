# SPDX-License-Identifier: Apache-2.0
"""A put crosses a network that loses one packet in ten; every loss and every repetition is seen, and no time passes."""

import tempfile
from pathlib import Path

import numpy as np

import gda
import gda.sim

KERNEL = r"""
#include <gda/gda.h>
GDA_KERNEL(put)(gda_qp* qp, gda_mr dst, gda_mr src, uint64_t bytes, gda_status* status) {
    *status = gda_wait(qp, gda_put(qp, dst, 0, src, 0, bytes), GDA_S(30));
}
"""
FAULTS = "drop=10%,seed=7; drop request nth=3"  # by chance, and the third request for certain
PACKET = 6  # pcapng: an enhanced packet block; its options follow the packet, a comment is option 1


def comments(capture: Path) -> list[str]:
    """What the NIC wrote beside each packet. Wireshark shows it as the packet's comment."""
    data, found = capture.read_bytes(), []
    while data:
        kind, length, packet_bytes = (int.from_bytes(data[at : at + 4], "little") for at in (0, 4, 20))
        if kind == PACKET:
            at = 28 + (packet_bytes + 3) // 4 * 4
            while (option := int.from_bytes(data[at : at + 2], "little")) != 0:
                size = int.from_bytes(data[at + 2 : at + 4], "little")
                if option == 1:
                    found.append(data[at + 4 : at + 4 + size].decode())
                at += 4 + (size + 3) // 4 * 4
        data = data[length:]
    return found


nic_of_this_process = gda.sim.current()  # the software ConnectX, whatever else this machine has
with tempfile.TemporaryDirectory() as place, gda.open() as nic:
    capture = Path(place) / "put.pcapng"
    source = np.random.default_rng(1).integers(0, 256, 200_000, dtype=np.uint8)
    target = np.zeros_like(source)
    src, dst = nic.register(source), nic.register(target)
    a, b = nic.loopback_pair()
    put = gda.Kernel(KERNEL, target="host").put  # under virtual time the NIC moves when code on the CPU waits
    with gda.sim.virtual_time() as sim, gda.sim.capture(capture), gda.sim.faults(FAULTS):
        start_ns = sim.now_ns()
        put[1, 1](a, dst, src, source.size)
        took_us = (sim.now_ns() - start_ns) / 1000
    assert (source == target).all()

    counted = a.counters()
    print(f"{source.size} bytes in {counted['packets_sent']} packets, answers included; {took_us:.0f} virtual us")
    print(f"  lost: {counted['fault_dropped']}, sent again: {counted['packets_resent']}")
    print(f"  repeated {counted['sequence_naks']}x when asked, {counted['ack_timeouts']}x after a timeout")
    seen = comments(capture)
    print(f"the capture, {capture.stat().st_size} bytes for Wireshark, has {len(seen)} packets, among them:")
    telling = [(number, text) for number, text in enumerate(seen, 1) if "dropped" in text or "again" in text]
    print(*(f"  packet {number}: {text}" for number, text in telling[:6]), sep="\n")
    print("what gda.diagnose makes of it:")
    print(*(f"  {finding.headline}" for finding in gda.diagnose(a)), sep="\n")
    assert counted["fault_dropped"] == sum("dropped" in comment for comment in seen)
    assert counted["packets_resent"] == sum("sent again" in comment for comment in seen)
print("a put across a lossy network: ok")
