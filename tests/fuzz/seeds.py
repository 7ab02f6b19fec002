# SPDX-License-Identifier: Apache-2.0
"""Writes corpus/: one input or a few for each fuzz target that reach what random bytes would not.

`python -m tests.fuzz.seeds` writes them again, when a format has changed. Numbers of objects are those that the NIC
gives first in every input (see the targets).
"""

from __future__ import annotations

import struct
from pathlib import Path

from gda import formats

CORPUS = Path(__file__).parent / "corpus"
MEMORY = 0x520000000000  # command.cc
PAGE, PD = 7, 16  # the doorbell page and the protection domain of every input
FIRST = {"umem": 16, "cq": 16, "rmp": 16, "qp": 0x40, "key": 0x1000}
OP = formats.cmd_opcode


def command(name: str, out_bytes: int = 600, **fields: object) -> bytes:
    """Record of a firmware command; a field's dots are written as two underscores."""
    layout = getattr(formats, f"{name}_in")
    data = bytearray(layout.bytes)
    opcode = getattr(OP, f"MLX5_CMD_OP_{name.removeprefix('qp_').upper()}" + ("_QP" if name.startswith("qp_") else ""))
    layout.set(data, "opcode", int(opcode))
    for path, value in fields.items():
        layout.set(data, path.replace("__", "."), value)
    return struct.pack("<BHH", 0, out_bytes, len(data)) + bytes(data)


def store(offset: int, data: bytes) -> bytes:
    """Record of a store into queue memory."""
    return struct.pack("<BHB", 1, offset, len(data)) + data


def doorbell(offset: int, value: bytes) -> bytes:
    """Record of eight bytes written to the doorbell page."""
    return struct.pack("<BH", 2, offset) + value


STEPS = struct.pack("<BB", 3, 8)
QPN = FIRST["qp"]


def queues(transport: int, shared: bool) -> bytes:
    """A CQ, a key, perhaps a shared receive queue, and a queue pair over one umem."""
    umem = FIRST["umem"]
    made = command(
        "create_cq", cq_umem_valid=1, cq_umem_id=umem, cq_context__log_cq_size=4, cq_context__uar_page=PAGE,
        cq_context__dbr_umem_valid=1, cq_context__dbr_umem_id=umem, cq_context__dbr_addr=0x1000,
    )  # fmt: skip
    made += command(
        "create_mkey", mkey_umem_valid=1, mkey_umem_id=umem, memory_key_mkey_entry__access_mode_1_0=1,
        memory_key_mkey_entry__start_addr=MEMORY, memory_key_mkey_entry__len=65536, memory_key_mkey_entry__pd=PD,
        memory_key_mkey_entry__lr=1, memory_key_mkey_entry__lw=1, memory_key_mkey_entry__rr=1,
        memory_key_mkey_entry__rw=1, memory_key_mkey_entry__a=1,
    )  # fmt: skip
    if shared:
        made += command(
            "create_rmp", ctx__wq__wq_type=1, ctx__wq__pd=PD, ctx__wq__log_wq_stride=5, ctx__wq__log_wq_sz=3,
            ctx__wq__wq_umem_valid=1, ctx__wq__wq_umem_id=umem, ctx__wq__wq_umem_offset=0x3000,
            ctx__wq__dbr_umem_valid=1, ctx__wq__dbr_umem_id=umem, ctx__wq__dbr_addr=0x1100,
        )  # fmt: skip
    made += command(
        "create_qp", wq_umem_valid=1, wq_umem_id=umem, wq_umem_offset=0x2000, qpc__st=transport, qpc__pm_state=3,
        qpc__pd=PD, qpc__log_sq_size=4, qpc__log_rq_size=2, qpc__log_rq_stride=1, qpc__rq_type=1 if shared else 0,
        qpc__srqn_rmpn_xrqn=FIRST["rmp"] if shared else 0, qpc__uar_page=PAGE, qpc__cqn_snd=FIRST["cq"],
        qpc__cqn_rcv=FIRST["cq"], qpc__dbr_umem_valid=1, qpc__dbr_umem_id=umem, qpc__dbr_addr=0x1200,
    )  # fmt: skip
    return made


