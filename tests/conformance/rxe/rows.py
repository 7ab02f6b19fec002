# SPDX-License-Identifier: Apache-2.0
"""The table of questions: packets that a queue pair gets, right and wrong ones, and what the specification answers.

Each row runs on a new RC queue pair (bench.py): path MTU 256, PSN 0x1000 expected, 0x2000 sent first, a region of 16
KiB of zeros with every right, no receive posted, four outstanding READs, acknowledge timer off. `spec` is from the
InfiniBand Architecture Specification, volume 1, "Transport Layer", sections on the responder's and the requester's
behaviour; the kernel's answers stand in answers.txt.
"""

from __future__ import annotations

from typing import Any

from .bench import MTU, Hear, Row, Send, Tell

SILENCE, ACK, DATA, ORIGINAL, REQUEST = "silence", "ACK", "data", "original", "request"
SEQUENCE, INVALID, ACCESS = "NAK sequence", "NAK invalid request", "NAK remote access"
RNR = "RNR NAK"
READ_RIGHT, WRITE_RIGHT, ATOMIC_RIGHT, LOCAL = 4, 2, 8, 1  # enum ibv_access_flags
SIZE = 16384
FIVE = b"\x11\x22\x33\x44\x55"
FULL = bytes(range(1, 256)) + b"\xff"  # one path MTU
assert len(FULL) == MTU

WRITE, READ, SEND = "RDMA_WRITE_ONLY", "RDMA_READ_REQUEST", "SEND_ONLY"


def write(psn: int = 0, data: bytes = FIVE, **more: Any) -> Send:
    return Send(WRITE, psn, data, **more)


def read(psn: int = 0, length: int = 5, **more: Any) -> Send:
    return Send(READ, psn, length=length, **more)


def first(length: int, psn: int = 0, **more: Any) -> Send:
    return Send("RDMA_WRITE_FIRST", psn, FULL, length=length, **more)


def middle(psn: int) -> Send:
    return Send("RDMA_WRITE_MIDDLE", psn, FULL)


def last(psn: int, **more: Any) -> Send:
    return Send("RDMA_WRITE_LAST", psn, FIVE, **more)


def send(psn: int = 0, **more: Any) -> Send:
    return Send(SEND, psn, FIVE, **more)


def send_first(**more: Any) -> Send:
    return Send("SEND_FIRST", 0, FULL, **more)


def send_middle(psn: int) -> Send:
    return Send("SEND_MIDDLE", psn, FULL)


def send_last(psn: int) -> Send:
    return Send("SEND_LAST", psn, FIVE)


def add(psn: int, value: int, **more: Any) -> Send:
    return Send("FETCH_ADD", psn, add=value, **more)


def swap(compare: int, value: int, **more: Any) -> Send:
    return Send("COMPARE_SWAP", 0, compare=compare, add=value, **more)


def one(name: str, spec: str, *steps: Send | Hear | Tell, **more: Any) -> Row:
    return Row(name, spec, steps, **more)


def truncated(frame: bytes) -> bytes:
    return frame[: 14 + 20 + 8 + 10]


def shorter_udp(frame: bytes) -> bytes:
    return frame[:38] + (20).to_bytes(2, "big") + frame[40:]


def without_icrc(frame: bytes) -> bytes:
    return frame[:-4] + bytes(4)


def rights(flags: int) -> dict[str, Any]:
    return {"pair": {"rights": flags}}


def qp_rights(flags: int) -> dict[str, Any]:
    return {"pair": {"qp_rights": flags}}


