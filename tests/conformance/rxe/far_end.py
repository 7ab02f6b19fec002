# SPDX-License-Identifier: Apache-2.0
"""Two of these, at the ends of a cable: kernels of one are proxied on the kernel's soft-RoCE, of the other they post
directly to the software NIC. Started by proxied.py, in the guest and on the host:

    python -m tests.conformance.rxe.far_end DIRECTORY proxied|direct

They meet by files in DIRECTORY, which both see, and do each operation in turn, each way. What an end finds wrong it
writes, with what was right, to DIRECTORY/SIDE.results, as a JSON list of [name, what is wrong or ""].
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

import gda
from gda import formats
from gda.nic import ConnectionInfo, RemoteMemory

SIDES = ("proxied", "direct")
PATIENCE_S = 600.0  # a guest on a busy machine needs minutes to start Python
LIMIT_NS = 60_000_000_000
REGION, SIGNALS = 1 << 20, 4096  # the signals lie behind it
SIZES = (1, 8, 4096, 4097, 70_000)  # bytes: less than a packet, one, a byte more, many
SLOT = 1 << 17
KERNELS = "\n".join(f"#include <gda/kernels/{name}.h>" for name in ("put", "signal", "operations", "message"))


def kernels() -> gda.Kernel:
    """What both ends run; compiled where there is time for it."""
    return gda.Kernel(KERNELS, target="host")


class End:
    """One end, its memory and what it knows of the other."""

    def __init__(self, directory: Path, side: str) -> None:
        self.directory, self.side = directory, side
        self.other = SIDES[1 - SIDES.index(side)]
        self.step, self.results = 0, list[list[str]]()
        self.kernels = kernels()
        self.kernels.deadline_s = 2 * LIMIT_NS / 1e9
        self.nic = gda.open()
        assert self.nic.posting == ("proxy" if side == "proxied" else "direct"), self.nic
        self.queue = self.nic.queue_pair(depth=64, receive_depth=16, deadline_ms=int(LIMIT_NS / 1e6))
        self.memory = self.nic.allocate(REGION + SIGNALS)
        theirs = self.exchange(self.queue.info.to_bytes().hex(), self.memory.remote.to_bytes().hex())
        self.remote = RemoteMemory.from_bytes(bytes.fromhex(theirs[1]))
        self.queue.connect(ConnectionInfo.from_bytes(bytes.fromhex(theirs[0])))
        self.exchange()

    def exchange(self, *words: str) -> list[str]:
        """Say words at this step, and hear the other's; neither goes on without the other."""
        mine, theirs = (self.directory / f"{side}.{self.step}" for side in (self.side, self.other))
        draft = self.directory / f"{self.side}.draft"
        draft.write_text(json.dumps(words))
        draft.rename(mine)
        self.step += 1
        end = time.monotonic() + PATIENCE_S
        while not theirs.exists():
            assert time.monotonic() < end, f"the {self.other} end said nothing at step {self.step} in {PATIENCE_S} s"
            time.sleep(0.005)
        found: list[str] = json.loads(theirs.read_text())
        return found

    @contextmanager
    def noting(self, name: str) -> Iterator[None]:
        """Note how it ended; the other end meets this one again all the same."""
        try:
            yield
        except Exception as error:
            self.results.append([name, f"{type(error).__name__}: {error}"])
        else:
            self.results.append([name, ""])

    def run(self, name: str, *arguments: object) -> None:
        """Launch a kernel with one thread."""
        self.kernels[name][1, 1](*arguments)


def pattern(seed: int, bytes: int) -> bytes:
    """The same at both ends."""
    return np.random.default_rng(seed).bytes(bytes)


def put_with_signal(end: End, asks: bool) -> None:
    """Every size to its own place, a signal behind each."""
    total = len(SIZES)
    if asks:
        for number, size in enumerate(SIZES):
            end.memory.write(number * SLOT, pattern(number, size))
            end.run(
                "gda_kernel_put_signal", end.queue, end.remote, number * SLOT, end.memory, number * SLOT, size,
                end.remote, REGION, 1, int(formats.GDA_SIGNAL_ADD), LIMIT_NS,
            )  # fmt: skip
        return
    end.run("gda_kernel_wait_signal", end.memory, REGION, int(formats.GDA_REACHED), total, LIMIT_NS)
    for number, size in enumerate(SIZES):
        assert end.memory.read(number * SLOT, size) == pattern(number, size), f"{size} bytes are not what was put"