def moved() -> bytes:
    """The queue pair to RTS, connected to itself at the first link-local address of a host."""
    gid = bytes([0xFE, 0x80, *[0] * 6, 0, 0, 0, 0xFF, 0xFE, 0, 0, 0])
    made = command(
        "rst2init_qp", qpn=QPN, qpc__rwe=1, qpc__rre=1, qpc__rae=1, qpc__primary_address_path__vhca_port_num=1
    )
    made += command(
        "init2rtr_qp", qpn=QPN, qpc__mtu=3, qpc__log_msg_max=30, qpc__remote_qpn=QPN, qpc__min_rnr_nak=1,
        qpc__log_rra_max=2, qpc__primary_address_path__src_addr_index=1, qpc__primary_address_path__rgid_rip=gid,
    )  # fmt: skip
    made += command(
        "rtr2rts_qp", qpn=QPN, qpc__retry_count=7, qpc__rnr_retry=7, qpc__log_sra_max=2,
        qpc__primary_address_path__ack_timeout=14,
    )  # fmt: skip
    return made


def posted(opcode: int, *segments: bytes, ring: int = 0x2080) -> bytes:
    """A work request at the beginning of the ring, its record and its doorbell."""
    control = formats.wqe_ctrl_seg.pack(opcode=opcode, qp_or_sq=QPN, ds=1 + len(segments), ce=2)
    record = struct.pack(">II", 2, 1)  # two receives were posted before
    made = store(0x1200, record) + store(ring, control + b"".join(segments))
    return made + doorbell(0x800, control[:8]) + STEPS


def commands() -> dict[str, bytes]:
    """Inputs of command.cc."""
    key = FIRST["key"] << 8
    data = formats.wqe_data_seg.pack(byte_count=3000, lkey=key, addr=MEMORY + 0x8000)
    receive = formats.wqe_data_seg.pack(byte_count=4096, lkey=key, addr=MEMORY + 0xA000)
    word = formats.wqe_data_seg.pack(byte_count=8, lkey=key, addr=MEMORY + 0x8000)
    remote = formats.wqe_raddr_seg.pack(raddr=MEMORY + 0xC000, rkey=key)
    atomic = struct.pack(">QQ", 5, 7)
    opcodes = formats.wqe_opcode
    receives = store(0x2000, receive) + store(0x2020, receive)
    after = command("query_qp", qpn=QPN) + command("query_cq", cqn=FIRST["cq"]) + command("qp_2err", qpn=QPN)
    after += STEPS + command("qp_2rst", qpn=QPN) + command("destroy_qp", qpn=QPN)
    rc = queues(0, False) + moved() + receives
    uc = queues(1, False) + moved() + receives
    shared = queues(0, True) + moved() + store(0x3010, receive) + store(0x1100, struct.pack(">I", 1))
    return {
        "capabilities": b"".join(command("query_hca_cap", 4112, op_mod=op_mod) for op_mod in (1, 7, 9, 65, 15)),
        "rc_write": rc + posted(opcodes.MLX5_OPCODE_RDMA_WRITE, remote, data) + after,
        "rc_read": rc + posted(opcodes.MLX5_OPCODE_RDMA_READ, remote, data) + after,
        "rc_atomic": rc + posted(opcodes.MLX5_OPCODE_ATOMIC_FA, remote, atomic, word) + after,
        "rc_send": rc + posted(opcodes.MLX5_OPCODE_SEND_IMM, data) + after,
        "uc_send": uc + posted(opcodes.MLX5_OPCODE_SEND, data) + after,
        "shared_send": shared
        + posted(opcodes.MLX5_OPCODE_SEND, data, ring=0x2000)
        + command("query_rmp", rmpn=FIRST["rmp"])
        + after,
    }


