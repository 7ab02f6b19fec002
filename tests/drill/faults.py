# SPDX-License-Identifier: Apache-2.0
"""The faults of the drill: what is done wrong, and by what it must be noticed, within how long.

Each is made twice, on a fresh rig: with queue pairs of gda, where it may raise what gda raises, else the harness waits
for the complaint; and with queue pairs of libibverbs, to see what a user of that alone is told.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rig import Bench, kernels

from gda import formats
from gda.nic import RemoteMemory

ROOT = Path(__file__).resolve().parents[2]
Make = Callable[[Bench], None]


@dataclass(frozen=True)
class Fault:
    name: str
    make: Make
    kind: str = ""  # of the complaint
    error: str = ""  # the exception of gda that it becomes
    headline: str = ""  # begins the first finding of gda.diagnose
    seconds: float = 2.0  # within which it must be noticed
    last: int = 0  # index of the request that is at fault
    options: dict[str, Any] = field(default_factory=dict)  # of the queue pairs


FAULTS: list[Fault] = []


def fault(name: str, **how: Any) -> Callable[[Make], Make]:
    def add(make: Make) -> Make:
        FAULTS.append(Fault(name, make, **how))
        return make

    return add


def changed(name: str, kind: str, **changes: int) -> None:
    """A request with fields that are wrong."""
    FAULTS.append(Fault(name, lambda rig: rig.post(0, **changes), kind))


def swapped(value: int) -> int:
    return int.from_bytes(value.to_bytes(4, "little"), "big")


# ---- requests

changed("slot holds the index of another request", "wqe-stale", wqe_index=5)
changed("slot holds another queue pair's number", "wqe-stale", qp_or_sq=0x77)
changed("opcode that does not exist", "wqe-opcode", opcode=0x3F)
changed("size in bytes", "wqe-size", ds=48)
changed("size in blocks", "wqe-size", ds=1)
changed("length in the wrong byte order", "length-unit", byte_count=0x00080000)
changed("length 0, which means 2 GiB", "message-too-long", byte_count=0)
changed("local key that does not exist", "key-unknown", lkey=0xDEAD00, byte_count=200)
changed("remote key that does not exist", "key-unknown", rkey=0xDEAD00)


@fault("slot of an earlier lap, rung again", kind="wqe-stale", last=16)
def _(rig: Bench) -> None:
    rig.complete(16)
    rig.a.write_record(17)
    rig.a.ring(formats.wqe_ctrl_seg.pack(wqe_index=16, qp_or_sq=rig.a.qpn, ds=3)[:8])


@fault("request of two blocks, one written", kind="wqe-torn")
def _(rig: Bench) -> None:
    data = formats.wqe_data_seg.pack(byte_count=64, lkey=rig.source.lkey, addr=rig.source.address)
    request = rig.request(ds=8) + data
    rig.a.write_wqe(0, request)
    rig.a.write_wqe(1, bytes(64))
    rig.a.write_record(2)
    rig.a.ring(request[:8])


@fault("reserved bits that are not zero", kind="wqe-reserved-bits")
def _(rig: Bench) -> None:
    request = bytearray(rig.request())
    request[31] = 1
    rig.post(0, bytes(request))


@fault("inline payload without its flag", kind="inline-flag-missing")
def _(rig: Bench) -> None:
    rig.post(0, rig.request()[:32] + (8).to_bytes(4, "big") + b"payload!" + bytes(4))


@fault("request overwritten while it is on its way (on request)", kind="wqe-overwritten")
def _(rig: Bench) -> None:
    rig.software.watch_sources(True)
    rig.software.set_thread("off")
    rig.software.set_faults("delay=20ms")
    rig.post()
    rig.software.step()
    rig.a.write_wqe(0, rig.request()[:12] + b"\1" + rig.request()[13:])


@fault("source written while it is on its way (on request)", kind="source-changed")
def _(rig: Bench) -> None:
    rig.software.watch_sources(True)
    rig.software.set_thread("off")
    rig.software.set_faults("delay=20ms")
    rig.post()
    rig.software.step()
    rig.source.array[7] ^= 1


@fault("no system fence between payload and doorbell (on request)", kind="fence-missing", seconds=10)
def _(rig: Bench) -> None:
    rig.software.store_buffer(True)
    request = rig.request()
    rig.a.write_wqe(0, request)
    where = rig.a.where()
    kernels().post_without_a_fence[1, 1](
        rig.source.address, where["record"][1] + 4, where["doorbell"][1], swapped(1),
        int.from_bytes(request[:8], "little"), where["cq"][1],
    )  # fmt: skip


# ---- records and doorbells


@fault("doorbell missed: the record alone was stored", kind="record-without-doorbell")
def _(rig: Bench) -> None:
    rig.a.write_wqe(0, rig.request())
    rig.a.write_record(1)


@fault("doorbell without its record", kind="doorbell-without-record")
def _(rig: Bench) -> None:
    rig.a.write_wqe(0, rig.request())
    rig.a.ring(rig.request()[:8])


@fault("record that goes back", kind="record-went-back")
def _(rig: Bench) -> None:
    rig.complete(2)
    rig.a.write_record(1)
    rig.a.ring(rig.request(1)[:8])


@fault("producer index in the word of receives", kind="record-wrong-word")
def _(rig: Bench) -> None:
    rig.a.write_wqe(0, rig.request())
    ctypes.c_uint32.from_address(rig.a.where()["record"][1]).value = swapped(1)
    rig.a.ring(rig.request()[:8])


@fault("more requests than the send queue holds", kind="sq-overrun")
def _(rig: Bench) -> None:
    for index in range(17):
        rig.a.write_wqe(index, rig.request(index))
    rig.a.write_record(17)
    rig.a.ring(rig.request(16)[:8])


@fault("doorbell on the page of another context", kind="doorbell-wrong-page")
def _(rig: Bench) -> None:
    other = rig.another()
    rig.a.write_wqe(0, rig.request())
    rig.a.write_record(1)
    other.a.ring(rig.request()[:8])
    rig.until(rig.software.report, 5)
    other.close()


@fault("doorbell for a queue pair of another process", kind="doorbell-unknown-queue")
def _(rig: Bench) -> None:
    rig.a.ring(formats.send_doorbell.pack(wqe_index=0, qpn=rig.a.qpn ^ 0x10000, ds=3))


# ---- completions


@fault("completion queue full", kind="cq-overrun", last=17, options={"ignore_overrun": False})
def _(rig: Bench) -> None:
    rig.complete(16)
    ctypes.c_uint32.from_address(rig.a.where()["cq_record"][1]).value = swapped(1)
    for index in range(16, 18):
        rig.post(index)


@fault("consumer index never stored", kind="cq-consumer-never-written", last=16, options={"ignore_overrun": False})
def _(rig: Bench) -> None:
    rig.complete(16)
    rig.post(16)


# ---- keys and memory


@fault("local key in the processor's byte order", kind="key-byte-swapped")
def _(rig: Bench) -> None:
    rig.post(0, lkey=swapped(rig.source.lkey))


@fault("remote key in the processor's byte order", kind="key-byte-swapped")
def _(rig: Bench) -> None:
    rig.post(0, rkey=swapped(rig.target.rkey))


def of_another_domain(rig: Bench, local: bool) -> None:
    other = rig.another()
    foreign = other.source
    where = {"lkey": foreign.lkey, "addr": foreign.address} if local else {
        "rkey": foreign.rkey, "raddr": foreign.address}  # fmt: skip
    rig.post(0, **where)
    rig.until(rig.software.report, 5)
    other.close()


@fault("local key of another protection domain", kind="key-other-domain")
def _(rig: Bench) -> None:
    of_another_domain(rig, True)


@fault("remote key of another protection domain", kind="key-other-domain")
def _(rig: Bench) -> None:
    of_another_domain(rig, False)


@fault("write to a region without that right", kind="key-right-missing")
def _(rig: Bench) -> None:
    readable = rig.register(np.zeros(64, np.uint8), access=("remote_read",))
    rig.post(0, raddr=readable.address, rkey=readable.rkey)


@fault("read into a region without local write", kind="key-right-missing")
def _(rig: Bench) -> None:
    readable = rig.register(np.zeros(64, np.uint8), access=("remote_read",))
    rig.post(0, opcode=formats.MLX5_OPCODE_RDMA_READ, addr=readable.address, lkey=readable.lkey)


@fault("write past the end of the region", kind="key-range")
def _(rig: Bench) -> None:
    rig.post(0, raddr=rig.target.address + 4096 - 63)


@fault("put past the end of the region, by a kernel", error="OutOfBoundsError", seconds=10)
def _(rig: Bench) -> None:
    rig.put(rig.target, 4090, 64, 2000)


@fault("put inside the region at a wrong offset, of a kernel that got a window", error="OutOfBoundsError", seconds=10)
def _(rig: Bench) -> None:
    window = RemoteMemory(rig.target.address + 1024, 64, rig.target.rkey)  # the part that it may write
    rig.put(window, 64, 64, 2000)


@fault("put behind a team's window, inside the region that its key covers", error="OutOfBoundsError", seconds=10)
def _(rig: Bench) -> None:
    rig.put_behind_a_window(rig.register(np.zeros(4096, np.uint8)), 1024, 64, 2000)


@fault("atomic at an address that is no multiple of 8", kind="atomic-misaligned")
def _(rig: Bench) -> None:
    control = formats.wqe_ctrl_seg.pack(
        opcode=formats.MLX5_OPCODE_ATOMIC_FA, wqe_index=0, qp_or_sq=rig.a.qpn, ds=4, ce=formats.CE_ALWAYS
    )
    where = formats.wqe_raddr_seg.pack(raddr=rig.target.address + 4, rkey=rig.target.rkey)
    operands = formats.wqe_atomic_seg.pack(swap_add=1)
    rig.post(
        0, control + where + operands
        + formats.wqe_data_seg.pack(byte_count=8, lkey=rig.source.lkey, addr=rig.source.address),
    )  # fmt: skip


def protected(rig: Bench, source: bool) -> None:
    page = mmap.mmap(-1, 4096)
    region = rig.register(np.frombuffer(page, np.uint8))
    libc = ctypes.CDLL(None)
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    libc.mprotect(region.address, 4096, 0 if source else mmap.PROT_READ)
    where = {"addr": region.address, "lkey": region.lkey} if source else {"raddr": region.address, "rkey": region.rkey}
    rig.post(0, **where)
    rig.until(rig.software.report, 5)
    libc.mprotect(region.address, 4096, mmap.PROT_READ | mmap.PROT_WRITE)


@fault("source unmapped while it is registered", kind="memory-gone")
def _(rig: Bench) -> None:
    protected(rig, True)


@fault("target unmapped while it is registered", kind="memory-gone")
def _(rig: Bench) -> None:
    protected(rig, False)


@fault("signal in memory with relaxed ordering", error="OrderingError", seconds=10)
def _(rig: Bench) -> None:
    relaxed = rig.register(
        np.zeros(8, np.uint8), access=("local_write", "remote_write", "remote_atomic", "relaxed_ordering")
    )
    rig.signal(relaxed)


# ---- the other side, the network, the engine


@fault("queue pair in error", error="CompletionError", headline="first error: ", seconds=10)
def _(rig: Bench) -> None:
    rig.a.to_error()
    rig.put(rig.target, 0, 64, 2000)


@fault("peer's queue pair was reset", kind="retries-exceeded", error="CompletionError", seconds=10)
def _(rig: Bench) -> None:
    rig.b.reset()
    rig.put(rig.target, 0, 64, 8000)


@fault("link taken down", kind="retries-exceeded", error="CompletionError", headline="port 1 of", seconds=10)
def _(rig: Bench) -> None:
    rig.software.set_link(False)
    rig.put(rig.target, 0, 64, 8000)


@fault("every packet lost", kind="retries-exceeded", error="CompletionError", seconds=10,
       headline="packets lost to faults")  # fmt: skip
def _(rig: Bench) -> None:
    rig.software.set_faults("drop=100%,seed=1")
    rig.put(rig.target, 0, 64, 8000)


@fault("every answer lost", kind="retries-exceeded", error="CompletionError", seconds=10,
       headline="packets lost to faults")  # fmt: skip
def _(rig: Bench) -> None:
    rig.software.set_faults("drop answer")
    rig.put(rig.target, 0, 64, 8000)


PEER = """
import pickle, sys
import numpy as np, gda
with gda.open() as nic:
    queue = nic.queue_pair()
    memory = nic.register(np.zeros(4096, np.uint8))
    print(pickle.dumps((queue.info, memory.remote)).hex(), flush=True)
    queue.connect(pickle.loads(bytes.fromhex(input())))
    print("ready", flush=True)
    input()
