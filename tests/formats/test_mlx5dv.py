# SPDX-License-Identifier: Apache-2.0
"""Judge of the queue formats: rdma-core's infiniband/mlx5dv.h, asked by compiled programs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from gda import formats

from . import compilers, golden

PACKAGE = "libibverbs-dev"

# Struct of mlx5dv.h, its format here, and member -> the fields in it, in order. A member with one field equals it.
MEMBERS: dict[str, tuple[str, dict[str, tuple[str, ...]]]] = {
    "mlx5_wqe_ctrl_seg": (
        "wqe_ctrl_seg",
        {
            "opmod_idx_opcode": ("opmod", "wqe_index", "opcode"),
            "qpn_ds": ("qp_or_sq", "ds"),
            "signature": ("signature",),
            "dci_stream_channel_id": ("dci_stream_channel_id",),
            "fm_ce_se": ("fm", "ce", "se"),
            "imm": ("imm",),
        },
    ),
    "mlx5_wqe_raddr_seg": ("wqe_raddr_seg", {"raddr": ("raddr",), "rkey": ("rkey",)}),
    "mlx5_wqe_data_seg": ("wqe_data_seg", {"byte_count": ("byte_count",), "lkey": ("lkey",), "addr": ("addr",)}),
    "mlx5_wqe_inl_data_seg": ("wqe_inline_seg", {"byte_count": ("is_inline", "byte_count")}),
    "mlx5_wqe_atomic_seg": ("wqe_atomic_seg", {"swap_add": ("swap_add",), "compare": ("compare",)}),
    "mlx5_wqe_av": (
        "wqe_av_seg",
        {
            "key.qkey.qkey": ("qkey",),
            "dqp_dct": ("extended", "dqp_dct"),
            "stat_rate_sl": ("stat_rate", "sl"),
            "fl_mlid": ("fl", "mlid"),
            "rlid": ("rlid_udp_sport",),
            "rmac": ("rmac_47_16", "rmac_15_0"),
            "tclass": ("tclass",),
            "hop_limit": ("hop_limit",),
            "grh_gid_fl": ("grh", "src_addr_index", "flow_label"),
            "rgid": ("rgid",),
        },
    ),
    "mlx5_wqe_umr_ctrl_seg": (
        "wqe_umr_ctrl_seg",
        {
            "flags": ("is_inline", "check_free", "translation_offset_en", "check_qpn"),
            "klm_octowords": ("klm_octowords",),
            "bsf_octowords": ("bsf_octowords",),
            "mkey_mask": (
                *("mask_free", "mask_a", "mask_rw", "mask_rr", "mask_lw", "mask_qpn", "mask_mkey", "mask_bsf_en"),
                *("mask_sigerr_count", "mask_start_addr", "mask_len"),
            ),
        },
    ),
    "mlx5_wqe_umr_klm_seg": (
        "wqe_umr_klm_seg",
        {"byte_count": ("byte_count",), "mkey": ("mkey",), "address": ("address",)},
    ),
    "mlx5_wqe_umr_repeat_block_seg": (
        "wqe_umr_repeat_block_seg",
        {"byte_count": ("byte_count",), "op": ("op",), "repeat_count": ("repeat_count",), "num_ent": ("num_ent",)},
    ),
    "mlx5_wqe_umr_repeat_ent_seg": (
        "wqe_umr_repeat_ent_seg",
        {"stride": ("stride",), "byte_count": ("byte_count",), "memkey": ("memkey",), "va": ("va",)},
    ),
    "mlx5_wqe_srq_next_seg": (
        "wqe_srq_next_seg",
        {"next_wqe_index": ("next_wqe_index",), "signature": ("signature",)},
    ),
    "mlx5_cqe64": (
        "cqe64",
        {
            "wqe_id": ("wqe_id",),
            "ml_path": ("ml_path",),
            "slid": ("slid",),
            "flags_rqpn": ("grh", "sl", "rqpn"),
            "hds_ip_ext": ("hds_ip_ext",),
            "l4_hdr_type_etc": ("l4_hdr_type_etc",),
            "vlan_info": ("vlan_info",),
            "srqn_uidx": ("srqn_uidx",),
            "imm_inval_pkey": ("imm_inval_pkey",),
            "app": ("app",),
            "app_op": ("app_op",),
            "app_info": ("app_info",),
            "byte_cnt": ("byte_cnt",),
            "timestamp": ("timestamp",),
            "sop_drop_qpn": ("sop_drop_qpn_opcode", "qpn"),
            "wqe_counter": ("wqe_counter",),
            "signature": ("signature",),
            "op_own": ("opcode", "cqe_format", "se", "owner"),
        },
    ),
    "mlx5_err_cqe": (
        "err_cqe",
        {
            "srqn": ("srqn_uidx",),
            "vendor_err_synd": ("vendor_error_syndrome",),
            "syndrome": ("syndrome",),
            "s_wqe_opcode_qpn": ("s_wqe_opcode", "qpn"),
            "wqe_counter": ("wqe_counter",),
            "signature": ("signature",),
            "op_own": ("opcode", "cqe_format", "se", "owner"),
        },
    ),
}
# Fields that mlx5dv.h has no name for, and who has. All others are compared.
ELSEWHERE = {
    "err_cqe": {"hw_error_syndrome", "hw_syndrome_type"},  # Linux 6.4 and later: mlx5_ifc_cqe_error_syndrome_bits
}
NARROWER = {("wqe_data_seg", "byte_count")}  # its top bit says that the segment is an inline one
FLAGS = (
    "MLX5_WQE_CTRL_CQ_UPDATE",
    "MLX5_WQE_CTRL_SOLICITED",
    "MLX5_WQE_CTRL_FENCE",
    "MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE",
    "MLX5_SND_DBR",
    "MLX5_RCV_DBR",
    "MLX5_INLINE_SEG",
    "MLX5_INVALID_LKEY",
    "MLX5_SEND_WQE_BB",
    "MLX5_CQE_OWNER_MASK",
    "MLX5_INLINE_SCATTER_32",
    "MLX5_INLINE_SCATTER_64",
    "MLX5_CQ_DB_REQ_NOT_SOL",
    "MLX5_CQ_DB_REQ_NOT",
    "MLX5_CQ_DOORBELL",
)
CONSTANTS = [name for name in formats.constants if name.startswith(("MLX5_OPCODE_", "MLX5_CQE_"))]


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, ...]]:
    """Offsets and sizes in bytes, and values of constants, as the C compiler sees mlx5dv.h."""
    compiler = compilers.with_header("cc", "infiniband/mlx5dv.h", PACKAGE)
    lines = ["#include <infiniband/mlx5dv.h>", "#include <stddef.h>", "#include <stdio.h>", "int main(void) {"]
    for struct, (_, members) in MEMBERS.items():
        lines.append(f'printf("{struct} %zu\\n", sizeof(struct {struct}));')
        for member in members:
            place = f"offsetof(struct {struct}, {member}), sizeof(((struct {struct} *)0)->{member})"
            lines.append(f'printf("{struct}.{member} %zu %zu\\n", {place});')
    lines += [f'printf("{name} %lld\\n", (long long){name});' for name in (*FLAGS, *CONSTANTS)]
    directory = tmp_path_factory.mktemp("mlx5dv")
    source = directory / "ask.c"
    source.write_text("\n".join([*lines, "return 0; }", ""]))
    out = compilers.run(compilers.build(compiler, source, directory))
    return {line.split()[0]: tuple(map(int, line.split()[1:])) for line in out.splitlines()}


@pytest.mark.parametrize("theirs", MEMBERS)
def test_places(answer: dict[str, tuple[int, ...]], theirs: str) -> None:
    name, members = MEMBERS[theirs]
    struct = formats.structs[name]
    assert answer[theirs] == (struct.bytes,)
    for member, fields in members.items():
        offset, size = answer[f"{theirs}.{member}"]
        first, last = struct.fields[fields[0]], struct.fields[fields[-1]]
        if (name, member) not in NARROWER:
            assert first.offset_bits >= 8 * offset, member
        end = last.offset_bits + last.width_bits
        assert 8 * offset < end <= 8 * (offset + size), member
        if len(fields) == 1 and (name, member) not in NARROWER:
            assert (first.offset_bits, first.width_bits) == (8 * offset, 8 * size), member


@pytest.mark.parametrize("theirs", MEMBERS)
def test_every_field_is_compared(theirs: str) -> None:
    name, members = MEMBERS[theirs]
    compared = {field for fields in members.values() for field in fields}
    assert compared | ELSEWHERE.get(name, set()) == set(formats.structs[name].fields)


def test_constants(answer: dict[str, tuple[int, ...]]) -> None:
    assert len(CONSTANTS) > 35
    for name in CONSTANTS:
        assert answer[name] == (formats.constants[name],), name


def test_flags_of_the_control_segment(answer: dict[str, tuple[int, ...]]) -> None:
    def flags(**fields: int) -> tuple[int]:
        return (formats.wqe_ctrl_seg.pack(**fields)[11],)

    assert answer["MLX5_WQE_CTRL_CQ_UPDATE"] == flags(ce=formats.CE_ALWAYS)
    assert answer["MLX5_WQE_CTRL_SOLICITED"] == flags(se=1)
    assert answer["MLX5_WQE_CTRL_FENCE"] == flags(fm=formats.MLX5_FENCE_MODE_SMALL_AND_FENCE)
    assert answer["MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE"] == flags(fm=formats.MLX5_FENCE_MODE_INITIATOR_SMALL)


def test_records_and_doorbells(answer: dict[str, tuple[int, ...]]) -> None:
    record = formats.qp_doorbell_record
    assert record.fields["receive_counter"].offset_bits // 32 == answer["MLX5_RCV_DBR"][0]
    assert record.fields["send_counter"].offset_bits // 32 == answer["MLX5_SND_DBR"][0]
    armed = int.from_bytes(formats.cq_doorbell.pack(solicited_only=1)[:4], "big")
    assert answer["MLX5_CQ_DB_REQ_NOT_SOL"] == (armed,)
    assert answer["MLX5_CQ_DB_REQ_NOT"] == (0,)
    assert answer["MLX5_CQ_DOORBELL"] == (formats.UAR_CQ_DOORBELL,)


def test_inline_and_sizes(answer: dict[str, tuple[int, ...]]) -> None:
    assert answer["MLX5_INLINE_SEG"] == (int.from_bytes(formats.wqe_inline_seg.pack(is_inline=1), "big"),)
    assert answer["MLX5_INVALID_LKEY"] == (formats.LKEY_END_OF_LIST,)
    assert answer["MLX5_SEND_WQE_BB"] == (formats.WQE_BASIC_BLOCK_BYTES,)
    assert answer["MLX5_CQE_OWNER_MASK"] == (formats.cqe64.pack(owner=1)[63],)
    for size in (32, 64):
        packed = formats.cqe64.pack(cqe_format=formats.constants[f"CQE_FORMAT_INLINE_{size}"])
        assert answer[f"MLX5_INLINE_SCATTER_{size}"] == (packed[63],)


def test_golden_bytes_are_what_rdma_core_writes(tmp_path: Path) -> None:
    assert golden.write_queue(tmp_path) == (golden.HERE / "golden_queue.txt").read_text()


def test_random_work_requests_are_written_alike(tmp_path: Path) -> None:
    compilers.with_header("cc", "infiniband/mlx5dv.h", PACKAGE)
    program = compilers.build(
        compilers.find("g++"), golden.HERE / "random_segments.cc", tmp_path, *compilers.STANDARD, "-O2"
    )
    seed, rounds = "20261130", "100000"
    result = subprocess.run([program, seed, rounds], capture_output=True, text=True, timeout=60)
    assert result.stdout == f"{rounds} rounds, 0 differences\n", f"seed {seed}: {result.stdout}{result.stderr}"