def packet(form: int, target: int, distance: int, mend: int, opcode: int, rest: bytes, changes: bytes = b"") -> bytes:  # noqa: PLR0917
    """Record of packet.cc."""
    bth = formats.bth.pack(opcode=opcode, pkey=0xFFFF, ack_req=1)
    data: bytes = (changes or b"\0" if form == 1 else b"") + bth + rest
    return struct.pack("<BBbBH", form, target, distance, mend, len(data)) + data


def packets() -> dict[str, bytes]:
    """Inputs of packet.cc."""
    ops = formats.bth_opcode
    reth = formats.reth.pack(va=0, dma_length=100)
    atomic = formats.atomiceth.pack(va=0, swap_add=1, compare=0)
    fetch = atomic
    plain, body = 1 | 2 | 4 | 16, bytes(100)
    long = formats.reth.pack(va=0, dma_length=2100)
    acknowledge = formats.aeth.pack(syndrome=0x1F, msn=1)
    deth = formats.deth.pack(qkey=0, src_qp=5)
    full = bytes(1024)
    steps = struct.pack("<BBbBH", 3, 0, 0, 0, 0)
    return {
        "send": packet(0, 0, 0, plain, ops.RC_SEND_ONLY, body) + packet(1, 2, 0, plain, ops.RC_SEND_ONLY, body),
        "write": packet(1, 0, 0, plain | 32, ops.RC_RDMA_WRITE_ONLY, reth + body)
        + packet(0, 1, 0, plain, ops.RC_RDMA_WRITE_FIRST, long + full)
        + packet(0, 1, 0, plain, ops.RC_RDMA_WRITE_MIDDLE, full)
        + packet(0, 1, 0, plain, ops.RC_RDMA_WRITE_LAST, bytes(52)),
        "read": packet(0, 0, 0, plain, ops.RC_RDMA_READ_REQUEST, reth) + steps
        + packet(0, 0, -1, plain, ops.RC_RDMA_READ_REQUEST, reth) + steps,
        "atomic": packet(0, 0, 0, plain, ops.RC_FETCH_ADD, atomic) + packet(0, 0, -1, plain, ops.RC_FETCH_ADD, fetch)
        + packet(0, 0, 0, plain, ops.RC_COMPARE_SWAP, atomic) + steps,
        "datagram": packet(0, 3, 0, plain, ops.UD_SEND_ONLY, deth + body)
        + packet(1, 3, 0, plain, ops.UD_SEND_ONLY_WITH_IMMEDIATE, deth + bytes(4) + body),
        "answers": packet(0, 4, 2, 0, ops.RC_ACKNOWLEDGE, acknowledge)
        + packet(0, 4, 0, 0, ops.RC_RDMA_READ_RESPONSE_FIRST, acknowledge + full)
        + packet(0, 4, 0, 0, ops.RC_RDMA_READ_RESPONSE_MIDDLE, full) + steps
        + packet(0, 4, 9, 0, ops.RC_ATOMIC_ACKNOWLEDGE, acknowledge + bytes(8)) + steps
        + packet(0, 4, 0, 0, ops.RC_ACKNOWLEDGE, formats.aeth.pack(syndrome=0x60, msn=1)) + steps,
        "changed": packet(1, 0, 0, plain | 32, ops.RC_RDMA_WRITE_ONLY, reth + body, b"\x01\x10\x00\x01"),
    }  # fmt: skip


def attribute(position: int, content: bytes = b"", form: int = 0, size: int | None = None) -> bytes:
    """Record of one attribute of ioctl.cc; without content `size` bytes of room for an answer."""
    length = (len(content) + 3) // 4 if size is None else size // 4
    if content:
        return struct.pack("<BBB", position, form, length) + content.ljust(length * 4, b"\0")
    return struct.pack("<BBB", position, form | 2, length)


def handle(position: int, value: int) -> bytes:
    """An attribute that names an object or a file."""
    return struct.pack("<BBBI", position, 0, 0, value)


