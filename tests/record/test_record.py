# SPDX-License-Identifier: Apache-2.0
"""A record of the software NIC: what it holds; two agree; every planted difference is found and named."""

from __future__ import annotations

import copy
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gda import formats
from gda.errors import ArgumentError
from gda.tools.record import SCHEMA, compare

ROOT = Path(__file__).resolve().parents[2]
Record = dict[str, Any]


def gda(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gda", *map(str, arguments)], capture_output=True, text=True, timeout=120, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "GDA_NIC": "software", **environment},
    )  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two records of two processes."""
    folder = tmp_path_factory.mktemp("records")
    for name in ("a", "b"):
        done = gda("record", "--no-demo", "--out", folder / f"{name}.json")
        assert done.returncode == 0, done.stderr
    return folder / "a.json", folder / "b.json"


@pytest.fixture(scope="module")
def loaded(files: tuple[Path, Path]) -> Record:
    return json.loads(files[0].read_text())


@pytest.fixture
def record(loaded: Record) -> Record:
    return copy.deepcopy(loaded)


def step(record: Record, name: str) -> Record:
    return next(s for s in record["steps"] if s["name"] == name)


def test_what_a_record_holds(record: Record) -> None:
    assert record["schema"] == SCHEMA and record["nic"]["is_software"]
    assert record["capabilities"]["general"]["log_max_qp_sz"] == 15
    names = {c["name"] for c in record["commands"]}
    assert names >= {
        "query_hca_cap", "create_mkey", "create_cq", "create_qp", "rst2init_qp", "init2rtr_qp", "rtr2rts_qp", "qp_2rst",
        "query_qp", "query_roce_address",
    }  # fmt: skip
    for command in record["commands"]:  # hex and fields say the same
        body = bytes.fromhex(command["in"])
        assert formats.structs[f"{command['name']}_in"].unpack(body)["opcode"] == command["in_fields"]["opcode"]
        assert command["ns"] > 0 and command["out"]
    put = step(record, "put 4096")
    assert (put["outcome"], put["data"], put["state"]) == ("ok", "ok", "RTS")
    (request,), (completion,) = put["requests"], put["completions"]
    assert [p["format"] for p in request["parts"]] == ["wqe_ctrl_seg", "wqe_raddr_seg", "wqe_data_seg"]
    assert request["parts"][2]["fields"]["byte_count"] == 4096 and len(bytes.fromhex(request["hex"])) == 64
    assert completion["kind"] == "MLX5_CQE_REQ"
    assert step(record, "send immediate")["receives"][0]["fields"]["imm_inval_pkey"] == 0x11223344
    assert step(record, "fetch and add")["fetched"] == 100


@pytest.mark.parametrize(
    ("name", "syndrome", "vendor"),
    [
        ("unknown remote key", 0x13, 0x88), ("unknown local key", 0x04, 0x51),
        ("message longer than the receive", 0x12, 0x8A), ("receiver not ready", 0x16, 0x87),
        ("nobody answers", 0x15, 0x81),
    ],
)  # fmt: skip
def test_deliberate_errors(record: Record, name: str, syndrome: int, vendor: int) -> None:
    failed = step(record, f"error: {name}")
    assert failed["outcome"] == "CompletionError" and failed["error"]["syndrome"] == syndrome
    assert failed["state"] == "ERR"
    fields = failed["completions"][0]["fields"]
    assert (fields["syndrome"], fields["vendor_error_syndrome"]) == (syndrome, vendor)


def test_a_refused_command_is_written_down(record: Record) -> None:
    refused = step(record, "error: command with an unknown protection domain")
    assert refused["outcome"] == "CommandError" and refused["error"]["status"]
    command = record["commands"][-1]
    assert command["name"] == "create_qp" and command["out_fields"]["status"] == refused["error"]["status"]
    assert command["out_fields"]["syndrome"] == refused["error"]["syndrome"]


def test_two_records_of_the_software_nic_agree(files: tuple[Path, Path]) -> None:
    done = gda("record", "diff", *files)
    assert done.returncode == 0, done.stdout
    assert ", 0 differ" in done.stdout and "not compared: ns (times" in done.stdout
    assert int(done.stdout.split()[0]) > 10_000


def test_their_numbers_really_differ(files: tuple[Path, Path]) -> None:
    """Two runs do not agree because nothing ever changes: addresses do."""
    first, second = (json.loads(f.read_text()) for f in files)
    addresses = [step(r, "put 8")["requests"][0]["parts"][1]["fields"]["raddr"] for r in (first, second)]
    assert addresses[0] != addresses[1]


# --------------------------------------------------------------------------------------- planted differences
def command(record: Record, step_name: str, name: str) -> Record:
    return next(c for c in record["commands"] if (c["step"], c["name"]) == (step_name, name))


def change(record: Record, *path: Any, to: Any) -> None:
    for key in path[:-1]:
        record = record[key]
    record[path[-1]] = to


def other_queue(record: Record) -> None:
    """The completion names another queue pair than the one that was made."""
    fields = step(record, "put 8")["completions"][0]["fields"]
    fields["qpn"] = command(record, "put 8", "init2rtr_qp")["in_fields"]["qpc"]["remote_qpn"] + 1000


def swapped_keys(record: Record) -> None:
    put = step(record, "put 8")["requests"][0]["parts"]
    put[1]["fields"]["rkey"], put[2]["fields"]["lkey"] = put[2]["fields"]["lkey"], put[1]["fields"]["rkey"]


def lose_command(record: Record) -> None:
    record["commands"].remove(command(record, "put 8", "rtr2rts_qp"))


def lose_completion(record: Record) -> None:
    step(record, "put 8")["completions"].clear()


def lose_step(record: Record) -> None:
    record["steps"].remove(step(record, "nop"))


PLANTED: list[tuple[str, Callable[[Record], None], str, str]] = [
    ("a capability", lambda r: change(r, "capabilities", "general", "log_max_qp_sz", to=14), "capabilities",
     "capability general.log_max_qp_sz: 15 (0xf) / 14 (0xe)"),
    ("a port", lambda r: change(r, "nic", "port_attributes", "active_mtu", to=3), "nic",
     "nic port_attributes active_mtu: 5 / 3"),
    ("a table of addresses", lambda r: change(r, "nic", "gids", 3, to=[3, "RoCE v1"]), "nic", "nic gids: "),
    ("a command's status", lambda r: change(command(r, "put 8", "create_qp"), "out_fields", "status", to=3), "commands",
     "command create_qp 1 of step [put 8] answer status: 0 / 3"),
    ("a command's syndrome", lambda r: change(r["commands"][-1], "out_fields", "syndrome", to=0xABCD), "commands",
     "answer syndrome"),
    ("a field of a command", lambda r: change(
        command(r, "put 8", "init2rtr_qp"), "in_fields", "qpc", "min_rnr_nak", to=1
    ), "commands", "command init2rtr_qp 1 of step [put 8] field qpc min_rnr_nak: 12 (0xc) / 1"),
    ("a field of an answer", lambda r: change(command(r, "put 8", "query_qp"), "out_fields", "qpc", "state", to=6),
     "commands", "command query_qp 1 of step [put 8] answer qpc state: 3 / 6"),
    ("a command less", lose_command, "commands", "command rtr2rts_qp 2 of step [put 8]: issued / nothing"),
    ("an outcome", lambda r: change(step(r, "put 8"), "outcome", to="DeadlineError"), "steps",
     "step [put 8] outcome: ok / DeadlineError"),
    ("data", lambda r: change(step(r, "put 8"), "data", to="3 of 8 bytes are wrong"), "steps",
     "step [put 8] data: ok / 3 of 8 bytes are wrong"),
    ("a result of an atomic", lambda r: change(step(r, "fetch and add"), "fetched", to=105), "steps",
     "step [fetch and add] fetched: 100 (0x64) / 105 (0x69)"),
    ("a syndrome", lambda r: change(step(r, "error: nobody answers"), "completions", 0, "fields", "syndrome", to=0x16),
     "steps", "step [error: nobody answers] completion [0] syndrome: 21 (0x15) / 22 (0x16)"),
    ("a vendor's syndrome", lambda r: change(
        step(r, "error: unknown remote key"), "completions", 0, "fields", "vendor_error_syndrome", to=0x89
    ), "steps", "vendor_error_syndrome: 136 (0x88) / 137 (0x89)"),
    ("a kind of completion", lambda r: change(step(r, "put 8"), "completions", 0, "kind", to="MLX5_CQE_REQ_ERR"),
     "steps", "step [put 8] completion [0]: MLX5_CQE_REQ / MLX5_CQE_REQ_ERR"),
    ("a field of a completion", lambda r: change(step(r, "put 8"), "completions", 0, "fields", "byte_cnt", to=9),
     "steps", "step [put 8] completion [0] byte_cnt: 8 / 9"),
    ("a completion less", lose_completion, "steps", "step [put 8] completion [0]: MLX5_CQE_REQ / nothing"),
    ("a completion of another queue", other_queue, "steps", "step [put 8] completion [0] qpn: qpn#"),
    ("a field of a request", lambda r: change(step(r, "put 8"), "requests", 0, "parts", 0, "fields", "ce", to=0),
     "steps", "step [put 8] request [0] wqe_ctrl_seg 0 ce: 2 / 0"),
    ("keys in each other's place", swapped_keys, "steps", "wqe_data_seg 2 lkey: key#"),
    ("a step less", lose_step, "steps", "step [nop]: tried / nothing"),
    ("a state", lambda r: change(step(r, "put 8"), "state", to="ERR"), "steps", "step [put 8] state: RTS / ERR"),
]  # fmt: skip


@pytest.mark.parametrize("planted", PLANTED, ids=[row[0] for row in PLANTED])
def test_a_planted_difference_is_found_and_named(loaded: Record, record: Record, planted: Any) -> None:
    _, plant, area, said = planted
    plant(record)
    found = compare(loaded, record).differences
    assert found and found[0].area == area, found[:3]
    assert any(said in str(d) for d in found), [str(d) for d in found]
    assert len(found) <= 8, [str(d) for d in found]  # named, not buried


def test_what_means_most_comes_first(loaded: Record, record: Record) -> None:
    for name, plant, _, _ in PLANTED:
        if "less" not in name:
            plant(record)
    areas = [d.area for d in compare(loaded, record).differences]
    assert areas == sorted(areas, key=["nic", "capabilities", "commands", "steps"].index)
    assert set(areas) == {"nic", "capabilities", "commands", "steps"}


def test_volatile_numbers_alone_make_no_difference(loaded: Record, record: Record) -> None:
    text = json.dumps(record)
    qpn = command(record, "put 8", "create_qp")["out_fields"]["qpn"]
    for name in ("qpn", "qp_or_sq"):
        text = text.replace(f'"{name}": {qpn}', f'"{name}": 777777')
    moved = json.loads(text)
    for c in moved["commands"]:
        c["ns"] += 1000
        qpc = c["in_fields"].get("qpc", {})
        if qpc.get("remote_qpn") == qpn:
            qpc["remote_qpn"] = 777777
        if c["out_fields"].get("qpc", {}).get("remote_qpn") == qpn:
            c["out_fields"]["qpc"]["remote_qpn"] = 777777
    for s in moved["steps"]:
        s["ns"] *= 2
        for entry in [*s["completions"], *s["receives"]]:
            if entry.get("fields", {}).get("rqpn") == qpn:
                entry["fields"]["rqpn"] = 777777
    assert [str(d) for d in compare(loaded, moved).differences] == []


def test_a_really_different_nic(files: tuple[Path, Path], tmp_path: Path) -> None:
    """The same software NIC behind a shorter link: what follows from it is named after its cause."""
    out = tmp_path / "short.json"
    assert gda("record", "--no-demo", "--out", out, GDA_SIM_MTU="1500").returncode == 0
    done = gda("record", "diff", files[0], out)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[0] == "nic:" and "active_mtu: 5 / 3" in lines[2]
    assert any("field qpc mtu: 5 / 3   (and at 35 more places)" in line for line in lines), done.stdout
    report = json.loads(gda("record", "diff", "--json", files[0], out).stdout)
    assert {"area": "nic", "where": "nic port mtu", "first": 5, "second": 3} in report["differences"]


def test_the_other_end_in_another_process(tmp_path: Path, files: tuple[Path, Path]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GDA_NIC": "software"}
    listener = subprocess.Popen(
        [sys.executable, "-m", "gda", "record", "--listen", str(port)], stdout=subprocess.PIPE, text=True, cwd=ROOT,
        env=environment,
    )  # fmt: skip
    try:
        assert listener.stdout is not None and "listening on port" in listener.stdout.readline()
        out = tmp_path / "peer.json"
        done = gda("record", "--no-demo", "--peer", f"127.0.0.1:{port}", "--out", out)
        assert done.returncode == 0, done.stderr
        assert listener.wait(60) == 0
    finally:
        listener.kill()
        listener.wait()
    there, here = json.loads(out.read_text()), json.loads(files[0].read_text())
    assert there["peer"] == "another process"
    assert [(s["name"], s["outcome"], s.get("data")) for s in there["steps"]] == [
        (s["name"], s["outcome"], s.get("data")) for s in here["steps"]
    ]
    found = compare(here, there).differences
    assert found[0].where == "the other end"


def test_with_the_demo_and_what_doctor_says(tmp_path: Path) -> None:
    out = tmp_path / "whole.json"
    done = gda("record", "--out", out)
    assert done.returncode == 0 and "kernels on" in done.stdout, done.stderr
    data = json.loads(out.read_text())
    assert "first put: ok" in step(data, "demo")["text"]
    assert data["doctor"]["schema"] == 1 and data["doctor"]["lines"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "record needs a file to write to"), (("--out", "/nowhere/x.json"), "there is no directory '/nowhere'"),
        (("diff", "/nowhere/a", "/nowhere/b"), "cannot be read as a record"),
        (("--out", "x", "--no-demo", "--peer", "nobody"), "is no HOST:PORT"),
        (("--out", "x", "--no-demo", "--peer", "127.0.0.1:1"), "does not answer"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_said(arguments: tuple[str, ...], said: str) -> None:
    done = gda("record", *arguments)
    assert done.returncode == 1 and said in done.stderr and "try:" in done.stderr, done.stderr


def test_no_record_and_another_schema(loaded: Record, record: Record) -> None:
    with pytest.raises(ArgumentError, match="no record"):
        compare(loaded, {"lines": []})
    record["schema"] = SCHEMA + 1
    with pytest.raises(ArgumentError, match=f"schema {SCHEMA + 1}"):
        compare(loaded, record)