RESPONDER = [
    # What is right.
    one("write", ACK, write()),
    one("write of zero bytes with no key", ACK, write(data=b"", rkey=0)),
    one("write of three packets", ACK, first(517, ack=0), Send("RDMA_WRITE_MIDDLE", 1, FULL, ack=0), last(2)),
    one("write with immediate", ACK, Send("RDMA_WRITE_ONLY_WITH_IMMEDIATE", 0, FIVE), receives=(0,)),
    one(
        "write of two packets with immediate",
        ACK,
        first(261),
        Send("RDMA_WRITE_LAST_WITH_IMMEDIATE", 1, FIVE),
        receives=(64,),
    ),
    one("write of zero bytes with immediate", ACK, Send("RDMA_WRITE_ONLY_WITH_IMMEDIATE", 0, rkey=0), receives=(0,)),
    one("send", ACK, send(0), receives=(64,)),
    one("send of zero bytes", ACK, Send(SEND), receives=(64,)),
    one("send with immediate", ACK, Send("SEND_ONLY_WITH_IMMEDIATE", 0, FIVE), receives=(64,)),
    one("send of three packets", ACK, send_first(), send_middle(1), send_last(2), receives=(600,)),
    one(
        "send of two packets with immediate",
        ACK,
        send_first(),
        Send("SEND_LAST_WITH_IMMEDIATE", 1, FIVE),
        receives=(600,),
    ),
    one("send with a solicited event", ACK, send(0, bth={"se": 1}), receives=(64,)),
    one("send that fills its receive exactly", ACK, send(0), receives=(5,)),
    one("read", DATA, write(ack=0), read(1)),
    one("read of zero bytes with no key", DATA, read(length=0, rkey=0)),
    one("read of three packets", DATA, write(data=FULL, ack=0), read(1, length=600)),
    one("read of exactly two packets", DATA, read(length=512)),
    one("four reads at once where four are allowed", DATA, *(read(i, wait=i == 3) for i in range(4))),
    one("fetch and add", ORIGINAL, write(data=FIVE, ack=0), add(1, 0x0101)),
    one("compare and swap that swaps", ORIGINAL, swap(0, 0x0123456789ABCDEF)),
    one("compare and swap that does not", ORIGINAL, swap(1, 0x0123456789ABCDEF)),
    one("fetch and add that overflows", ORIGINAL, add(0, (1 << 64) - 1), add(1, 2)),
    # When an acknowledgement is asked for.
    one("write without a request for ACK", SILENCE, write(ack=0)),
    one("one ACK for three writes", ACK, write(0, ack=0), write(1, va=16, ack=0), write(2, va=32)),
    one("read without a request for ACK", DATA, read(ack=0)),
    one("atomic without a request for ACK", ORIGINAL, add(0, 1, ack=0)),
    one("first packet asks for ACK, the last does not", ACK, first(261), last(1, ack=0)),
    # Order.
    one("gap", SEQUENCE, write(1)),
    one("gap without a request for ACK", SEQUENCE, write(1, ack=0)),
    one("gap, and another", SEQUENCE, write(1), write(2)),
    one("gap, then what was missing", SEQUENCE, write(1), write(0, va=16)),
    one("gap, what was missing, another gap", SEQUENCE, write(1), write(0), write(2)),
    one("gap before a read", SEQUENCE, read(3)),
    one("write again", ACK, write(), write()),
    one("write again does not write", ACK, write(), write(0, data=b"\x99" * 5)),
    one("write again without a request for ACK", ACK, write(), write(ack=0)),
    one("older of two writes again", ACK, write(0), write(1, va=16), write(0)),
    one("send again takes no second receive", ACK, send(0), send(0), receives=(64, 64)),
    one("read again", DATA, write(data=FIVE, ack=0), read(1), read(1)),
    one("read again from its second packet", DATA, read(length=600), read(1, length=344, va=256)),
    one("read again, and it reads anew", DATA, read(0), write(1, ack=0), read(0)),
    one("fetch and add again adds once", ORIGINAL, add(0, 7), add(0, 7)),
    one("compare and swap again", ORIGINAL, swap(0, 5), swap(0, 5)),
    one("older of two atomics again", ORIGINAL, add(0, 7), add(1, 7), add(0, 7)),
    one("atomic again after more than four others", ORIGINAL, *(add(i, 1) for i in range(6)), add(0, 1)),
    one("atomic at the PSN of a write", ACK, write(), add(0, 1)),
    one("PSN just inside the half that is old", ACK, write(-(1 << 23) + 4)),
    one("PSN at the far end of what is new", SEQUENCE, write((1 << 23) - 1)),
    one("PSN 2^23 ahead", ACK, write(1 << 23)),
    one("PSN before the first", ACK, write(-1)),
    one("read before the first PSN", SILENCE, read(-1)),
    one("write across the PSN's wrap", ACK, first(517), middle(1), last(2), path={"rq_psn": 0xFFFFFF}),
    one("read across the PSN's wrap", DATA, read(length=600), write(3), path={"rq_psn": 0xFFFFFE}),
    one("gap across the PSN's wrap", SEQUENCE, write(2), path={"rq_psn": 0xFFFFFF}),
    one("duplicate across the PSN's wrap", ACK, write(0), write(1, va=16), write(0), path={"rq_psn": 0xFFFFFF}),
    one("read takes as many PSNs as packets", DATA, read(length=513), write(3), write(5)),
    # Receiver not ready.
    one("send without a receive", RNR, send(0)),
    one("send without a receive, timer 0", RNR, send(0), path={"rnr_timer": 0}),
    one("send without a receive, timer 31", RNR, send(0), path={"rnr_timer": 31}),
    one("send without a receive or a request for ACK", RNR, send(0, ack=0)),
    one("write with immediate without a receive", RNR, Send("RDMA_WRITE_ONLY_WITH_IMMEDIATE", 0, FIVE)),
    one(
        "write of two packets with immediate without a receive",
        ACK,
        first(261),
        Send("RDMA_WRITE_LAST_WITH_IMMEDIATE", 1, FIVE),
    ),
    one("send without a receive, then with one", RNR, send(0), Tell("receive", {"size": 64}), send(0)),
    one("what follows a send without a receive", RNR, send(0), write(1)),
    one("send of two packets without a receive", RNR, send_first(), send_last(1)),
    one("second send without a receive", ACK, send(0), send(1), receives=(64,)),
    # Keys, bounds and rights.
    one("write with another key", ACCESS, write(rkey=0x12345678)),
    one("write with another key without a request for ACK", ACCESS, write(rkey=0x12345678, ack=0)),
    one("write with the key's low byte changed", ACCESS, write(rkey_xor=1)),
    one("write with key 0", ACCESS, write(rkey=0)),
    one("write past the region", ACCESS, write(va=SIZE)),
    one("write across the region's end", ACCESS, write(va=SIZE - 4)),
    one("write up to the region's end", ACK, write(va=SIZE - 5)),
    one("write before the region", ACCESS, write(va=-1)),
    one("write at the end of all addresses", ACCESS, write(va=-(1 << 63))),
    one("write of three packets past the region", ACCESS, first(517, va=SIZE - 512), middle(1), last(2)),
    one("write to a region without that right", ACCESS, write(), **rights(LOCAL | READ_RIGHT | ATOMIC_RIGHT)),
    one("write to a queue pair without that right", INVALID, write(), **qp_rights(READ_RIGHT | ATOMIC_RIGHT)),
    one("read from a region without that right", ACCESS, read(), **rights(LOCAL | WRITE_RIGHT)),
    one("read from a queue pair without that right", INVALID, read(), **qp_rights(WRITE_RIGHT)),
    one("atomic on a region without that right", ACCESS, add(0, 1), **rights(LOCAL | WRITE_RIGHT | READ_RIGHT)),
    one("atomic on a queue pair without that right", INVALID, add(0, 1), **qp_rights(WRITE_RIGHT | READ_RIGHT)),
    one("send needs no right", ACK, send(0), receives=(64,), pair={"rights": LOCAL, "qp_rights": 0}),
    one("read with another key", ACCESS, read(rkey=0x12345678)),
    one("read past the region", ACCESS, read(length=SIZE + 1)),
    one("read of the whole region", DATA, read(length=SIZE, va=0)),
    one("read of 2^31 bytes and one", INVALID, read(length=(1 << 31) + 1)),
    one("atomic with another key", ACCESS, add(0, 1, rkey=0x12345678)),
    one("atomic past the region", ACCESS, add(0, 1, va=SIZE)),
    one("atomic not aligned", INVALID, add(0, 1, va=4)),
    one("atomic not aligned, with another key", INVALID, add(0, 1, va=4, rkey=0x12345678)),
    one("compare and swap not aligned", INVALID, swap(0, 1, va=1)),
    one("write after a NAK", ACCESS, write(rkey=0x12345678), write(0), write(1)),
    one("receive is flushed after a NAK", ACCESS, write(rkey=0x12345678), receives=(64,)),
    # Lengths.
    one("write of more than the path MTU", INVALID, write(data=FULL + b"\1")),
    one("write of less than announced", INVALID, write(length=6)),
    one("write of more than announced", INVALID, write(length=4)),
    one("write whose first packet is short", INVALID, Send("RDMA_WRITE_FIRST", 0, FULL[:-4], length=517)),
    one("write whose first packet is long", INVALID, Send("RDMA_WRITE_FIRST", 0, FULL + FULL[:4], length=517)),
    one("write whose middle packet is short", INVALID, first(517, ack=0), Send("RDMA_WRITE_MIDDLE", 1, FULL[:-4])),
    one("write whose last packet is empty", INVALID, first(256, ack=0), Send("RDMA_WRITE_LAST", 1)),
    one("write whose last packet is too long", INVALID, first(257, ack=0), last(1)),
    one("write whose last packet is too short", INVALID, first(300, ack=0), last(1)),
    one("write that goes on after its length", INVALID, first(260, ack=0), middle(1)),
    one("send of more than the path MTU", INVALID, Send(SEND, 0, FULL + b"\1"), receives=(600,)),
    one("send whose first packet is short", INVALID, Send("SEND_FIRST", 0, FIVE), receives=(600,)),
    one("send whose middle packet is short", INVALID, send_first(ack=0), Send("SEND_MIDDLE", 1, FIVE), receives=(600,)),
    one("send whose last packet is empty", INVALID, send_first(ack=0), Send("SEND_LAST", 1), receives=(600,)),
    one("send longer than the receive", INVALID, send(0), receives=(4,)),
    one("send whose second packet is too much", INVALID, send_first(ack=0), send_last(1), receives=(258,)),
    one("read with payload", INVALID, Send(READ, 0, FIVE, length=5)),
    # Opcodes.
    one("middle without first", INVALID, middle(0)),
    one("last without first", INVALID, last(0)),
    one("send: middle without first", INVALID, send_middle(0), receives=(600,)),
    one("send: last without first", INVALID, send_last(0), receives=(600,)),
    one("first, then only", INVALID, first(517, ack=0), write(1)),
    one("first, then first", INVALID, first(517, ack=0), first(517, psn=1)),
    one("first, then read", INVALID, first(517, ack=0), read(1)),
    one("first of a write, then middle of a send", INVALID, first(517, ack=0), send_middle(1), receives=(600,)),
    one("first of a send, then last of a write", INVALID, send_first(ack=0), last(1), receives=(600,)),
    *(
        one(f"opcode {opcode:#04x}, which nobody defines", SILENCE, Send(opcode, 0, FIVE))
        for opcode in (0x15, 0x18, 0x1B, 0x1F)
    ),
    one("opcode of UC", SILENCE, Send(0x24, 0, FIVE), receives=(64,)),
    one("opcode of UD", SILENCE, Send(0x64, 0, FIVE), receives=(64,)),
    one("opcode of RD", SILENCE, Send(0x44, 0, FIVE), receives=(64,)),
    one("opcode of a manufacturer", SILENCE, Send(0xC0, 0, FIVE), receives=(64,)),
    # BTH, and what lies below it.
    one("ICRC wrong", SILENCE, write(frame={"icrc_xor": 1})),
    one("ICRC absent", SILENCE, write(mangle=without_icrc)),
    one("UDP checksum right", ACK, write(frame={"udp_checksum": None})),
    one("UDP checksum wrong", SILENCE, write(frame={"udp_checksum": 0x1234})),
    one("partition key of somebody else", SILENCE, write(bth={"pkey": 0x1234})),
    one("partition key of a limited member", ACK, write(bth={"pkey": 0x7FFF})),
    one("transport version 1", SILENCE, write(bth={"tver": 1})),
    one("migration bit", ACK, write(bth={"mig_req": 1})),
    one("congestion bits", ACK, write(frame={"resv8a": 0xC0})),
    one("reserved byte", ACK, write(frame={"resv8a": 0x3F})),
    one("pad bytes not zero", ACK, write(frame={"pad_bytes": b"\xee\xee\xee"})),
    one("more pad bytes than needed", INVALID, write(data=FIVE + b"\0\0\0", length=5, bth={"pad_count": 3})),
    one("queue pair that nobody has", SILENCE, write(bth={"dest_qp": 0xABCDEF})),
    one("from another address", SILENCE, write(ends={"source": "10.77.0.77"})),
    one("from another UDP port", ACK, write(ends={"port": 50000})),
    one("from RoCE's own UDP port", ACK, write(ends={"port": 4791})),
    one("from another MAC address", ACK, write(ends={"source_mac": b"\x52\x54\0\0\0\x77"})),
    one(
        "type of service, hops and identification", ACK, write(frame={"tos": 0x1B, "ttl": 1, "identification": 0x1234})
    ),
    one("fragmentation allowed", ACK, write(frame={"flags_fragment": 0})),
    one("padding of the Ethernet frame", ACK, write(frame={"trailing": bytes(18)})),
    one("frame that ends inside BTH", SILENCE, write(mangle=truncated)),
    one("UDP length that ends inside BTH", SILENCE, write(mangle=shorter_udp)),
    # States.
    one("queue pair in INIT", SILENCE, write(), path=None),
]


