# SPDX-License-Identifier: Apache-2.0
"""`python -m gda inspect` and gda.inspect of bytes: hex from logs, guesses, words, differences, mistakes."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gda
from gda import formats
from gda.__main__ import main
from gda.errors import ArgumentError
from gda.tools.hexdump import read_hex
from gda.tools.inspect import hex_lines
from gda.tools.kinds import KINDS, decode_as, guess, parts_as

ROOT = Path(__file__).resolve().parents[2]
FAILED = formats.err_cqe.pack(
    opcode=formats.MLX5_CQE_REQ_ERR, syndrome=0x13, vendor_error_syndrome=0x88, s_wqe_opcode=8, qpn=0x48, wqe_counter=5
)
WRITE = (
    formats.wqe_ctrl_seg.pack(opcode=8, wqe_index=5, qp_or_sq=0x48, ds=3, ce=2)
    + formats.wqe_raddr_seg.pack(raddr=0x7F00_0000_1000, rkey=0x1234)
    + formats.wqe_data_seg.pack(byte_count=4096, lkey=0xABCD, addr=0x7F00_DEAD_B000)
    + bytes(16)
)


def tool(name: str, *arguments: str, data: bytes) -> str:
    if shutil.which(name) is None:
        pytest.skip(f"not run: {name} is not installed")
    return subprocess.run([name, *arguments], input=data, capture_output=True, check=True).stdout.decode()


def rows(data: bytes) -> list[tuple[int, bytes]]:
    return [(at, data[at : at + 16]) for at in range(0, len(data), 16)]


def printable(row: bytes) -> str:
    return "".join(chr(c) if 32 <= c < 127 else "." for c in row)


def as_hexdump_c(data: bytes) -> str:
    """As hexdump -C prints it, equal lines as one star."""
    lines, before = [], b""
    for at, row in rows(data):
        if row == before and len(row) == 16:
            if lines[-1] != "*":
                lines.append("*")
            continue
        before = row
        words = f"{row[:8].hex(' '):<23}  {row[8:].hex(' '):<23}"
        lines.append(f"{at:08x}  {words}  |{printable(row)}|")
    return "\n".join([*lines, f"{len(data):08x}", ""])


def as_xxd(data: bytes, group: int = 2) -> str:
    width = 16 * 2 + 16 // group - 1
    lines = [f"{at:08x}: {row.hex(' ', -group):<{width}}  {printable(row)}" for at, row in rows(data)]
    return "\n".join([*lines, ""])


def as_od(data: bytes) -> str:
    """od -A x -t x1 -v."""
    return "\n".join([*(f"{at:06x} {row.hex(' ')}" for at, row in rows(data)), f"{len(data):06x}", ""])


def as_hexdump(data: bytes) -> str:
    """hexdump -v without a format: words of 16 bits, low byte first, on a little-endian machine."""
    lines = []
    for at, row in rows(data):
        words = (row[i : i + 2][::-1].hex() for i in range(0, len(row), 2))
        lines.append(f"{at:07x} {' '.join(words)}")
    return "\n".join([*lines, f"{len(data):07x}", ""])


@pytest.mark.parametrize(
    "ours, command",
    [
        (as_hexdump_c, ("hexdump", "-C")), (as_hexdump, ("hexdump", "-v")), (as_xxd, ("xxd",)),
        (as_od, ("od", "-A", "x", "-t", "x1", "-v")),
    ],
    ids=["hexdump-C", "hexdump", "xxd", "od"],
)  # fmt: skip
def test_the_manners_below_are_those_of_the_tools(ours: Callable[[bytes], str], command: tuple[str, ...]) -> None:
    for data in (FAILED, bytes(64), bytes(range(256))[7:107]):
        theirs = tool(*command, data=data)
        assert [line.rstrip() for line in theirs.splitlines()] == [line.rstrip() for line in ours(data).splitlines()]


def dwords(data: bytes, prefix: str = "") -> str:
    return " ".join(prefix + data[i : i + 4].hex() for i in range(0, len(data), 4))


RANDOM = bytes(range(7, 107))
LOG = f"""
[ 12.34] infiniband mlx5_0: dump_cqe:272:(pid 11): dump error cqe
[ 12.34] 00000000: {FAILED[:16].hex(" ")}
[ 12.34] 00000010: {FAILED[16:32].hex(" ")}
[ 12.34] 00000020: {FAILED[32:48].hex(" ")}
[ 12.34] 00000030: {FAILED[48:].hex(" ")}
"""


@pytest.mark.parametrize("data", [FAILED, WRITE, RANDOM, bytes(64), b"abcdef01" * 4], ids=len)
def test_every_manner_of_hex(data: bytes) -> None:
    texts = {
        "hexdump -C": as_hexdump_c(data),
        "hexdump": as_hexdump(data),
        "xxd": as_xxd(data),
        "xxd -g1": as_xxd(data, 1),
        "od": as_od(data),
        "numbers": dwords(data, "0x"),
        "bytes": ", ".join(f"0x{b:02x}" for b in data),
        "dwords": "\n".join(dwords(data[i : i + 16]) for i in range(0, len(data), 16)),
        "one word": data.hex(),
        "own": hex_lines(data),
    }
    for name, text in texts.items():
        assert read_hex(text).data == data, (name, text)


def test_a_capture_as_tshark_shows_it(tmp_path: Path) -> None:
    frame = bytes.fromhex(
        "525400000002525400000001080045000034241040004011020d0a4d00010a4d0002c12112b7002000000530ffff000000118000000604"
        "03020122000000e1e25ee8"
    )
    pcap = tmp_path / "frame.pcap"
    head = bytes.fromhex("d4c3b2a1020004000000000000000000ffff000001000000")
    pcap.write_bytes(head + bytes(8) + len(frame).to_bytes(4, "little") * 2 + frame)
    text = tool("tshark", "-x", "-r", str(pcap), data=b"")
    assert read_hex(text).data == frame
    shown = gda.inspect(text)
    assert "taken for packet" in shown and "RC send only with immediate to queue pair 0x11" in shown


def test_the_dump_that_libmlx5_prints(tmp_path: Path) -> None:
    """Its own words, of a request that the peer refuses, go through the command."""
    program = """
