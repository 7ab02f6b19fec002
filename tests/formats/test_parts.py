# SPDX-License-Identifier: Apache-2.0
"""Packets, commands, answers, records and handles in words, and the parts that they are made of."""

from __future__ import annotations

import contextlib
import re
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gda import formats
from gda.errors import ArgumentError
from gda.formats.vendor import PROXY, SEEN_ON_CARDS, SOFTWARE_NIC

from . import linux_ifc

ROOT = Path(__file__).resolve().parents[2]
FRAMES = [
    (line.split()[0], next(w for w in line.split() if w.startswith("payload=")), line.split()[-1])
    for line in (ROOT / "tests/conformance/rxe/kernel_frames.txt").read_text().splitlines()
    if line and not line.startswith("#")
]


@pytest.mark.parametrize("name, size, frame", FRAMES, ids=[f"{f[0]}-{f[1]}" for f in FRAMES])
def test_frames_of_the_linux_kernel_are_taken_apart_and_their_icrc_is_right(name: str, size: str, frame: str) -> None:
    data = bytes.fromhex(frame)
    parts = formats.packet_parts(data)
    by_name = {part.name: part for part in parts}
    assert formats.bth.unpack(by_name["bth"].data)["opcode"].name == name
    assert len(by_name["payload"].data if "payload" in by_name else b"") == int(size.removeprefix("payload="))
    assert by_name["ICRC"].note == "as computed"
    assert b"".join(p.data for p in parts)[2:] == data  # behind two bytes of alignment: nothing lost, nothing twice
    changed = bytearray(data)
    changed[-5] ^= 1
    assert "WRONG" in formats.packet_parts(changed)[-1].note


def test_a_packet_in_words() -> None:
    frame = next(bytes.fromhex(f) for name, _, f in FRAMES if name == "RC_RDMA_WRITE_FIRST")
    first = formats.decode_packet(frame).splitlines()[0]
    assert first == (
        "RoCE v2 packet: RC RDMA write first to queue pair 0x11, PSN 13, 257 bytes at 0x3ed1000 with rkey 0x29e"
    )


@pytest.mark.parametrize(
    "syndrome, words",
    [
        (0x1F, "acknowledged"),
        (0x05, "acknowledged, credit code 5"),
        (0x20, "wait 655.36 ms"),
        (0x2E, "wait 1.28 ms"),
        (0x60, "a packet is missing"),
        (0x61, "the peer refused: invalid request"),
        (0x62, "the peer refused: remote access error"),
        (0x63, "the peer failed"),
        (0x64, "invalid request of a reliable datagram"),
        (0x7F, "code 31, which is reserved"),
        (0x40, "reserved code 0x40"),
    ],
)
def test_answers_of_a_peer(syndrome: int, words: str) -> None:
    assert words in formats.aeth_words(syndrome)
    bth = formats.bth.pack(opcode=formats.RC_ACKNOWLEDGE, dest_qp=0x48, psn=7)
    text = formats.decode_packet(bth + formats.aeth.pack(syndrome=syndrome, msn=1) + bytes(4))
    assert words in text.splitlines()[0]


@pytest.mark.parametrize("opcode", formats.enums["bth_opcode"], ids=lambda o: o.name)
def test_every_opcode_has_its_headers(opcode: int) -> None:
    names = [p.name for p in formats.packet_parts(bytes([opcode]) + bytes(200))]
    words = formats.enums["bth_opcode"](opcode).name
    assert ("deth" in names) == words.startswith("UD")
    assert ("immdt" in names) == words.endswith("WITH_IMMEDIATE")
    assert ("ieth" in names) == words.endswith("WITH_INVALIDATE")
    assert ("reth" in names) == bool(re.search(r"WRITE_(FIRST|ONLY)|READ_REQUEST", words))
    assert ("aeth" in names) == bool(re.search(r"ACKNOWLEDGE|RESPONSE_(FIRST|LAST|ONLY)", words))
    assert ("atomiceth" in names) == bool(re.search(r"COMPARE_SWAP|FETCH_ADD", words))


def command_structs() -> list[str]:
    return sorted(name.removesuffix("_in") for name in formats.structs if name.endswith("_in"))


