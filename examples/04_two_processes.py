# SPDX-License-Identifier: Apache-2.0
"""Two processes, each with its own NIC. They exchange a few bytes of addresses, then a kernel writes to the other."""

import multiprocessing
from multiprocessing.connection import Connection

import gda

KERNEL = r"""
#include <gda/gda.h>
GDA_KERNEL(send)(gda_qp* qp, gda_mr dst, gda_mr src, gda_status* status) {
    *status = gda_wait(qp, gda_put(qp, dst, 0, src, 0, src.bytes), GDA_S(5));
}
"""
TEXT = b"from the other process".ljust(64)


def receiver(pipe: Connection) -> None:
    with gda.open() as nic:
        window = nic.allocate(64)
        queue = nic.queue_pair()
        pipe.send((queue.info.to_bytes(), window.remote.to_bytes()))
        queue.connect(gda.ConnectionInfo.from_bytes(pipe.recv()))
        pipe.send("connected")
        pipe.recv()  # the sender says that its put has completed
        assert window.read(0, 64) == TEXT
        print("receiver: the text is here")


def sender(pipe: Connection) -> None:
    with gda.open() as nic:
        source = nic.allocate(64)
        source.write(0, TEXT)
        queue = nic.queue_pair()
        info, window = pipe.recv()
        pipe.send(queue.info.to_bytes())
        queue.connect(gda.ConnectionInfo.from_bytes(info))
        assert pipe.recv() == "connected"
        gda.Kernel(KERNEL).send[1, 1](queue, gda.RemoteMemory.from_bytes(window), source)
        pipe.send("put completed")


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    other = context.Process(target=receiver, args=(theirs,))
    other.start()
    sender(ours)
    other.join(timeout=30)
    assert other.exitcode == 0
    print("two processes: ok")