import gda, numpy as np
with gda.open() as nic:
    a, b = nic.host_queue_pair(), nic.host_queue_pair()
    gda.nic.connect(a, b)
    src = nic.register(np.zeros(64, np.uint8))
    a.put(gda.RemoteMemory(src.address, 64, src.rkey + 1), 0, src, 0, 64)
    try:
        a.wait()
    except gda.GdaError:
        pass
"""
    log = tmp_path / "log"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GDA_NIC": "software", "MLX5_DEBUG_FILE": str(log)}
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment, cwd=ROOT, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    assert "got completion with error" in log.read_text()
    shown = subprocess.run(
        [sys.executable, "-m", "gda", "inspect", str(log)], capture_output=True, text=True, cwd=ROOT,
        env=environment, timeout=60,
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    assert "libmlx5's dump of an error completion" in shown.stdout
    assert "what happened: the peer refused the RDMA write: remote access error" in shown.stdout


def test_the_dump_that_the_kernel_driver_prints() -> None:
    shown = gda.inspect(LOG)
    assert "taken for cqe: the kernel driver's dump" in shown and "the peer refused the RDMA write" in shown


@pytest.mark.parametrize(
    "kind, data",
    [
        ("cqe", FAILED),
        ("cqe", formats.cqe64.pack(opcode=0, qpn=0x48, wqe_counter=3, sop_drop_qpn_opcode=8, timestamp=77)),
        ("cqe", b"\xff" * 63 + b"\xf0"),
        ("wqe", WRITE),
        ("wqe", WRITE * 2),
        ("doorbell", WRITE[:8]),
        ("doorbell", formats.send_doorbell.pack(wqe_index=5, qpn=0x48)),
        ("record", formats.qp_doorbell_record.pack(send_counter=5)),
        ("record", formats.qp_doorbell_record.pack(receive_counter=5)),
        ("command", formats.create_qp_in.pack(opcode=formats.MLX5_CMD_OP_CREATE_QP)),
        ("command", formats.query_qp_in.pack(opcode=formats.MLX5_CMD_OP_QUERY_QP, qpn=5)),
        ("answer", formats.query_qp_out.pack(status=3, syndrome=0x55)),
        ("answer", formats.create_qp_out.pack(qpn=0x48)),
        ("handle", formats.gda_qp.pack(version=formats.GDA_HANDLE_VERSION, qpn=1)),
    ],
)
def test_what_bytes_are_is_guessed(kind: str, data: bytes) -> None:
    assert guess(data).kind == kind
    assert f"taken for {kind}: " in gda.inspect(data)


def test_what_else_it_could_be_is_said() -> None:
    assert "record" in guess(formats.send_doorbell.pack(wqe_index=5, qpn=0x48)).also
    assert "(could also be: record; --as says so)" in gda.inspect(formats.send_doorbell.pack(wqe_index=5, qpn=0x48))


def test_golden_output_of_a_work_request() -> None:
    assert gda.inspect(WRITE[:48]) == """\
