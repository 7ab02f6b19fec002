# SPDX-License-Identifier: Apache-2.0
"""Firmware commands as bytes."""

from __future__ import annotations

import errno

import pytest

from gda import _verbs, formats
from gda.errors import ClosedError, VerbsError


def query(op_mod: int) -> bytes:
    return formats.query_hca_cap_in.pack(opcode=formats.MLX5_CMD_OP_QUERY_HCA_CAP, op_mod=op_mod)


def test_query_capabilities(context):
    out = formats.query_hca_cap_out
    answer = _verbs.mlx5dv_devx_general_cmd(context, query(1), out.bytes)
    assert len(answer) == out.bytes
    values = out.unpack(answer)
    assert values["status"] == 0
    general = formats.cmd_hca_cap.unpack(values["capability"][: formats.cmd_hca_cap.bytes])
    assert general["cqe_version"] == 1 and general["num_ports"] == 1 and general["port_type"] == 1


@pytest.mark.gda_complaints("command-refused")
def test_a_refused_command_carries_its_output(context):
    body = formats.create_cq_in.pack(opcode=formats.MLX5_CMD_OP_CREATE_CQ, cq_umem_valid=1, cq_umem_id=0xDEAD)
    with pytest.raises(_verbs.DevxError, match=r"mlx5dv_devx_obj_create\(.*EREMOTEIO") as caught:
        _verbs.mlx5dv_devx_obj_create(context, body, formats.create_cq_out.bytes)
    assert caught.value.errno == errno.EREMOTEIO
    assert formats.create_cq_out.unpack(caught.value.output)["status"] != 0
    assert context.children == 0


def test_counters_by_command(context):
    body = formats.alloc_q_counter_in.pack(opcode=formats.MLX5_CMD_OP_ALLOC_Q_COUNTER)
    made = _verbs.mlx5dv_devx_obj_create(context, body, formats.alloc_q_counter_out.bytes)
    number = formats.alloc_q_counter_out.unpack(made.output)["counter_set_id"]

    def counters(number: int) -> bytes:
        question = formats.query_q_counter_in.pack(opcode=formats.MLX5_CMD_OP_QUERY_Q_COUNTER, counter_set_id=number)
        return _verbs.mlx5dv_devx_obj_query(made, question, formats.query_q_counter_out.bytes)

    answer = formats.query_q_counter_out.unpack(counters(number))
    assert answer["status"] == 0 and answer["rx_write_requests"] == 0
    with pytest.raises(VerbsError, match="EINVAL"):  # another set than the handle's
        counters(number + 1)
    port = formats.query_vport_counter_in.pack(opcode=formats.MLX5_CMD_OP_QUERY_VPORT_COUNTER)
    out = formats.query_vport_counter_out
    assert out.unpack(_verbs.mlx5dv_devx_general_cmd(context, port, out.bytes))["status"] == 0
    made.close()


def test_closed_context_refuses_commands(software):
    context = _verbs.mlx5dv_open_device(_verbs.ibv_get_device_list()[0].name, _verbs.MLX5DV_CONTEXT_FLAGS_DEVX)
    context.close()
    with pytest.raises(ClosedError):
        _verbs.mlx5dv_devx_general_cmd(context, query(1), 16)
