# SPDX-License-Identifier: Apache-2.0
"""Judges of the command formats: the kernel's mlx5_ifc.h, and rdma-core's own test structs for what is newer.

The software NIC reads the same declaration as the library, so a wrong bit there would pass every other test and fail
on every card. Both judges are read as text, by readers of their own.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gda import formats

from . import golden, linux_ifc, rdma_core_structs

COMMANDS = [struct for struct in formats.structs.values() if struct.source.startswith("command.h:")]

# Fields that the kernel of Debian 12 does not name: format -> field -> (class of rdma-core's tests, its name there).
# Source of each: the ConnectX manual as rdma-core quotes it (tests/mlx5_prm_structs.py; v56 for send_dbr_mode*).
NEWER: dict[str, dict[str, tuple[str, str]]] = {
    "cmd_hca_cap_2": {
        "send_dbr_mode_no_dbr_int": ("CmdHcaCap2", "send_dbr_mode_no_dbr_int"),
        "send_dbr_mode_no_dbr_ext": ("CmdHcaCap2", "send_dbr_mode_no_dbr_ext"),
    },
    "qpc": {"send_dbr_mode": ("SwQpc", "send_dbr_mode"), "dbr_umem_id": ("SwQpc", "dbr_umem_id")},
    "cqc": {"dbr_umem_id": ("SwCqc", "dbr_umem_id")},
    "create_mkey_in": {
        "mkey_umem_id": ("CreateMkeyIn", "mkey_umem_id"),
        "mkey_umem_offset": ("CreateMkeyIn", "mkey_umem_offset"),
    },
    "create_cq_in": {
        "cq_umem_offset": ("CreateCqIn", "e_mtt_pointer_or_cq_umem_offset"),
        "cq_umem_id": ("CreateCqIn", "cq_umem_id"),
    },
    "create_qp_in": {
        "wq_umem_offset": ("CreateQpIn", "e_mtt_pointer_or_wq_umem_offset"),
        "wq_umem_id": ("CreateQpIn", "wq_umem_id"),
    },
}
# Where rdma-core 56 has what the one of Debian 12 (44) does not know: read there, written down here.
FROM_VERSION_56 = {
    ("cmd_hca_cap_2", "send_dbr_mode_no_dbr_int"): (0x2E0, 1),
    ("cmd_hca_cap_2", "send_dbr_mode_no_dbr_ext"): (0x2E1, 1),
    ("qpc", "send_dbr_mode"): (0x80, 2),
}
# What later kernels have where this one has reserved bits: read in a later Linux header; DPDK has the same.
FROM_LATER_KERNEL = {
    "wq": {"dbr_umem_id": (0x140, 0x20), "wq_umem_id": (0x160, 0x20), "wq_umem_offset": (0x180, 0x40)},
}
# What no kernel header has: read in rdma-core's providers/mlx5/mlx5_ifc.h, which libmlx5 fills in.
FROM_LIBMLX5 = {
    "cmd_hca_cap": {"qpc_extension": (0x122, 1)},
    "rts2rts_qp_in": {"qpc_ext": (0x40, 1), "opt_param_mask_95_32": (0x840, 0x40)},
    "qpc_ext": {"dci_stream_channel_id": (0x10, 0x10)},
}
# Umem of a resized ring: as CREATE_CQ has it, in the bits that the kernel's MODIFY_CQ reserves before cq_umem_valid.
AS_IN_CREATE_CQ = {"cq_umem_offset", "cq_umem_id"}
# Formats that grew at their end: newer kernels put more behind what is declared here.
GROWN = {"cmd_hca_cap", "cmd_hca_cap_2", "query_qp_out"}

# What rdma-core's tests name like the kernel does, as a second opinion on whole structs: format -> (class, nested
# format there -> field here).
SECOND_OPINION: dict[str, tuple[str, dict[str, str]]] = {
    "qpc": ("SwQpc", {}),
    "cqc": ("SwCqc", {}),
    "mkc": ("SwMkc", {}),
    "ads": ("SwAds", {}),
    "create_qp_in": ("CreateQpIn", {"sw_qpc": "qpc"}),
    "create_qp_out": ("CreateQpOut", {}),
    "create_cq_in": ("CreateCqIn", {"sw_cqc": "cq_context"}),
    "create_cq_out": ("CreateCqOut", {}),
    "create_mkey_in": ("CreateMkeyIn", {"sw_mkc": "memory_key_mkey_entry"}),
    "create_mkey_out": ("CreateMkeyOut", {}),
    "rst2init_qp_in": ("ModifyQpIn", {"sw_qpc": "qpc"}),
    "init2rtr_qp_in": ("ModifyQpIn", {"sw_qpc": "qpc"}),
    "rtr2rts_qp_in": ("ModifyQpIn", {"sw_qpc": "qpc"}),
    "query_qp_in": ("QueryQpIn", {}),
    "query_qp_out": ("QueryQpOut", {"sw_qpc": "qpc"}),
    "query_hca_cap_in": ("QueryHcaCapIn", {}),
    "cmd_hca_cap": ("CmdHcaCap", {}),
}


@pytest.fixture(scope="module")
def kernel() -> linux_ifc.Kernel:
    return linux_ifc.Kernel()


@pytest.mark.parametrize("struct", COMMANDS, ids=lambda s: s.name)
def test_every_field_lies_where_the_kernel_has_it(struct: formats.Struct, kernel: linux_ifc.Kernel) -> None:
    if struct.name == "qpc_ext":
        size, theirs = 0x600, {}
    else:
        assert struct.name in kernel, "the kernel does not know this format"
        size, theirs = kernel.struct(struct.name)
    assert size == struct.bits or (size > struct.bits and struct.name in GROWN), "another size"
    for name, field in struct.fields.items():
        variant, before, width = linux_ifc.VARIANTS.get(struct.name, {}).get(name, ("", 0, 0))
        if variant and theirs.get(variant) == (field.offset_bits - before, width):
            continue
        place = (field.offset_bits, field.width_bits)
        if name not in theirs and struct.name in FROM_LATER_KERNEL:
            assert FROM_LATER_KERNEL[struct.name][name] == place, name
            continue
        if name not in theirs and name in FROM_LIBMLX5.get(struct.name, {}):
            assert FROM_LIBMLX5[struct.name][name] == place, name
            continue
        if name not in theirs and struct.name == "modify_cq_in" and name in AS_IN_CREATE_CQ:
            created = formats.structs["create_cq_in"].fields[name]
            assert (created.offset_bits, created.width_bits) == place, name
            continue
        if name not in theirs:
            assert name in NEWER.get(struct.name, {}), f"{name} is in neither header nor list"
            continue
        assert theirs[name] == place, name


def test_the_judge_sees_a_wrong_bit(kernel: linux_ifc.Kernel) -> None:
    """Spot checks by hand, so that an empty answer of the reader cannot pass."""
    size, theirs = kernel.struct("qpc")
    assert size == 0x740
    assert theirs["pd"] == (0x28, 24)
    assert theirs["log_sq_size"] == (0x51, 4)
    assert theirs["primary_address_path"] == (0xC0, 0x160)
    assert kernel.struct("query_hca_cap_out") == (
        0x80 + 0x8000,
        {
            "status": (0, 8), "reserved_at_8": (8, 0x18), "syndrome": (0x20, 0x20), "reserved_at_40": (0x40, 0x40),
            "capability": (0x80, 0x8000),
        },
    )  # fmt: skip


@pytest.mark.parametrize(("name", "field"), [(name, field) for name, fields in NEWER.items() for field in fields])
def test_a_field_newer_than_the_kernel_lies_where_rdma_core_has_it(name: str, field: str) -> None:
    classes = rdma_core_structs.read()
    theirs, their_name = NEWER[name][field]
    place = rdma_core_structs.members(classes, theirs).get(their_name) if theirs in classes else None
    if place is None:
        place = FROM_VERSION_56[name, field]
    ours = formats.structs[name].fields[field]
    assert place == (ours.offset_bits, ours.width_bits)


@pytest.mark.parametrize("name", SECOND_OPINION)
def test_rdma_core_agrees_on_every_field_that_it_names_alike(name: str) -> None:
    struct = formats.structs[name]
    theirs_class, nested = SECOND_OPINION[name]
    theirs = {}
    for path, place in rdma_core_structs.members(rdma_core_structs.read(), theirs_class).items():
        first, dot, rest = path.partition(".")
        theirs[nested.get(first, first) + dot + rest] = place
    ours = {path: (struct.offset(path), field.width_bits) for path, field in golden.paths(struct)}
    alike = (ours.keys() & theirs.keys()) - linux_ifc.VARIANTS.get(name, {}).keys()
    assert len(alike) >= 0.7 * len(ours), sorted(ours.keys() - alike)
    assert {path: theirs[path] for path in alike} == {path: ours[path] for path in alike}


def test_codes_are_the_kernels() -> None:
    theirs = linux_ifc.enum_values("mlx5_ifc.h", "device.h", "qp.h", "cq.h", "driver.h")
    compared = set()
    named = "cmd_opcode cmd_status qpc_state qpc_st qpc_pm_state qpc_mtu qpc_atomic_mode atomic_operation wq_type"
    for enum in (*named.split(), "rmpc_state", "dctc_state", "modify_cq_field", "qp_opt_param"):
        for member in formats.enums[enum]:
            name = ALIASES.get(member.name, member.name)
            assert theirs[name] == member.value, member.name
            compared.add(member.name)
    for enum in ("hca_cap_type", "qpc_rq_type", "mkc_access_mode"):
        for member in formats.enums[enum]:
            assert theirs[ALIASES[member.name]] == member.value, member.name
    for member in formats.enums["wqe_fence"]:  # there at its place in the byte
        assert theirs[member.name] == member.value << 5
    assert len(compared) > 50


# The kernel has no names for them. Source: InfiniBand Architecture Specification, annex A14 (XRC); volume 1, table
# "OpCode field": manufacturers have 0xc0 and on.
UNNAMED_TRANSPORTS = {"BTH_XRC": 0xA0, "BTH_MANUFACTURER": 0xC0, "BTH_DC": 0xE0}

ALIASES = {
    "HCA_CAP_GENERAL": "MLX5_CAP_GENERAL",
    "HCA_CAP_ATOMIC": "MLX5_CAP_ATOMIC",
    "HCA_CAP_ROCE": "MLX5_CAP_ROCE",
    "HCA_CAP_FLOW_TABLE": "MLX5_CAP_FLOW_TABLE",
    "HCA_CAP_QOS": "MLX5_CAP_QOS",
    "HCA_CAP_DEV_MEM": "MLX5_CAP_DEV_MEM",
    "HCA_CAP_GENERAL_2": "MLX5_CAP_GENERAL_2",
    "RQ_TYPE_REGULAR": "MLX5_NON_ZERO_RQ",
    "RQ_TYPE_SRQ": "MLX5_SRQ_RQ",
    "RQ_TYPE_ZERO_SIZE": "MLX5_ZERO_LEN_RQ",
    "MKC_ACCESS_MODE_PA": "MLX5_MKC_ACCESS_MODE_PA",
    "MKC_ACCESS_MODE_MTT": "MLX5_MKC_ACCESS_MODE_MTT",
    "MKC_ACCESS_MODE_KLM": "MLX5_MKC_ACCESS_MODE_KLMS",
    "MKC_ACCESS_MODE_KSM": "MLX5_MKC_ACCESS_MODE_KSM",
    "MKC_ACCESS_MODE_MEMIC": "MLX5_MKC_ACCESS_MODE_MEMIC",
}


def test_golden_commands_are_what_devx_set_writes(tmp_path: Path) -> None:
    stored = (golden.HERE / "golden_command.txt").read_text()
    only: dict[str, set[str]] = {}
    for block in stored.strip().split("\n\n"):
        name, *lines = block.splitlines()
        only[name] = {item.split("=")[0] for line in lines if ": " not in line for item in line.split()}
    assert golden.write_command(tmp_path, only) == stored


def test_packet_headers_are_the_kernels() -> None:
    """include/rdma/ib_hdrs.h and ib_pack.h: shifts within the words of a BTH, and opcodes."""
    text = (linux_ifc.directory() / "rdma/ib_hdrs.h").read_text()
    shifts = {name: int(value) for name, value in re.findall(r"#define IB_BTH_(\w+)_SHIFT\s+(\d+)", text)}
    masks = {name: int(value, 16) for name, value in re.findall(r"#define IB_BTH_(\w+)_MASK\s+(?:0x)?(\w+)", text)}
    pairs = {"OPCODE": "opcode", "SE": "se", "M": "mig_req", "PAD": "pad_count", "TVER": "tver", "A": "ack_req"}
    for theirs, ours in pairs.items():
        field = formats.bth.fields[ours]
        assert shifts[theirs] == 32 - field.offset_bits % 32 - field.width_bits, ours
        assert masks[theirs] == (1 << field.width_bits) - 1, ours
    opcodes = (linux_ifc.directory() / "rdma/ib_pack.h").read_text()
    theirs_by_name = {name: int(value, 16) for name, value in re.findall(r"IB_OPCODE_(\w+)\s*= 0x(\w+)", opcodes)}
    for member in formats.enums["bth_opcode"]:
        transport, _, operation = member.name.partition("_")
        assert theirs_by_name[transport] | theirs_by_name[operation] == member.value
    for member in formats.enums["bth_transport"]:
        if member.name in UNNAMED_TRANSPORTS:
            assert member.value << 5 == UNNAMED_TRANSPORTS[member.name]
            continue
        assert theirs_by_name[member.name.removeprefix("BTH_")] == member.value << 5