48 bytes, taken for wqe: a control segment: opcode MLX5_OPCODE_RDMA_WRITE, 3 segments
  0000: 00000508 00004803 00000008 00000000
  0010: 00007f00 00001000 00001234 00000000
  0020: 00001000 0000abcd 00007f00 deadb000
work request 5 of queue pair 0x48: RDMA write, remote address 0x7f0000001000 with rkey 0x1234, completion always
  wqe_ctrl_seg, 16 bytes
    +0x00  00 00 05 08  opmod = 0
                        wqe_index = 5  (producer index of this WQE's first basic block, modulo 2^16)
                        opcode = 0x8 MLX5_OPCODE_RDMA_WRITE
    +0x04  00 00 48 03  qp_or_sq = 0x48 (72)  (the queue pair's number)
                        ds = 3  (length of the whole WQE in 16-byte segments)
    +0x08  00 00 00 08  signature = 0
                        dci_stream_channel_id = 0
                        fm = 0x0 MLX5_FENCE_MODE_NONE
                        ce = 0x2 CE_ALWAYS
                        se = 0  (solicited event at the receiver)
    +0x0c  00 00 00 00  imm = 0  (immediate, invalidated key or UMR key, by opcode)
  wqe_raddr_seg, 16 bytes
    +0x00  00 00 7f 00  raddr = 0x7f0000001000
    +0x04  00 00 10 00
    +0x08  00 00 12 34  rkey = 0x1234
  wqe_data_seg, 16 bytes
    +0x00  00 00 10 00  byte_count = 0x1000
    +0x04  00 00 ab cd  lkey = 0xabcd
    +0x08  00 00 7f 00  addr = 0x7f00deadb000
    +0x0c  de ad b0 00"""


def test_golden_output_of_an_error() -> None:
    assert gda.inspect(FAILED).splitlines()[5:10] == [
        "completion: request failed: remote access error (0x13, vendor 0x88) on RDMA write, queue pair 0x48, work "
        "request 5, owner bit 0",
        "  what happened: the peer refused the RDMA write: remote access error",
        "  meaning: the remote key does not cover the bytes at the remote address, or does not allow this operation",
        "  vendor's syndrome: the peer refused key, range or right (as cards answer)",
        "  try: check rkey, remote address and length against the peer's region; register it with the remote right "
        "needed",
    ]


def test_a_difference_of_two() -> None:
    other = bytearray(WRITE)
    other[24:28] = bytes.fromhex("34120000")  # the rkey byte-swapped
    other[3] = 0x0A
    assert gda.inspect(WRITE[:48], bytes(WRITE[:48])).splitlines()[0].endswith("no difference")
    shown = gda.inspect(WRITE, bytes(other), kind="wqe")
    assert "control.opcode: 0x8 MLX5_OPCODE_RDMA_WRITE -> 0xa MLX5_OPCODE_SEND" in shown
    swapped = bytearray(WRITE)
    swapped[24:28] = bytes.fromhex("34120000")
    assert gda.inspect(WRITE, bytes(swapped)).splitlines() == [
        "two of wqe (a control segment: opcode MLX5_OPCODE_RDMA_WRITE, 3 segments): 1 field differs",
        "  wqe_raddr_seg.rkey: 0x1234 -> 0x34120000",
    ]


def test_a_difference_of_two_queue_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GDA_NIC", "software")
    with gda.open() as nic:
        a, _ = nic.loopback_pair()
        c = nic.queue_pair()
        shown = gda.inspect(a, c)
        for words in ("  state: RTS -> RST", "context.mtu: ", f"handle.qpn: {a.qpn:#x} -> {c.qpn:#x}"):
            assert words in shown
        with pytest.raises(ArgumentError, match="not of a kind"):
            gda.inspect(a, b"")


def command(*arguments: str, stdin: bytes = b"", monkeypatch: pytest.MonkeyPatch | None = None) -> int:
    if monkeypatch is not None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
    return main(["inspect", *arguments])


def test_the_command_takes_words_files_and_standard_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = dwords(FAILED, "0x").split()
    (tmp_path / "text").write_text(dwords(FAILED))
    (tmp_path / "bytes").write_bytes(FAILED)
    calls: list[tuple[tuple[str, ...], bytes]] = [
        (tuple(words), b""), ((str(tmp_path / "text"),), b""), ((str(tmp_path / "bytes"),), b""),
        ((), dwords(FAILED).encode()), (("-",), FAILED), (("--as", "err_cqe", FAILED.hex()), b""),
    ]  # fmt: skip
    for arguments, stdin in calls:
        assert command(*arguments, stdin=stdin, monkeypatch=monkeypatch) == 0
        assert "MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR" in capsys.readouterr().out, arguments
    (tmp_path / "other").write_text(dwords(FAILED).replace("00008813", "00008815"))
    assert command("--diff", str(tmp_path / "text"), str(tmp_path / "other")) == 0
    assert "syndrome: 0x13 MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR -> 0x15" in capsys.readouterr().out


@pytest.mark.parametrize(
    "text, words",
    [
        ("00112233 4455667x 8899aabb ccddeeff", r"line 1, column 17: 'x' of '4455667x' is no hex digit"),
        ("00112233 44556 8899aabb ccddeeff", r"line 1, column 10: '44556' has 5 digits, so half a byte is missing"),
        ("0x00112233 0x4g55", r"line 1, column 15: 'g' of '0x4g55' is no hex digit"),
        ("0x00112233445566778 0x1", r"line 1, column 1: .* 17 digits, more than 8 bytes"),
        ("0000: 00112233\n0008: 00112233", r"line 2: its offset is 0x8, but 0x4 was to follow"),
        ("", "no hex in what was given"),
        ("nothing to see here", "no hex in what was given: 'nothing to see here'"),
        ("112233", "3 bytes that look like nothing known"),
    ],
)
def test_bad_hex_is_refused_with_its_place(text: str, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        gda.inspect(text)


@pytest.mark.parametrize("kind", [*KINDS, "qpc", "gda_mr"])
def test_too_short_is_refused_or_said(kind: str) -> None:
    try:
        text = decode_as(kind, b"\0")
    except ArgumentError as error:
        assert re.search(r"bytes", str(error))
    else:
        assert "only 1 are here" in text
    with pytest.raises(ArgumentError, match="no kind and no format is called 'nonsense'"):
        decode_as("nonsense", b"")


def test_what_cannot_be_inspected() -> None:
    with pytest.raises(ArgumentError, match="cannot inspect float"):
        gda.inspect(1.5)
    with pytest.raises(ArgumentError, match="--diff compares two, here are 1"):
        from gda.commands.inspect import run

        run(__import__("argparse").Namespace(diff=True, what=["00"], kind="", of=""))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=1100), st.sampled_from([*KINDS, ""]))
def test_random_bytes_never_crash(data: bytes, kind: str) -> None:
    try:
        text = gda.inspect(data, kind=kind)
        assert text and (not kind or not parts_as(kind, data) or gda.inspect(data, data, kind=kind))
    except ArgumentError:
        pass


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="0123456789abcdefx:|*. \n\tghq", max_size=200))
def test_random_text_never_crashes(text: str) -> None:
    try:
        assert read_hex(text).data
    except ArgumentError as error:
        assert re.search(r"line \d|no hex", str(error))
