# SPDX-License-Identifier: Apache-2.0
"""What posting from the CPU costs, side by side in one process: a C loop, pyverbs where it is installed, and gda.

    PYTHONPATH=. /usr/bin/python3 tests/verbs/post_bench.py [--rounds N] [--json]

Run by the system's Python, for which Debian's python3-pyverbs is built; any other that has gda works, without the
rows of pyverbs. 8-byte RDMA WRITEs on one queue pair of the software NIC, which does not run while requests are
posted; the last of each round is signaled and waited for, untimed. The ways take turns, and of each the best round
counts. Run by test_pyverbs.py, and by whoever fills docs/figures.md.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from gda import _verbs, attach  # noqa: E402

software = attach.software_nic()

from connected import Pair, make_pair  # noqa: E402

import gda.nic  # noqa: E402
from gda.nic import interop  # noqa: E402
from gda.nic.batch import WORK_REQUEST, as_bytes  # noqa: E402

WRITE = _verbs.IBV_WR_RDMA_WRITE
SINGLE, BATCH = 500, 1000  # requests per wait


def c_loop(directory: str) -> ctypes.CDLL:
    """The C program, built for this machine."""
    library = Path(directory) / "post_loop.so"
    subprocess.run(
        ["cc", "-O2", "-shared", "-fPIC", str(HERE / "post_loop.c"), "-o", str(library), "-libverbs"], check=True
    )
    loaded = ctypes.CDLL(str(library))
    for call in (loaded.post_prepared, loaded.post_built, loaded.post_chained):
        call.restype = ctypes.c_double
        call.argtypes = [
            ctypes.c_void_p,
            ctypes.c_uint64,
            ctypes.c_uint32,
            ctypes.c_uint64,
            ctypes.c_uint32,
            ctypes.c_int,
        ]
    return loaded


def timed(post: Callable[[], object], count: int) -> float:
    start = time.perf_counter_ns()
    post()
    return (time.perf_counter_ns() - start) / count


def our_ways(pair: Pair) -> dict[str, Callable[[], float]]:
    qp, here, there = pair.a, pair.source_mr, pair.target_mr
    addr, lkey, remote, rkey = here.addr, here.lkey, there.addr, there.rkey
    prepared = _verbs.SendWR(opcode=WRITE, sg_list=[(addr, 8, lkey)], remote_addr=remote, rkey=rkey)
    rows = np.zeros(BATCH, WORK_REQUEST)
    rows["local_addr"] = addr + 8 * np.arange(BATCH)
    rows["remote_addr"] = remote + 8 * np.arange(BATCH)
    rows["length"], rows["lkey"], rows["rkey"] = 8, lkey, rkey
    memory = _verbs.Regions([here], [there])
    built = _verbs.SendBatch(qp, as_bytes(rows), memory)

    def post_prepared() -> None:
        post = _verbs.ibv_post_send
        for _ in range(SINGLE):
            post(qp, prepared)

    def post_object() -> None:
        post, make = _verbs.ibv_post_send, _verbs.SendWR
        for _ in range(SINGLE):
            post(qp, make(opcode=WRITE, sg_list=[(addr, 8, lkey)], remote_addr=remote, rkey=rkey))

    def post_call() -> None:
        post = _verbs.post_send
        for _ in range(SINGLE):
            post(qp, WRITE, addr, 8, lkey, remote, rkey)

    return {
        "prepared: gda, ibv_post_send": lambda: timed(post_prepared, SINGLE),
        "built: gda, SendWR and ibv_post_send": lambda: timed(post_object, SINGLE),
        "built: gda, post_send": lambda: timed(post_call, SINGLE),
        "batch: gda, post_rows, rows checked each time": lambda: timed(
            lambda: _verbs.post_rows(qp, as_bytes(rows), memory), BATCH
        ),
        "batch: gda, post_batch, checked once": lambda: timed(lambda: _verbs.post_batch(built), BATCH),
    }


def user_ways() -> dict[str, Callable[[], float]]:
    """The same through gda.HostQueuePair, whose checks are always on."""
    nic = gda.nic.open()
    a, b = nic.host_queue_pair(depth=2 * BATCH), nic.host_queue_pair()
    gda.nic.connect(a, b)
    source, target = nic.allocate(65536), nic.allocate(65536)
    rows = np.zeros(BATCH, WORK_REQUEST)
    rows["local_addr"] = source.address + 8 * np.arange(BATCH)
    rows["remote_addr"] = target.address + 8 * np.arange(BATCH)
    rows["length"], rows["lkey"], rows["rkey"] = 8, source.lkey, target.rkey
    there = [target.remote]
    batch = a.prepare(rows, remote=there)

    def puts() -> None:
        put = a.put
        for _ in range(SINGLE):
            put(target, 0, source, 0, 8, signaled=False)

    def waited(post: Callable[[], None], count: int, alive: object = (nic, b)) -> float:
        result = timed(post, count)
        a.put(target, 0, source, 0, 8)
        wait(a.raw)
        return result

    return {
        "built: gda, HostQueuePair.put": lambda: waited(puts, SINGLE),
        "batch: gda, HostQueuePair.post(rows)": lambda: waited(lambda: a.post(rows, remote=there), BATCH),
        "batch: gda, HostQueuePair.post(prepared)": lambda: waited(lambda: a.post(batch), BATCH),
    }


def their_ways(pair: Pair) -> dict[str, Callable[[], float]]:
    """pyverbs on a queue pair of its own, whose twin is wrapped by ours for connecting and waiting."""
    try:
        from pyverbs.wr import SGE, SendWR
    except ImportError:
        return {}
    import pyverbs_cases as cases

    context = cases.Context(name=cases.NAME)
    pd = cases.PD(context)
    cqs = [cases.CQ(context, 64) for _ in range(2)]
    cap = cases.QPCap(max_send_wr=2 * BATCH)
    qps = [
        cases.QP(pd, cases.QPInitAttr(qp_type=cases.IBV_QPT_RC, scq=cq, rcq=cq, cap=cap, sq_sig_all=0)) for cq in cqs
    ]
    mr = cases.MR(pd, 4096, cases.RIGHTS)
    ours = [interop.from_pyverbs(qp) for qp in qps]
    cases.connect(ours[0], ours[1].qp_num, pair.gid)
    cases.connect(ours[1], ours[0].qp_num, pair.gid)
    qp = qps[0]
    prepared = SendWR(num_sge=1, sg=[SGE(mr.buf, 8, mr.lkey)], opcode=WRITE, send_flags=0)
    prepared.set_wr_rdma(mr.rkey, mr.buf + 64)
    last = _verbs.SendWR(
        opcode=WRITE, sg_list=[(mr.buf, 8, mr.lkey)], remote_addr=mr.buf + 64, rkey=mr.rkey,
        send_flags=_verbs.IBV_SEND_SIGNALED,
    )  # fmt: skip
    addr, lkey, remote, rkey = mr.buf, mr.lkey, mr.buf + 64, mr.rkey

    def post_prepared() -> None:
        post = qp.post_send
        for _ in range(SINGLE):
            post(prepared)

    def post_built() -> None:
        for _ in range(SINGLE):
            wr = SendWR(num_sge=1, sg=[SGE(addr, 8, lkey)], opcode=WRITE, send_flags=0)
            wr.set_wr_rdma(rkey, remote)
            qp.post_send(wr)

    def waited(post: Callable[[], None], alive: object = (context, pd, cqs, qps, mr)) -> float:
        result = timed(post, SINGLE)
        _verbs.ibv_post_send(ours[0], last)
        wait(ours[0])
        return result

    return {
        "prepared: pyverbs": lambda: waited(post_prepared),
        "built: pyverbs": lambda: waited(post_built),
    }


def wait(qp: _verbs.QP) -> None:
    """Run the NIC until the signaled request is complete."""
    end = time.monotonic() + 30
    while not (done := _verbs.ibv_poll_cq(qp.send_cq, 1)):
        assert time.monotonic() < end, software.report()
        software.step()
    assert done[0].status == 0, done


def measure(rounds: int) -> dict[str, float]:
    """Nanoseconds per request of each way: the best round."""
    context = _verbs.mlx5dv_open_device(_verbs.ibv_get_device_list()[0].name, _verbs.MLX5DV_CONTEXT_FLAGS_DEVX)
    pd = _verbs.ibv_alloc_pd(context)
    cqs = [_verbs.ibv_create_cq(context, 64) for _ in range(2)]
    pair = make_pair(context, pd, _verbs.IBV_QPT_RC, cqs, max_send_wr=2 * BATCH, max_send_sge=1, max_inline_data=0)
    last = _verbs.SendWR(
        opcode=WRITE, sg_list=pair.piece(8), send_flags=_verbs.IBV_SEND_SIGNALED, **pair.there()
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as directory:
        c = c_loop(directory)
        # The C loop posts behind gda's back, on a queue pair of its own.
        other = make_pair(context, pd, _verbs.IBV_QPT_RC, cqs, max_send_wr=2 * BATCH, max_send_sge=1, max_inline_data=0)
        given = other.a.c_pointer, pair.source_mr.addr, pair.source_mr.lkey, pair.target_mr.addr, pair.target_mr.rkey
        software.set_thread("off")
        ways: dict[str, tuple[_verbs.QP | None, Callable[[], float]]] = {
            "prepared: C, ibv_post_send": (other.a, lambda: c.post_prepared(*given, SINGLE)),
            "built: C, ibv_post_send": (other.a, lambda: c.post_built(*given, SINGLE)),
            "batch: C, ibv_post_send, one by one": (other.a, lambda: c.post_built(*given, BATCH)),
            "batch: C, ibv_post_send, chains of 32": (other.a, lambda: c.post_chained(*given, BATCH)),
        }
        ways |= {name: (None, way) for name, way in their_ways(pair).items()}
        ways |= {name: (pair.a, way) for name, way in our_ways(pair).items()}
        ways |= {name: (None, way) for name, way in user_ways().items()}
        best = dict.fromkeys(ways, float("inf"))
        for _ in range(rounds):
            for name, (qp, way) in ways.items():
                took = way()
                assert took > 0, f"{name}: refused"
                best[name] = min(best[name], took)
                if qp is not None:
                    _verbs.ibv_post_send(qp, last)
                    wait(qp)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    best = measure(options.rounds)
    if options.json:
        print(json.dumps(best))
        return
    for name, nanoseconds in sorted(best.items(), key=lambda item: (item[0].split(":")[0] != "prepared", item[0])):
        print(f"{nanoseconds:9.1f} ns  {name}")


if __name__ == "__main__":
    main()