def get(end: End, asks: bool) -> None:
    """What the other end has, of every size."""
    if not asks:
        for number, size in enumerate(SIZES):
            end.memory.write(number * SLOT, pattern(100 + number, size))
    end.exchange()
    if asks:
        for number, size in enumerate(SIZES):
            place = number * SLOT + SLOT // 2 if size < SLOT // 2 else number * SLOT
            end.run("gda_kernel_get", end.queue, end.memory, place, end.remote, number * SLOT, size, LIMIT_NS)
            assert end.memory.read(place, size) == pattern(100 + number, size), f"{size} bytes are not what is there"


def atomics(end: End, asks: bool) -> None:
    """Fetch-and-add and compare-and-swap: old values here, sums there."""
    if not asks:
        end.memory.write(REGION + 64, (1 << 40).to_bytes(8, "little"))
    end.exchange()
    if asks:
        for number in range(8):
            end.run("gda_kernel_fetch_add", end.queue, end.memory, 0, end.remote, REGION + 64, 3, LIMIT_NS)
            old = int.from_bytes(end.memory.read(0, 8), "little")
            assert old == (1 << 40) + 3 * number, f"the old value is {old:#x}"
        now = (1 << 40) + 24
        for compare, expected in ((1, now), (now, now), (now, 77)):
            end.run("gda_kernel_compare_swap", end.queue, end.memory, 0, end.remote, REGION + 64, compare, 77, LIMIT_NS)
            old = int.from_bytes(end.memory.read(0, 8), "little")
            assert old == expected, f"compared with {compare:#x}: the old value is {old:#x}, not {expected:#x}"
    end.exchange()
    if not asks:
        now = int.from_bytes(end.memory.read(REGION + 64, 8), "little")
        assert now == 77, f"at the end there is {now:#x}"


def messages(end: End, asks: bool) -> None:
    """Sends with immediate into posted receives, then a put with immediate."""
    out = formats.layouts["gda_received"]
    if not asks:
        for number, size in enumerate(SIZES):
            end.run("gda_kernel_post_receive", end.queue, end.memory, number * SLOT, size)
        end.run("gda_kernel_post_receive", end.queue, end.memory, 0, 0)
    end.exchange()
    if asks:
        for number, size in enumerate(SIZES):
            end.memory.write(number * SLOT, pattern(200 + number, size))
            end.run("gda_kernel_send_imm", end.queue, end.memory, number * SLOT, size, 1000 + number, LIMIT_NS)
        end.run("gda_kernel_put_imm", end.queue, end.remote, REGION + 128, end.memory, 0, 1, 9, LIMIT_NS)
        return
    for number, size in enumerate((*SIZES, 1)):
        received = np.zeros(out.bytes, np.uint8)
        end.run("gda_kernel_wait_receive", end.queue, received, LIMIT_NS)
        told = out.unpack(received.tobytes())
        immediate = 1000 + number if number < len(SIZES) else 9
        assert (told["bytes"], told["immediate"]) == (size, immediate), told
        if number < len(SIZES):
            assert end.memory.read(number * SLOT, size) == pattern(200 + number, size), f"{size} bytes differ"


OPERATIONS: tuple[Callable[[End, bool], None], ...] = (put_with_signal, get, atomics, messages)


def main(directory: Path, side: str) -> None:
    """All operations, each end asking in turn."""
    end = End(directory, side)
    for operation in OPERATIONS:
        for asking in SIDES:
            end.exchange()
            with end.noting(f"{operation.__name__}.{asking} asks.{side} end"):
                operation(end, asking == side)
            end.memory.write(REGION, bytes(SIGNALS)), end.exchange()
    (directory / f"{side}.results").write_text(json.dumps(end.results))
    end.exchange()
    end.nic.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
