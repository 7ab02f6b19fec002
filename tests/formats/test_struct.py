# SPDX-License-Identifier: Apache-2.0
"""Every format, whatever its header: round trips, single fields, refusals, dumps."""

from __future__ import annotations

import operator
import pickle
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gda import formats
from gda.errors import ArgumentError
from gda.formats import Field, Struct

from .golden import paths

EVERY = [pytest.param(struct, id=name) for name, struct in formats.structs.items()]
SLOW_IS_FINE = [HealthCheck.too_slow, HealthCheck.data_too_large]
FAST = settings(max_examples=25, deadline=None, suppress_health_check=SLOW_IS_FINE)


def numbers(struct: Struct) -> list[tuple[str, Field]]:
    return [(path, field) for path, field in paths(struct) if field.is_number]


def owned(struct: Struct) -> int:
    """Mask of the bits that a named field owns, the format read as one big number."""
    mask = 0
    for path, field in paths(struct):
        mask |= ((1 << field.width_bits) - 1) << (struct.bits - struct.offset(path) - field.width_bits)
    return mask


def values(struct: Struct) -> st.SearchStrategy[dict[str, Any]]:
    """Any legal values of all fields, nested formats too."""
    choices: dict[str, st.SearchStrategy[Any]] = {}
    for name, field in struct.fields.items():
        if field.struct is not None:
            choices[name] = values(field.struct)
        elif field.count_bytes:  # a long one only at its start: Hypothesis draws a few KiB at most
            drawn = min(64, field.count_bytes)
            rest = field.count_bytes - drawn
            start, end = st.binary(min_size=drawn, max_size=drawn), st.sampled_from([bytes(rest), b"\xff" * rest])
            choices[name] = st.builds(lambda a, b: a + b, start, end)
        else:
            choices[name] = st.integers(0, (1 << field.width_bits) - 1)
    return st.fixed_dictionaries(choices)


@pytest.mark.parametrize("struct", EVERY)
@given(data=st.data())
@FAST
def test_unpack_then_pack_keeps_all_but_reserved_bits(struct: Struct, data: st.DataObject) -> None:
    seed = data.draw(st.binary(min_size=1, max_size=min(struct.bytes, 256)))
    raw = (seed * struct.bytes)[: struct.bytes]
    again = struct.pack(**struct.unpack(raw))
    assert int.from_bytes(again, "big") == int.from_bytes(raw, "big") & owned(struct)


@pytest.mark.parametrize("struct", EVERY)
@given(data=st.data())
@FAST
def test_pack_then_unpack_keeps_all_values(struct: Struct, data: st.DataObject) -> None:
    chosen = data.draw(values(struct))
    packed = struct.pack(**chosen)
    assert struct.unpack(packed) == chosen
    assert struct.pack(**struct.unpack(packed)) == packed


@pytest.mark.parametrize("struct", EVERY)
def test_a_field_alone_changes_exactly_its_bits(struct: Struct) -> None:
    for path, field in numbers(struct):
        largest = (1 << field.width_bits) - 1
        every_bit = largest << (struct.bits - struct.offset(path) - field.width_bits)
        buffer = bytearray(struct.bytes)
        struct.set(buffer, path, largest)
        assert int.from_bytes(buffer, "big") == every_bit, path
        ones = bytearray(b"\xff" * struct.bytes)
        struct.set(ones, path, 0)
        assert int.from_bytes(ones, "big") == (1 << struct.bits) - 1 ^ every_bit, path
        assert struct.get(ones, path) == 0


@pytest.mark.parametrize("struct", EVERY)
def test_a_value_too_large_is_refused_by_name_and_range(struct: Struct) -> None:
    buffer = bytearray(struct.bytes)
    for path, field in numbers(struct):
        owner = struct
        for parent in path.split(".")[:-1]:
            inner = owner.fields[parent].struct
            assert inner is not None
            owner = inner
        limit = (1 << field.width_bits) - 1
        for value in (limit + 1, -1):
            with pytest.raises(ArgumentError) as error:
                struct.set(buffer, path, value)
            for words in (f"{owner.name}.{field.name} = {value}", f"0..{limit:#x} ({field.width_bits} bits)"):
                assert words in str(error.value)
    assert not any(buffer)


@pytest.mark.parametrize("struct", EVERY)
def test_another_length_is_refused(struct: Struct) -> None:
    for size in (struct.bytes - 1, struct.bytes + 1):
        with pytest.raises(ArgumentError, match=f"format {struct.name} has {struct.bytes} bytes, the buffer {size}"):
            struct.unpack(bytes(size))
        with pytest.raises(ArgumentError, match=f"the buffer {size}"):
            struct.update(bytearray(size), {})


@pytest.mark.parametrize("struct", EVERY)
def test_dump_shows_every_field(struct: Struct) -> None:
    text = struct.dump(b"\xff" * struct.bytes)
    for path, _ in paths(struct):
        assert f"{path.split('.')[-1]} = " in text
    for field in struct.reserved:
        assert f"{field.name} = " in text
    assert len(struct.dump(bytes(struct.bytes), zeros=False).splitlines()) == 1


