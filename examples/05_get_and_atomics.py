# SPDX-License-Identifier: Apache-2.0
"""Workers share a queue of jobs in another's memory: fetch-and-add takes a number, get the job, put returns the answer.

A remote counter hands out job numbers without anybody's processor; compare-and-swap elects the one that says so.
"""

import numpy as np

import gda

WORKERS, JOBS, WORDS = 32, 200, 8

KERNEL = r"""
#include <gda/gda.h>
// remote: a counter of taken jobs, a word for the first worker, jobs of `words` numbers, and places for the answers.
struct layout { uint64_t counter, first, jobs, answers; };

GDA_KERNEL(work)(gda_qp* qp, gda_mr remote, layout at, gda_mr own, uint32_t jobs, uint32_t words,
                 gda_status* status) {
    uint64_t me = threadIdx.x, mine = me * (8 + 8 * words);  // each worker's own memory: a number, then a job
    uint64_t* number = reinterpret_cast<uint64_t*>(own.addr + mine);
    gda_status s = gda_wait(qp, gda_compare_swap(qp, own, mine, remote, at.first, 0, me + 1), GDA_S(10));
    while (s == 0) {
        s = gda_wait(qp, gda_fetch_add(qp, own, mine, remote, at.counter, 1), GDA_S(10));
        uint64_t job = *number;  // what the counter held before
        if (s != 0 || job >= jobs) break;
        s = gda_wait(qp, gda_get(qp, own, mine + 8, remote, at.jobs + job * 8 * words, 8 * words), GDA_S(10));
        if (s != 0) break;
        uint64_t sum = 0;
        for (uint32_t w = 0; w < words; ++w) sum += number[1 + w] * number[1 + w];
        s = gda_wait(qp, gda_put_value(qp, remote, at.answers + 8 * job, sum), GDA_S(10));  // no memory of our own
    }
    gda_report(status, s);
}
"""

with gda.open() as nic:
    jobs = np.random.default_rng(1).integers(0, 1000, (JOBS, WORDS), dtype=np.uint64)
    layout = np.array([0, 8, 64, 64 + jobs.nbytes], np.uint64)  # offsets of the four parts
    remote, own = nic.allocate(64 + jobs.nbytes + 8 * JOBS), nic.allocate(WORKERS * (8 + 8 * WORDS))
    remote.write(64, jobs.tobytes())
    kernel = gda.Kernel(KERNEL)
    queue, _ = nic.loopback_pair(depth=64)
    kernel.work[1, WORKERS](queue, remote, layout.tobytes(), own, JOBS, WORDS)
    answers = np.frombuffer(remote.read(int(layout[3]), 8 * JOBS), np.uint64)
    assert (answers == (jobs**2).sum(axis=1)).all()
    counter, first = np.frombuffer(remote.read(0, 16), np.uint64)
    assert counter == JOBS + WORKERS, "each worker took one number too many and stopped"
    assert 1 <= first <= WORKERS
    print(f"{JOBS} jobs done by {WORKERS} workers; worker {first - 1} was first")
    print("get and atomics: ok")
