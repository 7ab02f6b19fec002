# SPDX-License-Identifier: Apache-2.0
"""The CPU posts, a thousand writes in one call: work requests are rows of a NumPy array, checked before any is sent."""

import numpy as np

import gda
from gda._verbs import IBV_SEND_SIGNALED, IBV_WR_RDMA_WRITE

COUNT = 1000

with gda.open() as nic:
    a, b = nic.host_queue_pair(depth=1024), nic.host_queue_pair()
    a.connect(b.info)
    b.connect(a.info)
    source = nic.register(np.arange(COUNT, dtype=np.uint64))
    target = nic.allocate(8 * COUNT)

    # Transpose a 10 x 100 matrix by writes of one element each.
    rows = np.zeros(COUNT, gda.WORK_REQUEST)
    rows["opcode"] = IBV_WR_RDMA_WRITE
    rows["local_addr"] = source.address + 8 * np.arange(COUNT)
    rows["remote_addr"] = target.address + 8 * np.arange(COUNT).reshape(100, 10).T.ravel()
    rows["length"], rows["lkey"], rows["rkey"] = 8, source.lkey, target.rkey
    rows["send_flags"][-1] = IBV_SEND_SIGNALED  # one completion for all: they complete in order
    a.post(rows, remote=[target])
    a.wait()
    matrix = np.arange(COUNT).reshape(10, 100)
    assert np.array_equal(target.array.view(np.uint64).reshape(100, 10), matrix.T)

    rows["length"][500] = 1 << 20  # nothing of a wrong batch is sent
    try:
        a.post(rows, remote=[target])
        raise SystemExit("a row past the end of its region was posted")
    except gda.GdaError as error:
        print(error)
print("posting from the CPU: ok")