@pytest.mark.parametrize("name", command_structs())
def test_every_declared_command_and_its_answer_are_shown_field_by_field(name: str) -> None:
    other = {"qp_2err": "2ERR_QP", "qp_2rst": "2RST_QP"}.get(name, name.upper())
    opcode = formats.constants[f"MLX5_CMD_OP_{other}"]
    struct_in = formats.structs[f"{name}_in"]
    text = formats.decode_command(struct_in.pack(opcode=opcode))
    assert text.startswith(f"command {other} ({int(opcode):#x}), {struct_in.bytes} bytes\n  {name}_in,")
    answer = formats.structs[f"{name}_out"].pack(status=formats.MLX5_CMD_STAT_BAD_PARAM_ERR, syndrome=0x1234)
    text = formats.decode_answer(answer, name.upper())
    assert "the firmware refused: a field has a value that is not allowed" in text and "0x1234" in text
    assert f"  {name}_out," in text


def test_every_opcode_of_the_enum_has_a_struct() -> None:
    for opcode in formats.enums["cmd_opcode"]:
        assert formats.command_parts(struct.pack(">H14x", opcode))[0].format is not None, opcode.name


def test_names_of_all_commands_are_those_of_linux() -> None:
    """Of the kernel at hand; one that is newer than 6.12 may know a few more."""
    text = (linux_ifc.directory() / "linux/mlx5/mlx5_ifc.h").read_text()
    found = re.findall(r"MLX5_CMD_OP_(\w+)\s*=\s*(0x[0-9a-f]+)", text)
    theirs = [(int(v, 16), n) for n, v in found if n != "MAX" and not n.startswith("MOD_")]  # modifiers are no opcodes
    names = {code: {n for v, n in theirs if v == code} for code, _ in theirs}  # one number has two
    assert len(names) > 150
    ours = {code: formats.command_name(code) for code in names}
    assert not {code: (name, names[code]) for code, name in ours.items() if name and name not in names[code]}
    unknown = {code: names[code] for code, name in ours.items() if not name}
    assert len(unknown) <= 8 and all(code > 0x900 for code in unknown), unknown


def test_a_command_that_is_not_declared_has_a_name_all_the_same() -> None:
    assert "ALLOC_UAR is not declared here" in formats.decode_command(struct.pack(">H14x", 0x802))
    assert "nobody has declared this opcode" in formats.decode_command(struct.pack(">H14x", 0xFFF))


@pytest.mark.parametrize("status", formats.enums["cmd_status"], ids=lambda s: s.name)
def test_every_status_of_a_command(status: int) -> None:
    text = formats.decode_answer(formats.destroy_qp_out.pack(status=status))
    assert formats.command_status_meaning(status).words in text and "unknown" not in text


def test_vendor_syndromes_are_those_that_the_software_nic_writes() -> None:
    text = (ROOT / "sim/engine/vendor.h").read_text()
    first, second = text.split("VENDOR_STALE_WQE", 1)
    seen = {int(v, 16) for v in re.findall(r"= (0x[0-9a-f]{2})", first)}
    own = {int(v, 16) for v in re.findall(r"= (0x[0-9a-f]{2})", second)}
    assert seen == set(SEEN_ON_CARDS) - {0x93} and own == set(SOFTWARE_NIC)
    assert not set(PROXY) & (seen | own)


def test_what_happened_is_said_of_every_syndrome() -> None:
    for syndrome in formats.enums["cqe_syndrome"]:
        entry = formats.err_cqe.pack(opcode=formats.MLX5_CQE_REQ_ERR, syndrome=syndrome, s_wqe_opcode=8, qpn=1)
        line = formats.decode_cqe(entry).splitlines()[1]
        assert line.startswith("  what happened: ") and "not known" not in line
        assert ("peer" in line) == (syndrome >= 0x12), syndrome.name


def test_records_in_words() -> None:
    right = formats.qp_doorbell_record.pack(send_counter=5)
    assert "below index 5 may be fetched" in formats.decode_record(right)
    wrong = formats.qp_doorbell_record.pack(receive_counter=5)
    assert "the send counter in the wrong word" in formats.decode_record(wrong)
    cq = formats.cq_doorbell_record.pack(consumer_index=9, armed_index=3, solicited_only=1)
    assert "below index 9 are read, armed at 3 for solicited ones" in formats.decode_record(cq, of="cq")


