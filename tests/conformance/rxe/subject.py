# SPDX-License-Identifier: Apache-2.0
"""An RDMA program that does what it is told: makes queue pairs, posts, reports. Run by Debian's Python and pyverbs.

The same file runs in a guest on the kernel's soft-RoCE and on the host on the software NIC; neither imports anything of
this project. Orders come as files `ask-N` in a directory that the teller shares (remote.py), each a JSON list of
[function, arguments]; the results go to `answer-N`. Started as: subject.py DIRECTORY.
"""

import ctypes
import ipaddress
import json
import os
import random
import re
import subprocess
import sys
import time
import traceback
from pathlib import Path

import pyverbs.enums as e
from pyverbs.addr import AH, GID, AHAttr, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context, get_device_list
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

QUEUE = 64
QKEY = 0x11111111


HELLO_LIMIT_S = 30  # for the kernel to enter an address into the table of GIDs


def gid_of(address):
    """GID of an IPv4 or IPv6 address, in the form that pyverbs takes."""
    digits = ipaddress.IPv6Address(address if ":" in address else f"::ffff:{address}").packed.hex()
    return ":".join(digits[i : i + 4] for i in range(0, 32, 4))


def pattern(seed, size):
    return random.Random(seed).randbytes(size)


class Subject:
    def __init__(self):
        self.context = Context(name=get_device_list()[0].name.decode())
        self.pd = PD(self.context)
        self.pairs = {}

    def hello(self, addresses):
        """Find the RoCE v2 entries of these addresses in the table of GIDs; say what the port is."""
        port, deadline, self.indices = self.context.query_port(1), time.monotonic() + HELLO_LIMIT_S, {}
        wanted = {gid_of(address): address for address in addresses}
        while len(self.indices) < len(wanted):
            assert time.monotonic() < deadline, f"of {addresses} only {self.indices} have a GID"
            for entry in self.context.query_gid_table(port.gid_tbl_len):
                gid = str(self.context.query_gid(1, entry.gid_index))
                if entry.gid_type == e.IBV_GID_TYPE_ROCE_V2 and gid in wanted:
                    self.indices[":" in wanted[gid]] = entry.gid_index  # whether it is IPv6: one of each at most
        return {"device": self.context.name, "mtu": 128 << port.active_mtu}

    def make(self, name, **words):
        """A region and a queue pair in INIT; returns its number and the region."""
        self.pairs[name] = Pair(self, **words)
        return self.place(name)

    def place(self, name):
        return self.pairs[name].place()

    def connect(self, name, **words):
        self.pairs[name].connect(**words)

    def forget(self, name):
        self.pairs.pop(name).close()

    def receive(self, name, **words):
        self.pairs[name].receive(**words)

    def post(self, name, **words):
        self.pairs[name].post(**words)

    def look(self, name):
        return self.pairs[name].look()

    def wait(self, name, count, seconds):
        return self.pairs[name].wait(count, seconds)

    def run(self, command):
        return subprocess.run(command, shell=True, check=True, stdout=subprocess.PIPE, text=True).stdout

    def fill(self, name, offset, size, seed):
        """A pattern; zeros around it."""
        pair = self.pairs[name]
        data = bytes(offset) + pattern(seed, size)
        pair.region.write(data.ljust(pair.size, b"\0"), pair.size, 0)

    def clear(self, name):
        pair = self.pairs[name]
        pair.region.write(bytes(pair.size), pair.size, 0)

    def check(self, name, offset, size, seed):
        """Position of the first byte that is not as fill() makes it, -1 if all are; -2 if what follows changed."""
        data = self.content(name)
        wanted = pattern(seed, size)
        if data[offset : offset + size] != wanted:
            return next(i for i in range(size) if data[offset + i] != wanted[i])
        behind = data[offset + size :]
        return -1 if behind == bytes(len(behind)) else -2

    def content(self, name):
        return bytes(self.pairs[name].region.read(self.pairs[name].size, 0))

    def peek(self, name, offset, size):
        return self.content(name)[offset : offset + size].hex()

    def sources(self, name, seed, slot, places):
        """Which slots of a region that fill() filled stand at these [offset, size]; -1 for none."""
        data, sent = self.content(name), pattern(seed, self.pairs[name].size)
        slots = range(0, len(sent), slot)
        return [
            next((at // slot for at in slots if sent[at : at + size] == data[offset : offset + size]), -1)
            for offset, size in places
        ]

    def packets(self, name, seed, slot, sizes, mtu):
        """For the message in each slot a letter a packet: = as fill() makes it, 0 nothing came, ! anything else."""
        data, sent, found = self.content(name), pattern(seed, self.pairs[name].size), []
        for number, size in enumerate(sizes):
            begin, letters = number * slot, ""
            for at in range(begin, begin + size, mtu):
                end = min(at + mtu, begin + size)
                letters += "=" if data[at:end] == sent[at:end] else "!" if any(data[at:end]) else "0"
            found.append(letters)
        return found

    def word(self, name, offset, value=None):
        """Read, or write, eight bytes in the order of the machine."""
        pair = self.pairs[name]
        if value is not None:
            pair.region.write(value.to_bytes(8, sys.byteorder), 8, offset)
        return int.from_bytes(bytes(pair.region.read(8, offset)), sys.byteorder)


class Pair:
    def __init__(self, subject, size=16384, rights=None, qp_rights=None, service="RC"):
        remote = e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_ATOMIC
        every = e.IBV_ACCESS_LOCAL_WRITE | remote
        self.subject, self.size, self.service, self.route = subject, size, service, None
        self.region = MR(subject.pd, size, every if rights is None else rights)
        ctypes.memset(self.region.buf, 0, size)
        self.completions = CQ(subject.context, 4 * QUEUE)
        kind, cq = getattr(e, f"IBV_QPT_{service}"), self.completions
        init = QPInitAttr(qp_type=kind, scq=cq, rcq=cq, cap=QPCap(QUEUE, QUEUE, 2, 2), sq_sig_all=1)
        attributes = QPAttr(port_num=1)
        attributes.qp_access_flags = every if qp_rights is None else qp_rights
        self.qp = QP(subject.pd, init)
        attributes.qkey = QKEY
        self.attributes = attributes
        self.qp.to_init(attributes)

    def place(self):
        return {"qpn": self.qp.qp_num, "va": self.region.buf, "rkey": self.region.rkey, "lkey": self.region.lkey}

    def connect(
        self, *, address, qpn, rq_psn, sq_psn, mtu, rnr_timer=12, timeout=18, retries=7, rnr_retries=7, reads=4
    ):
        a = self.attributes
        route = GlobalRoute(dgid=GID(gid_of(address)), sgid_index=self.subject.indices[":" in address])
        a.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
        if self.service == "UD":
            self.route = AH(self.subject.pd, attr=a.ah_attr), qpn, QKEY
        a.dest_qp_num, a.path_mtu, a.rq_psn, a.sq_psn = qpn, mtu.bit_length() - 8, rq_psn, sq_psn
        a.min_rnr_timer, a.timeout, a.retry_cnt, a.rnr_retry = rnr_timer, timeout, retries, rnr_retries
        a.max_dest_rd_atomic = a.max_rd_atomic = reads
        self.qp.to_rtr(a)
        self.qp.to_rts(a)

    def receive(self, size, offset=8192, number=1000):
        pieces = [SGE(self.region.buf + offset, size, self.region.lkey)]
        self.qp.post_recv(RecvWR(wr_id=number, num_sge=len(pieces), sg=pieces))

    def post(self, *, opcode, size=0, offset=0, va=0, rkey=0, imm=0, compare_add=0, swap=0, flags=0, number=0):
        pieces = [SGE(self.region.buf + offset, size, self.region.lkey)]
        kind = getattr(e, f"IBV_WR_{opcode}")
        wr = SendWR(
            wr_id=number, num_sge=len(pieces), sg=pieces, opcode=kind,
            send_flags=e.IBV_SEND_SIGNALED | flags, imm_data=imm,
        )  # fmt: skip
        if opcode.startswith("ATOMIC"):
            wr.set_wr_atomic(rkey, va, compare_add, swap)
        elif opcode.startswith("RDMA"):
            wr.set_wr_rdma(rkey, va)
        elif self.route:
            wr.set_wr_ud(*self.route)
        self.qp.post_send(wr)

    def read_completions(self):
        found = []
        for c in self.completions.poll(QUEUE)[1]:
            # Of a completion with an error only these two are defined.
            more = {} if c.status else {"opcode": c.opcode, "bytes": c.byte_len}
            if more and c.wc_flags & e.IBV_WC_WITH_IMM:
                more["imm"] = c.imm_data
            found.append({"wr_id": c.wr_id, "status": c.status, **more})
        return found

    def wait(self, count, seconds):
        end, found = time.monotonic() + seconds, []
        while len(found) < count and time.monotonic() < end:
            found += self.read_completions()
        return found

    def look(self):
        """New completions, the queue pair's state, and [offset, hex] of everything in the region that is not zero."""
        data = bytes(self.region.read(self.size, 0))
        changed = [[found.start(), found[0].hex()] for found in re.finditer(rb"[^\0]+", data)]
        state = self.qp.query(e.IBV_QP_STATE)[0].qp_state
        return {"completions": self.read_completions(), "state": state, "memory": changed}

    def close(self):
        self.qp.close()
        self.completions.close()
        self.region.close()


def answer(subject, orders):
    results = []
    for function, words in orders:
        try:
            results.append(["ok", getattr(subject, function)(**words)])
        except Exception:
            results.append(["error", traceback.format_exc()])
    return results


def main(directory):
    number, subject = 0, Subject()
    while True:
        ask, draft, waiting = directory / f"ask-{number}", directory / "unfinished", 0.0
        while not ask.exists():
            waiting = min(waiting + 0.00002, 0.002)
            time.sleep(waiting)
        orders = json.loads(ask.read_text())
        draft.write_text(json.dumps(answer(subject, orders)))
        draft.rename(directory / f"answer-{number}")
        if not orders:  # an empty list ends it; not through Python's end, which takes pyverbs' objects down in no order
            os._exit(0)
        number += 1


if __name__ == "__main__":
    main(Path(sys.argv[1]))
