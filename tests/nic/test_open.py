# SPDX-License-Identifier: Apache-2.0
"""Opening, capabilities, GIDs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import gda.nic
from gda import _verbs, attach, formats
from gda.errors import ArgumentError, ClosedError, CommandError, UnavailableError
from gda.nic import command

ROOT = Path(__file__).resolve().parents[2]


def run_python(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )  # fmt: skip


def test_what_it_is(nic):
    assert nic.is_software and nic.name.startswith("mlx5_")
    assert nic.description.startswith("software ConnectX behind libibverbs ")
    assert nic.library.split()[1][0].isdigit()
    assert nic.part == "ConnectX-7" and nic.firmware
    assert nic.port.is_active and nic.port.is_ethernet and nic.port.mtu_bytes == 4096 and nic.port_state == "ACTIVE"
    assert nic.description in repr(nic)


def test_unknown_name_lists_what_exists(software, nic):
    with pytest.raises(ArgumentError, match=f"no NIC named 'mlx5_9'; NICs here: .*{nic.name}"):
        gda.nic.open("mlx5_9")


def test_open_by_name_and_twice(nic):
    with gda.nic.open(nic.name) as other:
        assert other.name == nic.name and other.pdn != nic.pdn


def test_unknown_port(software):
    before = software.objects()
    with pytest.raises(ArgumentError, match="has no port 3"):
        gda.nic.open(port=3)
    assert software.objects() == before


def test_mode_real_needs_a_process_without_the_software_nic(software, monkeypatch):
    monkeypatch.setenv("GDA_NIC", "real")
    with pytest.raises(UnavailableError, match="software NIC is attached"):
        gda.nic.open()


def test_mode_real_without_hardware_says_what_is_missing():
    if Path("/sys/class/infiniband").is_dir() and list(Path("/sys/class/infiniband").iterdir()):
        pytest.skip("not run: this machine has an RDMA device")
    result = run_python("import gda\ngda.open()", GDA_NIC="real")
    assert "UnavailableError: GDA_NIC=real, but libibverbs lists no device that would do" in result.stderr


def test_mode_auto_attaches_by_itself():
    result = run_python(
        "import gda\nfrom gda import attach\nassert attach.loaded() is None and attach.idle_hook_address() == 0\n"
        "nic = gda.open()\nprint(nic.is_software, attach.loaded() is not None, attach.idle_hook_address() != 0)",
        GDA_NIC="",
    )
    if Path("/sys/class/infiniband").is_dir() and list(Path("/sys/class/infiniband").iterdir()):
        pytest.skip("not run: this machine has an RDMA device")
    assert result.stdout.split() == ["True", "True", "True"], result.stderr


def test_wrong_mode_is_refused(monkeypatch):
    monkeypatch.setenv("GDA_NIC", "hardware")
    with pytest.raises(ArgumentError, match="GDA_NIC='hardware' is not one of auto, real, software"):
        gda.nic.open()


def test_capabilities_have_the_manuals_names(nic):
    capabilities = nic.capabilities
    assert capabilities.cqe_version == 1 and capabilities.rc == 1 and capabilities.roce == 1
    assert capabilities.log_max_qp_sz == capabilities.groups["general"]["log_max_qp_sz"] >= 10
    assert capabilities.send_dbr_mode_no_dbr_ext == 1  # group GENERAL_2
    assert capabilities.roce_address_table_size > 0  # group ROCE
    assert capabilities.groups["atomic"].keys() >= {"atomic_operations", "atomic_size_qp"}
    with pytest.raises(AttributeError, match="no_such_field"):
        capabilities.no_such_field


def test_gids(nic):
    gids = nic.gids
    assert [gid.type for gid in gids[:4]] == ["RoCE v1", "RoCE v2", "RoCE v1", "RoCE v2"]
    assert gids[1].index == 1 and gids[1].address.is_link_local
    assert gids[3].is_ipv4 and str(gids[3]).startswith("127.")
    index, best = nic.pick_gid()
    assert index == best.index == 3 and best.type == "RoCE v2" and best.is_ipv4
    assert nic.pick_gid(1) == (1, gids[1])
    with pytest.raises(ArgumentError, match=r"GID index 200 of mlx5_\d is empty(.|\n)*RoCE v2"):
        nic.pick_gid(200)
    assert len(nic.mac(1)) == 6 and any(nic.mac(1))


def test_commands_by_keyword(nic):
    raw = command.query_hca_cap(nic.context, formats.HCA_CAP_GENERAL)
    assert len(raw) == 4096
    assert formats.cmd_hca_cap.unpack(raw[:256])["num_ports"] == 1
    entry = command.query_roce_address(nic.context, roce_address_index=3, vhca_port_num=1)
    assert entry["source_l3_address"] == nic.gids[3].raw


@pytest.mark.gda_complaints("command-refused")
def test_a_refused_command_says_which_and_why(nic):
    with pytest.raises(CommandError) as caught:
        command.create_qp(nic.context, qpc={"st": formats.MLX5_QPC_ST_RC, "pd": 0xABCDEF}, wq_umem_id=77)
    error = caught.value
    assert error.status in {int(s) for s in formats.cmd_status} - {0} and error.syndrome
    assert "create_qp(qpc={st: 0, pd: 0xabcdef}, wq_umem_id=0x4d)" in str(error)
    assert "the NIC says: no such protection domain" in error.meaning and error.advice


def test_a_command_that_the_driver_stops_is_named(nic):
    with nic.queue_pair() as queue, pytest.raises(_verbs.DevxError, match="mlx5dv_devx_obj_query") as caught:
        command.query_qp(queue._carrier.qp, qpn=5)  # another queue pair than the object's
    assert "query_qp(qpn=5)" in caught.value.__notes__[0]


def test_unknown_field_never_reaches_the_nic(nic, software):
    before = software.counter("commands")
    with pytest.raises(ArgumentError, match="no field 'sttate'"):
        command.create_qp(nic.context, qpc={"sttate": 1})
    assert software.counter("commands") == before


def test_everything_closed_refuses(software):
    nic = gda.nic.open()
    nic.close()
    nic.close()
    assert nic.closed
    for use in (lambda: nic.gids, lambda: nic.register(bytearray(8)), lambda: nic.allocate(8), nic.queue_pair):
        with pytest.raises(ClosedError, match="NIC mlx5_"):
            use()


def test_attach_is_one_object(software):
    assert attach.software_nic() is software is attach.loaded()
    assert software.counters().keys() >= {"commands", "doorbells", "wqes", "cqes"}
    with pytest.raises(ArgumentError, match="no counter 'nonsense'"):
        software.counter("nonsense")
    with pytest.raises(ArgumentError, match="thread mode 'fast'"):
        software.set_thread("fast")
    assert software.last_doorbell(0xFFFFFF) is None


def test_library_not_built_says_how_to_build():
    result = run_python("from gda import attach\nattach.software_nic()", GDA_SIM_LIBRARY="/nowhere/libgda_sim.so")
    assert "UnavailableError: the software NIC's library /nowhere/libgda_sim.so does not exist" in result.stderr
    assert "build_ext" in result.stderr


def test_library_that_is_no_library(tmp_path):
    path = tmp_path / "libgda_sim.so"
    path.write_text("not a library")
    result = run_python("from gda import attach\nattach.software_nic()", GDA_SIM_LIBRARY=str(path))
    assert "UnavailableError: the software NIC's library does not load" in result.stderr


@pytest.mark.parametrize("number", ["0", "9", "two"])
def test_a_number_of_software_nics_that_there_is_not(number: str) -> None:
    """One had been made, or eight, without a word."""
    done = run_python("import gda; gda.open()", GDA_NIC="software", GDA_SIM_NICS=number)
    assert done.returncode == 1 and f"GDA_SIM_NICS='{number}' is not one of 1, 2" in done.stderr