def test_a_handle_in_words() -> None:
    error = formats.status.pack(code=formats.GDA_TIMEOUT, qpn=0x48)
    qp = formats.gda_qp.pack(
        version=formats.GDA_HANDLE_VERSION, qpn=0x48, log_sq_size=7, reserved=5, ready=4, rung=3, done=2,
        flags=formats.GDA_QP_OWNED + formats.GDA_QP_CONNECTED, error=int.from_bytes(error, "big"),
    )  # fmt: skip
    text = formats.decode_handle(qp)
    assert text.startswith("handle of queue pair 0x48: 128 basic blocks, reserved 5, ready 4, rung 3, done 2")
    assert "GDA_QP_OWNED | GDA_QP_CONNECTED" in text and "first error: deadline passed" in text
    assert "no handle, a closed one" in formats.decode_handle(bytes(256))
    whole = formats.decode_handle(qp + bytes(960 - 256))
    assert "window" in whole and "gda_receive_queue" in whole


def test_segments_of_masked_atomics_and_datagrams() -> None:
    def names(opcode: int, opmod: int, rest: bytes) -> list[str]:
        ds = 1 + len(rest) // 16
        head = formats.wqe_ctrl_seg.pack(opcode=opcode, opmod=opmod, qp_or_sq=1, ds=ds)
        return [p.format.name for p in formats.wqe_parts(head + rest) if p.format is not None][1:]

    masked = formats.MLX5_OPCODE_ATOMIC_MASKED_CS, formats.MLX5_OPCODE_ATOMIC_MASKED_FA
    assert names(masked[0], 9, bytes(64))[1:3] == ["wqe_atomic_seg", "wqe_atomic_mask_seg"]
    assert names(masked[0], 8, bytes(48))[1:2] == ["wqe_atomic32_swap_seg"]
    assert names(masked[1], 9, bytes(48))[1:2] == ["wqe_atomic64_add_seg"]
    assert names(masked[1], 8, bytes(48))[1:2] == ["wqe_atomic32_add_seg"]
    address = formats.wqe_av_seg.pack(qkey=0x1234, extended=1, dqp_dct=0x48)
    data = formats.wqe_data_seg.pack(byte_count=8, lkey=1, addr=0x7F00_0000_0000)
    assert names(formats.MLX5_OPCODE_SEND, 0, address + data) == ["wqe_av_seg", "wqe_data_seg"]
    assert names(formats.MLX5_OPCODE_SEND, 0, data * 3) == ["wqe_data_seg"] * 3


def headed(*heads: bytes) -> st.SearchStrategy[bytes]:
    return st.builds(lambda head, rest: head + rest, st.sampled_from(heads), st.binary(max_size=1100))


@settings(max_examples=200, deadline=None)
@given(headed(b"", bytes(12) + b"\x08\x00\x45", b"\x60", b"\x45", b"\x0a\x00\xff\xff", bytes(12) + b"\x89\x15"))
def test_no_packet_is_too_bad(data: bytes) -> None:
    with contextlib.suppress(ArgumentError):  # too short for its headers
        assert formats.decode_packet(data).startswith(("RoCE", "packet"))


@settings(max_examples=200, deadline=None)
@given(headed(b"", b"\x05\x00", b"\x01\x00", b"\x02\x00", b"\x0b\x83"), st.sampled_from(["", "QUERY_QP", "CREATE_QP"]))
def test_no_command_is_too_bad(data: bytes, name: str) -> None:
    for decode in (formats.decode_command, lambda d: formats.decode_answer(d, name), formats.decode_handle):
        try:
            assert decode(data)
        except ArgumentError:
            assert len(data) < 256


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(sorted(formats.structs)), st.data())
def test_the_values_of_a_part_put_together_are_its_bytes(name: str, data: st.DataObject) -> None:
    wanted = formats.structs[name]
    given_bytes = data.draw(st.binary(min_size=wanted.bytes, max_size=wanted.bytes))
    part = formats.Part(name, given_bytes, wanted)
    again = bytearray(wanted.bytes)
    for path, (value, _, _) in part.values().items():
        if "reserved_at_" not in path:
            wanted.set(again, path, value)
    repeated = wanted.unpack(bytes(again))
    assert repeated == wanted.unpack(given_bytes)
    assert part.text()