def test_dump_of_one_field() -> None:
    data = formats.wqe_ctrl_seg.pack(opcode=formats.MLX5_OPCODE_RDMA_WRITE)
    assert formats.wqe_ctrl_seg.dump(data, 2, zeros=False) == (
        "  wqe_ctrl_seg, 16 bytes\n    +0x00  00 00 00 08  opcode = 0x8 MLX5_OPCODE_RDMA_WRITE"
    )


def test_dump_of_nested_formats_counts_from_the_outermost() -> None:
    data = formats.create_qp_in.pack(qpc={"primary_address_path": {"rgid_rip": bytes(range(1, 17))}})
    lines = formats.create_qp_in.dump(data, zeros=False).splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["+0x18", "+0x30", "+0x40"]
    assert lines[3].endswith("rgid_rip = 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f 10")


def test_unknown_field_is_refused_with_a_near_name() -> None:
    with pytest.raises(ArgumentError, match="format qpc has no field 'pid'") as error:
        formats.qpc.pack(pid=3)
    assert "pd" in error.value.advice
    with pytest.raises(ArgumentError, match="format ads has no field 'lid'"):
        formats.qpc.pack(primary_address_path={"lid": 1})
    with pytest.raises(ArgumentError, match="no nested format"):
        formats.qpc.offset("pd.x")


def test_reserved_fields_cannot_be_named() -> None:
    with pytest.raises(ArgumentError, match="reserved_at_38"):
        formats.wqe_ctrl_seg.pack(reserved_at_38=1)


@pytest.mark.parametrize("value", ["3", 3.0, None, b"\3"])
def test_a_number_is_a_whole_number(value: Any) -> None:
    with pytest.raises(ArgumentError, match=r"qpc\.pd takes a whole number 0\.\.0xffffff"):
        formats.qpc.pack(pd=value)


def test_numbers_of_numpy_and_truth_values_are_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    assert formats.qpc.pack(pd=numpy.uint32(7), rwe=True) == formats.qpc.pack(pd=7, rwe=1)


@pytest.mark.parametrize("value", [b"", bytes(15), bytes(17), 5, "x" * 16])
def test_bytes_have_exactly_their_length(value: Any) -> None:
    with pytest.raises(ArgumentError, match=r"ads\.rgid_rip takes exactly 16 bytes"):
        formats.ads.pack(rgid_rip=value)


def test_a_nested_format_may_be_given_packed() -> None:
    path = formats.ads.pack(hop_limit=64)
    assert formats.qpc.pack(primary_address_path=path) == formats.qpc.pack(primary_address_path={"hop_limit": 64})
    with pytest.raises(ArgumentError, match=r"qpc\.primary_address_path takes a dict or 44 bytes, not 43 bytes"):
        formats.qpc.pack(primary_address_path=path[1:])


def test_update_leaves_the_rest() -> None:
    buffer = bytearray(formats.create_qp_in.pack(opcode=0x500, qpc={"pd": 7, "mtu": 5}))
    formats.create_qp_in.update(memoryview(buffer), {"qpc": {"mtu": 3}})
    assert formats.create_qp_in.get(buffer, "qpc.pd") == 7
    assert formats.create_qp_in.get(buffer, "qpc.mtu") == 3
    assert formats.create_qp_in.offset("qpc.pd") == 0xC0 + 0x28


def test_codes_have_names_when_known_and_stay_when_not() -> None:
    known = formats.wqe_ctrl_seg.unpack(formats.wqe_ctrl_seg.pack(opcode=8))["opcode"]
    assert known is formats.MLX5_OPCODE_RDMA_WRITE
    assert formats.wqe_ctrl_seg.unpack(formats.wqe_ctrl_seg.pack(opcode=0x77))["opcode"] == 0x77


def test_tables_are_shared_and_do_not_change() -> None:
    assert formats.structs is formats.structs
    assert formats.qpc is formats.structs["qpc"]
    assert pickle.loads(pickle.dumps(formats.MLX5_OPCODE_NOP)) is formats.MLX5_OPCODE_NOP
    for change in (
        lambda: operator.setitem(formats.structs, "qpc", None),  # type: ignore[call-overload]
        lambda: operator.setitem(formats.qpc.fields, "pd", None),  # type: ignore[call-overload]
        lambda: setattr(formats.qpc, "bits", 0),
        lambda: setattr(formats.qpc.fields["pd"], "offset_bits", 0),
    ):
        with pytest.raises((AttributeError, TypeError)):
            change()
    with pytest.raises(AttributeError, match="no format, enum or constant 'nothing'"):
        formats.nothing
    assert {"qpc", "MLX5_OPCODE_NOP", "wqe_opcode", "gda_qp", "decode_wqe"} <= set(dir(formats))
