# SPDX-License-Identifier: Apache-2.0
"""One put from a kernel to its completion, each step shown in plain words: `python -m gda demo`."""

from __future__ import annotations

import struct

import numpy as np
from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from gda import attach, formats
from gda.errors import ArgumentError, GdaError
from gda.nic import Nic, QueuePair
from gda.nic import open as open_nic
from gda.run import Kernel
from gda.tools.bench import measure_latency
from gda.tools.inspect import hex_lines

__all__ = ["FIRST_PUT", "demo"]

FIRST_PUT = r"""
#include <gda/gda.h>

GDA_KERNEL(first_put)(gda_qp* qp, gda_mr dst, gda_mr src, uint64_t bytes, gda_status* status) {
    gda_ticket ticket = gda_put(qp, dst, 0, src, 0, bytes);   // build the work request, ring the doorbell
    *status = gda_wait(qp, ticket, GDA_MS(1000));             // read the completion, or give up after a second
}
"""
SIZES = (8, 64, 512, 4096, 65536, 1 << 20)
KINDS = {"host": "host memory", "gpu": "GPU memory", "uar": "the NIC"}
PATTERN_MODULUS = 251  # a prime, so that no power-of-two shift of the data looks right


def demo(bytes: int = 1024, placement: str = "host", queues: str = "host") -> None:
    """Run and show the first put; raises a GdaError when any step fails.

    `bytes` is the size of the put, `placement` where the payload lies, `queues` where SQ, CQ and records lie.
    """
    if bytes < 0 or bytes > 1 << 30:
        raise ArgumentError(f"--bytes {bytes} is not between 0 and 2^30")
    console = Console(highlight=False, soft_wrap=True)
    with open_nic() as nic:
        kernel = Kernel(FIRST_PUT)
        _show_nic(console, nic, kernel)
        source = nic.allocate(max(bytes, 1), placement=placement)
        target = nic.allocate(max(bytes, 1), placement=placement)
        expected = (np.arange(max(bytes, 1)) % PATTERN_MODULUS).astype(np.uint8)
        source.write(0, expected.tobytes())
        target.write(0, b"\x00" * len(expected))
        console.print("\n[bold]2. Memory.[/] Registered, so that the NIC may read and write it:")
        for name, region in (("source", source), ("target", target)):
            where = "GPU" if region.is_gpu else "host"
            console.print(
                f"   {name}  {region.bytes} bytes of {where} memory at 0x{region.address:x}, "
                f"lkey 0x{region.lkey:x}, rkey 0x{region.rkey:x}"
            )
        a, b = nic.loopback_pair(placement=queues)
        _show_queues(console, a, b)
        console.print("\n[bold]4. The kernel.[/] One thread posts and polls by itself; no driver call in the path:")
        console.print("\n".join("   | " + line for line in FIRST_PUT.strip().splitlines()), markup=False)
        kernel.first_put[1, 1](a, target, source, bytes)
        _show_put(console, nic, a)
        got = target.read(0, bytes)
        if got != expected.tobytes()[:bytes]:
            wrong = next(i for i, (x, y) in enumerate(zip(got, expected.tobytes(), strict=False)) if x != y)
            raise GdaError(f"the data is wrong: byte {wrong} of {bytes} is {got[wrong]}, expected {expected[wrong]}")
        console.print(f"\n[bold]8. The data.[/] All {bytes} bytes arrived and were compared.")
        a.close()
        b.close()
        _show_times(console, nic, placement, queues)
    console.print("first put: ok")


def _show_nic(console: Console, nic: Nic, kernel: Kernel) -> None:
    console.print("[bold]1. The NIC.[/]")
    console.print(f"   {nic.name}: {nic.description}")
    index, gid = nic.pick_gid()
    console.print(f"   firmware {nic.firmware}, port 1 {nic.port_state}, address {gid} (GID index {index}, RoCE v2)")
    console.print(f"   kernels run on {kernel.where}")


def _show_queues(console: Console, a: QueuePair, b: QueuePair) -> None:
    console.print(
        f"\n[bold]3. Queues.[/] Queue pairs 0x{a.qpn:x} and 0x{b.qpn:x}, made by firmware commands over memory "
        "we chose, connected to each other:"
    )
    table = Table("part", "in", "address", "bytes", "read by", box=None, padding=(0, 2))
    readers = {
        "sq": ("send queue (SQ)", "NIC"),
        "cq": ("completion queue (CQ)", "kernel"),
        "record": ("doorbell record", "NIC"),
        "cq_record": ("CQ doorbell record", "NIC"),
        "doorbell": ("doorbell page (UAR)", "NIC"),
        "handle": ("handle", "kernel"),
    }
    for part, (kind, address, size) in a.where().items():
        name, reader = readers.get(part, (part, ""))
        table.add_row(name, KINDS.get(kind, kind), f"0x{address:x}", str(size), reader)
    console.print(Padding(table, (0, 0, 0, 1)))


def _show_put(console: Console, nic: Nic, queue: QueuePair) -> None:
    handle = queue.read_handle()
    index = int(handle["reserved"]) - 1
    wqe = queue.read_wqe(index)
    console.print(f"\n[bold]5. The work request[/] that the kernel wrote, index {index}, read back from the SQ:")
    console.print(hex_lines(wqe, "   "))
    console.print(_indented(formats.decode_wqe(wqe)), markup=False)
    record = queue.read_record()
    console.print("\n[bold]6. The doorbell.[/]", end=" ")
    if record is not None:
        console.print(f"First the record in memory (send counter {record}), then eight bytes to the page:")
    else:
        console.print("No record: the eight bytes stored to the page say it all:")
    sim = attach.loaded() if nic.is_software else None
    seen = sim.last_doorbell(queue.qpn) if sim else None
    value = struct.pack("<Q", seen) if seen is not None else wqe[:8]
    source = "as the NIC saw it" if seen is not None else "the first eight bytes of the work request"
    console.print(f"   {value[:4].hex()} {value[4:].hex()}   ({source})")
    console.print(_indented(formats.decode_doorbell(value)), markup=False)
    cqe = queue.read_cqe()
    console.print("\n[bold]7. The completion[/] that the NIC wrote and the kernel read:")
    console.print(hex_lines(cqe, "   "))
    console.print(_indented(formats.decode_cqe(cqe)), markup=False)


def _show_times(console: Console, nic: Nic, placement: str, queues: str) -> None:
    console.print("\n[bold]9. Times[/] from put to completion, one kernel thread, one put in flight:")
    table = Table("size", "median", "fastest", "puts", box=None, padding=(0, 2))
    for row in measure_latency(nic, SIZES, placement=placement, queues=queues):
        table.add_row(
            f"{row.bytes} B", f"{row.median_ns / 1000:.2f} us", f"{row.fastest_ns / 1000:.2f} us", str(row.count)
        )
    console.print(Padding(table, (0, 0, 0, 1)))


def _indented(text: str) -> str:
    return "\n".join("   " + line for line in text.splitlines())
