# SPDX-License-Identifier: Apache-2.0
"""Two processes talk by messages: kernels send, post receives and answer; neither knows an address of the other."""

import multiprocessing
from multiprocessing.connection import Connection

import numpy as np

import gda

MESSAGES, WORDS = 24, 16

KERNELS = r"""
#include <gda/gda.h>
// Answers each message: receives it, adds up its words, sends the sum back with the message's number.
GDA_KERNEL(serve)(gda_qp* qp, gda_mr inbox, gda_mr outbox, uint32_t words, uint32_t messages, gda_status* status) {
    for (uint32_t i = 0; i < messages; ++i) {
        gda_received r;
        gda_status s = gda_wait_receive(qp, &r, GDA_S(20));
        if (s != 0) return gda_report(status, s);
        uint64_t sum = 0;
        for (uint32_t w = 0; w < words; ++w) sum += reinterpret_cast<const uint32_t*>(r.addr)[w];
        gda_post_receive(qp, inbox, r.addr - inbox.addr, words * 4);  // the memory is free for another message
        reinterpret_cast<uint64_t*>(outbox.addr)[i] = sum;
        __threadfence_system();
        s = gda_wait(qp, gda_send_imm(qp, outbox, 8 * i, 8, r.immediate), GDA_S(20));
        if (s != 0) return gda_report(status, s);
    }
}
GDA_KERNEL(post)(gda_qp* qp, gda_mr inbox, uint32_t bytes, uint32_t count, gda_status* status) {
    for (uint32_t i = 0; i < count; ++i) {
        gda_ticket posted = gda_post_receive(qp, inbox, i * bytes, bytes);
        if (gda_failed(posted)) return gda_report(status, gda_wait(qp, posted, 0));
    }
}
GDA_KERNEL(ask)(gda_qp* qp, gda_mr inbox, gda_mr questions, gda_mr answers, uint32_t words, uint32_t messages,
                gda_status* status) {
    for (uint32_t i = 0; i < messages; ++i) {
        gda_ticket sent = gda_send_imm(qp, questions, uint64_t(i) * words * 4, words * 4, i);
        gda_received r;
        gda_status s = gda_wait(qp, sent, GDA_S(20));
        if (s == 0) s = gda_wait_receive(qp, &r, GDA_S(20));
        if (s != 0) return gda_report(status, s);
        reinterpret_cast<uint64_t*>(answers.addr)[r.immediate] = *reinterpret_cast<const uint64_t*>(r.addr);
        gda_post_receive(qp, inbox, r.addr - inbox.addr, 8);
    }
}
"""


def prepare(nic: gda.Nic, pipe: Connection, bytes: int) -> tuple[gda.Kernel, gda.QueuePair, gda.Memory]:
    """A connected queue pair with eight receives of `bytes` bytes posted, on both sides before either sends."""
    kernels, inbox = gda.Kernel(KERNELS), nic.allocate(8 * bytes)
    kernels.deadline_s = 60
    queue = nic.queue_pair(receive_depth=8)
    pipe.send(queue.info.to_bytes())
    queue.connect(gda.ConnectionInfo.from_bytes(pipe.recv()))
    kernels.post[1, 1](queue, inbox, bytes, 8)
    pipe.send("ready")
    assert pipe.recv() == "ready"
    return kernels, queue, inbox


def server(pipe: Connection) -> None:
    with gda.open() as nic:
        kernels, queue, inbox = prepare(nic, pipe, 4 * WORDS)
        kernels.serve[1, 1](queue, inbox, nic.allocate(8 * MESSAGES), WORDS, MESSAGES)
        assert pipe.recv() == "done"


def client(pipe: Connection) -> None:
    with gda.open() as nic:
        kernels, queue, inbox = prepare(nic, pipe, 8)
        words = np.arange(MESSAGES * WORDS, dtype=np.uint32).reshape(MESSAGES, WORDS)
        questions, answers = nic.allocate(words.nbytes), nic.allocate(8 * MESSAGES)
        questions.write(0, words.tobytes())
        kernels.ask[1, 1](queue, inbox, questions, answers, WORDS, MESSAGES)
        pipe.send("done")
        got = np.frombuffer(answers.read(0, 8 * MESSAGES), np.uint64)
        assert (got == words.sum(axis=1)).all()
        print(f"{MESSAGES} questions of {4 * WORDS} bytes, {MESSAGES} answers")


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    other = context.Process(target=server, args=(theirs,))
    other.start()
    client(ours)
    other.join(timeout=60)
    assert other.exitcode == 0
    print("send and receive: ok")
