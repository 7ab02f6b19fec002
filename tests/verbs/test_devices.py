# SPDX-License-Identifier: Apache-2.0
"""Devices, ports, GIDs: what libibverbs says about the software NIC, through the raw calls."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from gda import _verbs
from gda.errors import ClosedError, VerbsError


def test_list_has_an_mlx5_device(software):
    devices = _verbs.ibv_get_device_list()
    assert devices and devices[0].mlx5
    assert devices[0].guid != 0


def test_unknown_device_is_named(software):
    with pytest.raises(VerbsError, match=r"mlx5dv_open_device\(no_such_0, flags=0x1\) failed: ENODEV") as caught:
        _verbs.mlx5dv_open_device("no_such_0", _verbs.MLX5DV_CONTEXT_FLAGS_DEVX)
    assert caught.value.errno == errno.ENODEV
    with pytest.raises(VerbsError, match=r"ibv_open_device\(no_such_0\)"):
        _verbs.ibv_open_device("no_such_0")


def test_plain_open_and_close_again(software):
    context = _verbs.ibv_open_device(_verbs.ibv_get_device_list()[0].name)
    assert context.cmd_fd >= 0 and context.async_fd >= 0 and context.num_comp_vectors >= 1
    context.close()
    context.close()
    assert context.closed
    with pytest.raises(ClosedError, match="has been closed"):
        _verbs.ibv_query_device(context)


def test_query_device(context):
    plain, extended = _verbs.ibv_query_device(context), _verbs.ibv_query_device_ex(context)
    assert plain["vendor_part_id"] == 0x1021  # ConnectX-7
    assert plain["phys_port_cnt"] == 1 and plain["max_qp_wr"] >= 32768 and plain["fw_ver"]
    assert {key: extended[key] for key in plain} == plain
    assert "hca_core_clock" in extended


def test_query_port(context):
    port = _verbs.ibv_query_port(context, 1)
    assert port["state"] == _verbs.IBV_PORT_ACTIVE
    assert port["link_layer"] == _verbs.IBV_LINK_LAYER_ETHERNET
    assert port["active_mtu"] == _verbs.IBV_MTU_4096
    with pytest.raises(VerbsError, match=r"ibv_query_port\(\w+, 7\)"):
        _verbs.ibv_query_port(context, 7)


def test_gids_three_ways(context):
    size = _verbs.ibv_query_port(context, 1)["gid_tbl_len"]
    table = _verbs.ibv_query_gid_table(context, size)
    assert [entry.gid_type for entry in table[:4]] == 2 * [_verbs.IBV_GID_TYPE_ROCE_V1, _verbs.IBV_GID_TYPE_ROCE_V2]
    for entry in table:
        assert len(entry.gid) == 16 and any(entry.gid)
        assert _verbs.ibv_query_gid_ex(context, entry.port_num, entry.gid_index) == entry
        assert _verbs.ibv_query_gid(context, entry.port_num, entry.gid_index) == entry.gid


def test_empty_gid_is_an_error(context):
    size = _verbs.ibv_query_port(context, 1)["gid_tbl_len"]
    taken = {entry.gid_index for entry in _verbs.ibv_query_gid_table(context, size)}
    empty = next(i for i in range(size + 1) if i not in taken)
    with pytest.raises(VerbsError, match="ibv_query_gid_ex"):
        _verbs.ibv_query_gid_ex(context, 1, empty)


def test_pkey(context):
    assert _verbs.ibv_query_pkey(context, 1, 0) == 0xFFFF


def test_libraries_are_files():
    verbs, mlx5 = _verbs.library_paths()
    assert Path(verbs).resolve().name.startswith("libibverbs.so.1.")
    assert Path(mlx5).resolve().name.startswith("libmlx5.so.1.")