"""


def another_process(rig: Bench) -> tuple[subprocess.Popen[str], RemoteMemory]:
    """`a` sends to its memory from now on."""
    peer = subprocess.Popen(
        [sys.executable, "-c", PEER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert peer.stdin and peer.stdout
    info, memory = pickle.loads(bytes.fromhex(peer.stdout.readline()))
    queue = rig.queue()
    peer.stdin.write(pickle.dumps(queue.info).hex() + "\n")
    peer.stdin.flush()
    queue.connect(info)
    assert peer.stdout.readline() == "ready\n"
    rig.a = queue
    return peer, memory


@fault("peer's process was killed", kind="retries-exceeded", error="CompletionError", seconds=30)
def _(rig: Bench) -> None:
    peer, memory = another_process(rig)
    peer.kill()
    peer.communicate()
    rig.put(memory, 0, 64, 20000)


@fault("peer's engine stands still (its process is stopped)", error="DeadlineError", seconds=20)
def _(rig: Bench) -> None:
    peer, memory = another_process(rig)
    peer.send_signal(signal.SIGSTOP)
    state = Path(f"/proc/{peer.pid}/stat")
    rig.until(lambda: state.read_text().rpartition(")")[2].split()[0] == "T", 5)
    try:
        rig.put(memory, 0, 64, 500)
    finally:
        peer.kill()
        peer.communicate()