def call(method: int, *attributes: bytes, write: int = 0) -> bytes:
    """Record of one ioctl."""
    return struct.pack("<BBB", method, write, len(attributes)) + b"".join(attributes)


def write(number: int, core: bytes, driver: bytes = b"", out: int = 64, driver_out: int = 64) -> bytes:
    """Record of INVOKE_WRITE."""
    parts = [attribute(1, core, 1), attribute(2, size=out, form=1), attribute(4, size=driver_out, form=1)]
    if driver:
        parts.append(attribute(3, driver, 1))
    return call(0, *parts, write=number)


def ioctls() -> dict[str, bytes]:
    """Inputs of ioctl.cc: handles count from 1 in every file."""
    memory = 0x530000000000
    context = struct.pack("<IIIIIIQ", 16, 4, 1, 0, 0, 0, 0)  # mlx5_ib_alloc_ucontext_req_v2, with DEVX
    opened = call(1, attribute(2, context.ljust(40, b"\0"), 1), attribute(3, size=128, form=1))
    pd = write(3, struct.pack("<Q", 0))
    mr = write(5, struct.pack("<QQQQII", 0, memory, 65536, memory, 1, 15))
    page = call(14, handle(0, 0), attribute(1, struct.pack("<Q", 1)), attribute(2, size=8), attribute(3, size=8),
                attribute(4, size=4))  # fmt: skip
    driver = struct.pack("<QQIBBHHHI", memory, memory + 0x8000, 64, 0, 0, 2, 0, 0, 0)
    cq = call(8, handle(0, 0), attribute(1, struct.pack("<I", 15)), attribute(4, struct.pack("<I", 0)),
              attribute(6, size=4), attribute(8, driver, 1), attribute(9, size=8, form=1))  # fmt: skip
    eqn = call(17, attribute(0, struct.pack("<I", 0)), attribute(1, size=4))
    umem = call(26, handle(0, 0), attribute(1, struct.pack("<Q", memory)), attribute(2, struct.pack("<Q", 8192)),
                attribute(3, struct.pack("<I", 1)), attribute(4, size=4))  # fmt: skip
    query = formats.query_hca_cap_in.pack(opcode=int(OP.MLX5_CMD_OP_QUERY_HCA_CAP), op_mod=1)
    other = call(16, attribute(0, query, 1), attribute(1, size=1020, form=1))
    key = command(
        "create_mkey", mkey_umem_id=FIRST["umem"], memory_key_mkey_entry__access_mode_1_0=1,
        memory_key_mkey_entry__start_addr=memory, memory_key_mkey_entry__len=4096,
        memory_key_mkey_entry__pd=PD, memory_key_mkey_entry__lr=1,
    )[5:]  # fmt: skip
    made = call(18, handle(0, 0), attribute(1, key, 1), attribute(2, size=16, form=1)) + call(19, handle(0, 2))
    channel = write(8, struct.pack("<Q", 0))
    queries = call(3, attribute(0, struct.pack("<I", 1)), attribute(1, size=64)) + call(4, attribute(
        0, struct.pack("<Q", 32)), attribute(2, size=256, form=1), attribute(3, size=8))  # fmt: skip
    vast = call(4, attribute(0, struct.pack("<Q", 1 << 37)), attribute(2, size=256, form=1), attribute(3, size=8))
    return {
        "verbs": opened + pd + mr + page + cq + channel + write(0, struct.pack("<Q", 0), out=256),
        "devx": opened + eqn + umem + other + made + call(23, handle(0, 0)) + call(24, handle(0, 0)),
        "questions": opened + queries + call(5, attribute(0, struct.pack("<I", 1)), attribute(3, size=32)),
        "entry_size": opened + vast,
    }


def main() -> None:
    """Write all of them."""
    for target, inputs in (("command", commands()), ("packet", packets()), ("ioctl", ioctls())):
        directory = CORPUS / target
        directory.mkdir(parents=True, exist_ok=True)
        for name, data in inputs.items():
            (directory / name).write_bytes(data)


if __name__ == "__main__":
    main()