def post(opcode: str, size: int = 5, **words: Any) -> Tell:
    return Tell("post", {"opcode": opcode, "size": size, "va": 0x1000, "rkey": 0x1234, **words})


def ack(psn: int = 0, syndrome: int = 0x1F, msn: int = 1, **more: Any) -> Send:
    return Send("ACKNOWLEDGE", psn, syndrome=syndrome, msn=msn, answer=True, ack=0, **more)


def data(kind: str, psn: int, payload: bytes, **more: Any) -> Send:
    return Send(f"RDMA_READ_RESPONSE_{kind}", psn, payload, msn=1, answer=True, ack=0, **more)


TIMED: dict[str, Any] = {"path": {"timeout": 14}}
QUICK = {"timeout": 14, "retries": 1}
W, R, S = "RDMA_WRITE", "RDMA_READ", "SEND"
ONE, TWO = (post(W), Hear(1)), (post(W, number=1), post(W, number=2), Hear(2))  # writes posted, and heard
MANY = (post(W, 600), Hear(3))  # packets of one

REQUESTER = [
    one("posts a write", REQUEST, *ONE, ack()),
    one("posts a write of three packets", REQUEST, *MANY, ack(2)),
    one("posts a write with immediate", REQUEST, post("RDMA_WRITE_WITH_IMM", imm=5), Hear(1), ack()),
    one("posts a send of three packets with immediate", REQUEST, post("SEND_WITH_IMM", 517, imm=5), Hear(3), ack(2)),
    one("posts a send of zero bytes", REQUEST, post(S, 0), Hear(1), ack()),
    one("posts a send of two full packets", REQUEST, post(S, 512), Hear(2), ack(1)),
    one("posts a write across the PSN's wrap", REQUEST, *MANY, ack(2), path={"sq_psn": 0xFFFFFF}),
    one("posts a read", REQUEST, post(R), Hear(1), data("ONLY", 0, FIVE)),
    one(
        "posts a read of three packets",
        REQUEST,
        post(R, 517),
        Hear(1),
        data("FIRST", 0, FULL),
        data("MIDDLE", 1, FULL),
        data("LAST", 2, FIVE),
    ),
    one("posts a read of zero bytes", REQUEST, post(R, 0), Hear(1), data("ONLY", 0, b"")),
    one(
        "posts a fetch and add",
        REQUEST,
        post("ATOMIC_FETCH_AND_ADD", 8, compare_add=1),
        Hear(1),
        Send("ATOMIC_ACKNOWLEDGE", 0, original=0x0102030405060708, msn=1, answer=True, ack=0),
    ),
    one(
        "posts a compare and swap",
        REQUEST,
        post("ATOMIC_CMP_AND_SWP", 8, compare_add=1, swap=2),
        Hear(1),
        Send("ATOMIC_ACKNOWLEDGE", 0, original=0, msn=1, answer=True, ack=0),
    ),
    one(
        "one ACK completes three",
        REQUEST,
        post(W, number=1),
        post(W, number=2),
        post(W, number=3),
        Hear(3),
        ack(2, msn=3),
    ),
    one("ACK of the first of two", REQUEST, *TWO, ack(0)),
    one("ACK twice", REQUEST, *TWO, ack(0), ack(0), ack(1, msn=2)),
    one("ACK of what was not sent", REQUEST, *ONE, ack(5)),
    one("ACK of what was sent before the first", REQUEST, *ONE, ack(-1)),
    one("ACK with a wrong ICRC", REQUEST, *ONE, ack(frame={"icrc_xor": 1})),
    one("ACK from another address", REQUEST, *ONE, ack(ends={"source": "10.77.0.77"})),
    one("ACK in the middle of a message", REQUEST, *MANY, ack(1)),
    one("ACK with credits", REQUEST, *ONE, ack(syndrome=0x03)),
    one("nothing asked for", SILENCE, ack()),
    one("no answer: the same again", REQUEST, post(W), Hear(2), ack(), **TIMED),
    one(
        "no answer, ever",
        REQUEST,
        post(W, number=1),
        post(W, number=2),
        Tell("wait", {"count": 2, "seconds": 20}),
        path=QUICK,
    ),
    one("NAK sequence: again from there", REQUEST, *TWO, ack(1, 0x60), Hear(1), ack(1, msn=2)),
    one("NAK sequence inside a message", REQUEST, *MANY, ack(1, 0x60), Hear(2), ack(2)),
    one("NAK sequence at once", REQUEST, *ONE, ack(0, 0x60, 0), Hear(1), ack(0)),
    one("NAK invalid request", REQUEST, *TWO, ack(0, 0x61, 0)),
    one("NAK remote access", REQUEST, *TWO, ack(0, 0x62, 0)),
    one("NAK remote operational", REQUEST, *ONE, ack(0, 0x63, 0)),
    one("NAK of the second completes the first", REQUEST, *TWO, ack(1, 0x62)),
    one("NAK of a read", REQUEST, post(R), Hear(1), ack(0, 0x62, 0)),
    one("NAK with a reserved code", REQUEST, *ONE, ack(0, 0x65, 0)),
    one("reserved syndrome", REQUEST, *ONE, ack(0, 0x40, 0)),
    one("RNR NAK: again later", REQUEST, post(S), Hear(1), ack(0, 0x21, 0), Hear(1), ack(0)),
    one("RNR NAK with no tries left", REQUEST, post(S), Hear(1), ack(0, 0x21, 0), path={"rnr_retries": 0}),
    one(
        "RNR NAK twice with one try",
        REQUEST,
        post(S),
        Hear(1),
        ack(0, 0x21, 0),
        Hear(1),
        ack(0, 0x21, 0),
        path={"rnr_retries": 1},
    ),
    one(
        "RNR NAK of the second",
        REQUEST,
        post(W, number=1),
        post(S, number=2),
        Hear(2),
        ack(1, 0x21),
        Hear(1),
        ack(1, msn=2),
    ),
    one("read answered with too little", REQUEST, post(R, 8), Hear(1), data("ONLY", 0, FIVE)),
    one("read answered with too much", REQUEST, post(R, 4), Hear(1), data("ONLY", 0, FIVE)),
    one("read whose first packet is short", REQUEST, post(R, 517), Hear(1), data("FIRST", 0, FIVE)),
    one("read answered with only where first belongs", REQUEST, post(R, 517), Hear(1), data("ONLY", 0, FULL)),
    one(
        "read with a packet missing",
        REQUEST,
        post(R, 517),
        Hear(1),
        data("FIRST", 0, FULL),
        data("LAST", 2, FIVE),
        Hear(1),
        data("FIRST", 1, FULL),
        data("LAST", 2, FIVE),
        **TIMED,
    ),
    one("read answered twice", REQUEST, post(R), Hear(1), data("ONLY", 0, FIVE), data("ONLY", 0, FIVE)),
    one("read answered by an ACK", REQUEST, post(R), Hear(1), ack(0), data("ONLY", 0, FIVE)),
    one("write answered with data", REQUEST, *ONE, data("ONLY", 0, FIVE)),
    one(
        "answer to a read acknowledges the write before",
        REQUEST,
        post(W, number=1),
        post(R, number=2),
        Hear(2),
        data("ONLY", 1, FIVE),
    ),
    one(
        "ACK of a write after an unanswered read",
        REQUEST,
        post(R, number=1),
        post(W, number=2),
        Hear(2),
        ack(1, msn=2),
        Hear(2),
        data("ONLY", 0, FIVE),
        ack(1, msn=2),
        **TIMED,
    ),
    one(
        "second read waits where one may be outstanding",
        REQUEST,
        post(R, number=1),
        post(R, number=2),
        Hear(1),
        data("ONLY", 0, FIVE),
        Hear(1),
        data("ONLY", 1, FIVE),
        path={"reads": 1},
    ),
]

ROWS = [*RESPONDER, *REQUESTER]
