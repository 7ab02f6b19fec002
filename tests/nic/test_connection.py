# SPDX-License-Identifier: Apache-2.0
"""Connection information: bytes, refusals, and the fields of the three commands."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gda import formats
from gda.errors import ArgumentError
from gda.nic import ConnectionInfo
from gda.nic.connection import Path, init_fields, rtr_fields, rts_fields

INFO = ConnectionInfo(0x1234, 0x56789A, bytes(range(16)), 5, True, 0, b"\x02\x00\x00\x00\x00\x01")
PATH = Path(1, 3, True, b"\x02\x03\x04\x05\x06\x07", 5, traffic_class=0x68)

infos = st.booleans().flatmap(lambda ethernet: st.builds(
    ConnectionInfo,
    qpn=st.integers(1, 2**24 - 1), psn=st.integers(0, 2**24 - 1), gid=st.binary(min_size=16, max_size=16),
    mtu=st.integers(1, 5), is_ethernet=st.just(ethernet), lid=st.integers(0, 2**16 - 1),
    mac=st.binary(min_size=6, max_size=6), roce_version=st.integers(0, 2 if ethernet else 0),
))  # fmt: skip


@given(infos)
def test_round_trip(info):
    data = info.to_bytes()
    assert len(data) == len(INFO.to_bytes())
    assert ConnectionInfo.from_bytes(data) == info


@given(st.binary(max_size=100))
def test_foreign_bytes_are_refused(data):
    with pytest.raises(ArgumentError):
        ConnectionInfo.from_bytes(data)


@given(infos, st.data())
def test_any_changed_bit_is_refused(info, data):
    raw = bytearray(info.to_bytes())
    bit = data.draw(st.integers(0, len(raw) * 8 - 1))
    raw[bit // 8] ^= 1 << bit % 8
    with pytest.raises(ArgumentError):
        ConnectionInfo.from_bytes(bytes(raw))


@given(st.binary(min_size=len(INFO.to_bytes()) - 8, max_size=len(INFO.to_bytes()) - 8))
def test_any_content_with_a_right_checksum_is_read_or_refused(body):
    data = INFO.to_bytes()[:4] + body
    data += zlib.crc32(data).to_bytes(4, "big")
    try:
        info = ConnectionInfo.from_bytes(data)
    except ArgumentError as error:
        assert "connection information has a bad" in str(error)
    else:
        assert info.to_bytes() == data


def test_cut_and_foreign_are_told_apart():
    with pytest.raises(ArgumentError, match=r"has \d+ bytes, not 7"):
        ConnectionInfo.from_bytes(INFO.to_bytes()[:7])
    with pytest.raises(ArgumentError, match="no connection information"):
        ConnectionInfo.from_bytes(b"x" * len(INFO.to_bytes()))
    with pytest.raises(ArgumentError, match="changed on the way"):
        ConnectionInfo.from_bytes(INFO.to_bytes()[:-1] + b"\0")


@pytest.mark.parametrize(
    "wrong",
    [{"qpn": 0}, {"qpn": 1 << 24}, {"psn": -1}, {"gid": b"short"}, {"mtu": 6}, {"mtu": 0}, {"mac": b""},
     {"roce_version": 3}],
)
def test_impossible_values_are_refused(wrong):
    values = {"qpn": 1, "psn": 0, "gid": bytes(16), "mtu": 5} | wrong
    with pytest.raises(ArgumentError, match=f"bad {next(iter(wrong))}"):
        ConnectionInfo(**values)


def test_commands_carry_the_path():
    for name, fields in (
        ("rst2init_qp", init_fields(PATH, True)),
        ("init2rtr_qp", rtr_fields(PATH, INFO, 0x77, 4)),
        ("rtr2rts_qp", rts_fields(PATH, 0x999, 4, 14, 7)),
    ):
        command = formats.structs[f"{name}_in"]
        sent = command.unpack(command.pack(qpn=0x77, qpc=fields))["qpc"]
        assert sent["primary_address_path"]["vhca_port_num"] == 1
        if name == "init2rtr_qp":
            address = sent["primary_address_path"]
            assert (sent["remote_qpn"], sent["next_rcv_psn"], sent["mtu"]) == (INFO.qpn, INFO.psn, 5)
            assert address["rgid_rip"] == INFO.gid and address["src_addr_index"] == 3
            assert (address["rmac_47_32"], address["rmac_31_0"]) == (0x0203, 0x04050607)
            assert 0xC000 <= address["udp_sport"] <= 0xFFFF and address["dscp"] == 0x68 // 4
        if name == "rtr2rts_qp":
            assert (sent["next_send_psn"], sent["retry_count"], sent["rnr_retry"]) == (0x999, 7, 7)
            assert sent["primary_address_path"]["ack_timeout"] == 14


def test_both_directions_use_the_same_source_port():
    there = rtr_fields(PATH, INFO, 0x77, 4)["primary_address_path"]["udp_sport"]
    back = ConnectionInfo(0x77, 0, bytes(16), 5)
    assert rtr_fields(PATH, back, INFO.qpn, 4)["primary_address_path"]["udp_sport"] == there


def test_infiniband_paths_have_lids_and_no_gid():
    address = rtr_fields(PATH, ConnectionInfo(5, 6, bytes(16), 5, False, 0x12), 1, 4)["primary_address_path"]
    assert address["rlid"] == 0x12 and "rgid_rip" not in address
