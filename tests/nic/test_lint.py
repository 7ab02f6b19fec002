# SPDX-License-Identifier: Apache-2.0
"""Every attribute out of bounds: the field is named with value and bound, the NIC hears nothing, all still works."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import gda
from gda import _verbs, attach
from gda.errors import ArgumentError, FieldError, GidError, PathMtuError
from gda.nic import checked, command, lint
from gda.nic.connection import Path, init_fields, rtr_fields, rts_fields
from gda.nic.device import Nic

V = _verbs
INIT = V.IBV_QP_STATE | V.IBV_QP_PKEY_INDEX | V.IBV_QP_PORT | V.IBV_QP_ACCESS_FLAGS
RTR = (
    V.IBV_QP_STATE | V.IBV_QP_AV | V.IBV_QP_PATH_MTU | V.IBV_QP_DEST_QPN | V.IBV_QP_RQ_PSN
    | V.IBV_QP_MAX_DEST_RD_ATOMIC | V.IBV_QP_MIN_RNR_TIMER
)  # fmt: skip
RTS = (
    V.IBV_QP_STATE | V.IBV_QP_TIMEOUT | V.IBV_QP_RETRY_CNT | V.IBV_QP_RNR_RETRY | V.IBV_QP_SQ_PSN
    | V.IBV_QP_MAX_QP_RD_ATOMIC
)  # fmt: skip


@pytest.fixture(scope="module")
def software() -> attach.SoftwareNic:
    return attach.software_nic()


@pytest.fixture(scope="module")
def nic(software: attach.SoftwareNic) -> Iterator[Nic]:
    with gda.open() as nic:
        yield nic


class Bench:
    """A verbs queue pair and a firmware one in reset, and good attributes for each step."""

    def __init__(self, nic: Nic) -> None:
        self.nic = nic
        self.cq = checked.create_cq(nic, 16)
        self.qp = checked.create_qp(
            nic, qp_type=V.IBV_QPT_RC, send_cq=self.cq, recv_cq=self.cq, max_send_wr=4, max_recv_wr=4
        )
        self.queue, self.other = nic.queue_pair(), nic.queue_pair()
        info, self.gid = self.other.info, nic.pick_gid()[0]
        self.verbs: dict[str, tuple[int, dict[str, Any]]] = {
            "init": (INIT, {"qp_state": V.IBV_QPS_INIT, "port_num": 1, "pkey_index": 0, "qp_access_flags": 0xF}),
            "rtr": (RTR, {
                "qp_state": V.IBV_QPS_RTR, "path_mtu": 3, "dest_qp_num": info.qpn, "rq_psn": 0, "max_dest_rd_atomic": 1,
                "min_rnr_timer": 12, "port_num": 1, "dgid": info.gid, "sgid_index": self.gid,
            }),
            "rts": (RTS, {
                "qp_state": V.IBV_QPS_RTS, "timeout": 14, "retry_cnt": 7, "rnr_retry": 7, "sq_psn": 0,
                "max_rd_atomic": 1,
            }),
        }  # fmt: skip
        path = Path(1, self.gid, True, nic.mac(self.gid), 3)
        self.commands = {
            "rst2init_qp": init_fields(path, True), "init2rtr_qp": rtr_fields(path, info, self.queue.qpn, 4),
            "rtr2rts_qp": rts_fields(path, 0, 4, 14, 7),
        }  # fmt: skip

    def modify(self, step: str, **changes: Any) -> None:
        mask, attributes = self.verbs[step]
        checked.modify_qp(self.nic, self.qp, mask, **(attributes | changes))

    def order(self, name: str, **changes: Any) -> None:
        qpc = dict(self.commands[name])
        address = dict(qpc["primary_address_path"])
        for field, value in changes.items():
            (address if field in PATH_FIELDS else qpc)[field] = value
        getattr(command, name)(self.queue._carrier.qp, qpn=self.queue.qpn, qpc=qpc | {"primary_address_path": address})

    def works(self) -> None:
        for step in self.verbs:
            self.modify(step)
        for name in self.commands:
            self.order(name)
        V.ibv_modify_qp(self.qp, V.IBV_QP_STATE, qp_state=V.IBV_QPS_RESET)
        self.queue.reset()


PATH_FIELDS = (
    "vhca_port_num", "pkey_index", "src_addr_index", "hop_limit", "tclass", "eth_prio", "udp_sport", "rgid_rip",
    "ack_timeout",
)  # fmt: skip


@pytest.fixture(scope="module")
def bench(nic: Nic) -> Bench:
    return Bench(nic)


def refused(software: attach.SoftwareNic, call: Callable[[], object]) -> ArgumentError:
    before = software.counter("commands")
    with pytest.raises(ArgumentError) as caught:
        call()
    assert software.counter("commands") == before, "the NIC was asked all the same"
    assert caught.value.advice, caught.value
    return caught.value


VERBS = [
    ("init", "port_num", 2, "1..1 on mlx5_0"), ("init", "port_num", 0, "1..1 on mlx5_0"),
    ("init", "pkey_index", 1, "0..0 on mlx5_0"), ("rtr", "path_mtu", 6, "1..5"), ("rtr", "path_mtu", 0, "1..5"),
    ("rtr", "min_rnr_timer", 32, "0..31"), ("rtr", "max_dest_rd_atomic", 17, "0..16 on mlx5_0"),
    ("rtr", "sgid_index", 16, "0..15 on mlx5_0"), ("rtr", "hop_limit", 256, "1..255"),
    ("rtr", "hop_limit", 0, "1..255"),    ("rtr", "traffic_class", 256, "0..255"), ("rtr", "sl", 8, "0..7 on mlx5_0"),
    ("rtr", "flow_label", 1 << 20, "0..1048575"), ("rtr", "dest_qp_num", 1 << 24, "0..16777215"),
    ("rtr", "rq_psn", -1, "0..16777215"), ("rts", "timeout", 32, "0..31"), ("rts", "retry_cnt", 20, "0..7"),
    ("rts", "rnr_retry", 8, "0..7"), ("rts", "sq_psn", 1 << 24, "0..16777215"),
    ("rts", "max_rd_atomic", 17, "0..16 on mlx5_0"),
]  # fmt: skip
COMMANDS = [
    ("rst2init_qp", "vhca_port_num", 2, "1..1 on mlx5_0"), ("rst2init_qp", "pkey_index", 1, "0..0 on mlx5_0"),
    ("init2rtr_qp", "mtu", 6, "1..5"), ("init2rtr_qp", "mtu", 0, "1..5"), ("init2rtr_qp", "min_rnr_nak", 32, "0..31"),
    ("init2rtr_qp", "log_rra_max", 5, "0..4 on mlx5_0"), ("init2rtr_qp", "src_addr_index", 16, "0..15 on mlx5_0"),
    ("init2rtr_qp", "hop_limit", 0, "1..255"), ("init2rtr_qp", "tclass", 256, "0..255"),
    ("init2rtr_qp", "eth_prio", 8, "0..7 on mlx5_0"), ("init2rtr_qp", "remote_qpn", 1 << 24, "0..16777215"),
    ("init2rtr_qp", "next_rcv_psn", 1 << 24, "0..16777215"), ("init2rtr_qp", "udp_sport", 4791, "49152..65535"),
    ("rtr2rts_qp", "retry_count", 20, "0..7"), ("rtr2rts_qp", "rnr_retry", 8, "0..7"),
    ("rtr2rts_qp", "ack_timeout", 32, "0..31"), ("rtr2rts_qp", "log_sra_max", 5, "0..4 on mlx5_0"),
    ("rtr2rts_qp", "next_send_psn", 1 << 24, "0..16777215"),
]  # fmt: skip


@pytest.mark.parametrize("case", VERBS, ids=str)
def test_attributes_of_ibv_modify_qp(software, bench, case):
    step, field, value, bounds = case
    error = refused(software, lambda: bench.modify(step, **{field: value}))
    assert isinstance(error, FieldError) and (error.field, error.value) == (field, value)
    assert f"{field}={value} is outside {bounds}: " in error.message


@pytest.mark.parametrize("case", COMMANDS, ids=str)
def test_fields_of_firmware_commands(software, bench, case):
    name, field, value, bounds = case
    error = refused(software, lambda: bench.order(name, **{field: value}))
    assert isinstance(error, FieldError) and (error.field, error.value) == (field, value)
    assert f"{field}={value} is outside {bounds}: " in error.message


def test_what_is_no_number_is_said(software, bench):
    for value in (1.5, "7", True):
        error = refused(software, lambda: bench.modify("rts", retry_cnt=value))  # noqa: B023 (called at once)
        assert f"retry_cnt={value!r} is no whole number" in error.message


def test_a_path_mtu_over_the_link(software, nic, bench):
    software.set_mtu(1500)
    try:
        for call in (lambda: bench.modify("rtr", path_mtu=5), lambda: bench.order("init2rtr_qp", mtu=5)):
            error = refused(software, call)
            assert isinstance(error, PathMtuError) and (error.requested, error.active) == (4096, 1024)
    finally:
        software.set_mtu(9000)


def test_no_global_header_on_ethernet(software, bench):
    error = refused(software, lambda: bench.modify("rtr", is_global=False))
    assert isinstance(error, FieldError) and error.field == "is_global" and "GRH" in error.message


@pytest.mark.parametrize("gid", [bytes(16), None], ids=["empty", "missing"])
def test_an_empty_gid_of_the_other_side(software, bench, gid):
    error = refused(software, lambda: bench.modify("rtr", dgid=gid))
    assert isinstance(error, FieldError) and error.field == "dgid" and "by its GID alone" in error.message
    if gid is not None:
        error = refused(software, lambda: bench.order("init2rtr_qp", rgid_rip=gid))
        assert isinstance(error, FieldError) and error.field == "rgid_rip"


def test_an_empty_entry_of_the_own_table(software, nic, bench):
    empty = next(i for i in range(16) if all(g.index != i for g in nic.gids))
    for call in (
        lambda: bench.modify("rtr", sgid_index=empty), lambda: bench.order("init2rtr_qp", src_addr_index=empty),
    ):  # fmt: skip
        error = refused(software, call)
        assert isinstance(error, GidError) and error.index == empty and 3 in error.candidates


def test_a_p_key_that_is_not_there(software, nic, bench, monkeypatch):
    monkeypatch.setattr(_verbs, "ibv_query_pkey", lambda context, port, index: 0)
    info = bench.other.info
    for call in (
        lambda: bench.modify("init"), lambda: bench.order("rst2init_qp"), lambda: bench.queue.connect(info),
    ):  # fmt: skip
        error = refused(software, call)
        assert isinstance(error, FieldError) and error.field == "pkey_index" and "is empty" in error.message


@pytest.mark.parametrize(
    "case",
    [
        ("max_send_wr", 40000, "0..32768"), ("max_recv_wr", 40000, "0..32768"), ("max_send_sge", 31, "0..30"),
        ("max_recv_sge", 31, "0..30"), ("max_inline_data", 829, "0..828"), ("max_send_wr", -1, "0..32768"),
    ],
)  # fmt: skip
def test_capacities_of_a_queue_pair(software, nic, case):
    field, value, bounds = case

    def make(**capacity: int) -> _verbs.QP:
        return checked.create_qp(nic, qp_type=V.IBV_QPT_RC, send_cq=cq, recv_cq=cq, **capacity)

    cq = V.ibv_create_cq(nic.context, 16)
    error = refused(software, lambda: make(**{field: value}))
    assert isinstance(error, FieldError) and error.field == field and f"outside {bounds} on mlx5_0" in error.message
    make().close()
    cq.close()


def test_the_largest_capacities_are_taken(nic):
    """The bounds are those of the library, not smaller ones."""
    cq = V.ibv_create_cq(nic.context, 16)
    for field, value in (("max_inline_data", 828), ("max_send_sge", 30), ("max_recv_sge", 30)):
        checked.create_qp(nic, qp_type=V.IBV_QPT_RC, send_cq=cq, recv_cq=cq, **{field: value}).close()
    cq.close()


def test_entries_of_a_completion_queue(software, nic):
    for value in (0, 1 << 23):
        error = refused(software, lambda: checked.create_cq(nic, value))  # noqa: B023 (called at once)
        assert isinstance(error, FieldError) and error.field == "cqe" and "1..4194303 on mlx5_0" in error.message


def test_a_completion_queue_too_small_for_its_queue_pairs(software, nic):
    cq = checked.create_cq(nic, 7)
    big = checked.create_cq(nic, 63)

    def make(receive_cq: _verbs.CQ) -> _verbs.QP:
        return checked.create_qp(
            nic, qp_type=V.IBV_QPT_RC, send_cq=cq, recv_cq=receive_cq, max_send_wr=4, max_recv_wr=4
        )

    first = make(cq)
    error = refused(software, lambda: make(big))
    assert isinstance(error, FieldError) and error.field == "send_cq"
    assert "send_cq has 8 entries, but its queue pairs could have 12 completions outstanding" in error.message
    first.close()
    make(big).close()
    for queue in (cq, big):
        queue.close()


def test_rights_that_are_none_or_that_the_device_lacks(software, nic, bench, monkeypatch):
    error = refused(software, lambda: bench.modify("init", qp_access_flags=1 << 12))
    assert isinstance(error, FieldError) and error.field == "qp_access_flags" and "0x1000" in error.message
    error = refused(software, lambda: checked.reg_mr(nic, 4096, 4096, 1 << 12))
    assert isinstance(error, FieldError) and error.field == "access"
    without = lint.Limits(what="mlx5_0", has_atomics=False)
    monkeypatch.setattr(lint, "limits_of", lambda context: without)
    atomic = V.IBV_ACCESS_REMOTE_ATOMIC | V.IBV_ACCESS_LOCAL_WRITE
    for call in (
        lambda: bench.modify("init", qp_access_flags=atomic), lambda: checked.reg_mr(nic, 4096, 4096, atomic),
        lambda: nic.allocate(64, access=("remote_atomic",)),
    ):  # fmt: skip
        error = refused(software, call)
        assert "allows remote atomics, which mlx5_0 does not have" in error.message
    with nic.allocate(64) as memory:  # what it can: by default
        assert memory.access == ("local_write", "remote_write", "remote_read")


def test_a_region_larger_than_the_device_takes(software, nic, monkeypatch):
    monkeypatch.setattr(lint, "limits_of", lambda context: lint.Limits(region_bytes=1 << 20))
    for call in (lambda: nic.register(np.zeros(2 << 20, np.uint8)), lambda: checked.reg_mr(nic, 4096, 0, 1)):
        error = refused(software, call)
        assert isinstance(error, FieldError) and error.field == "length" and error.bounds == (1, 1 << 20)


@pytest.mark.parametrize("kind", ["queue_pair", "host_queue_pair"])
@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("ack_timeout", 32), ("retry_count", 20), ("rnr_retry", 8), ("min_rnr_timer", 32), ("max_rd_atomic", 17),
        ("pkey_index", 1), ("retry_count", -1),
    ],
)  # fmt: skip
def test_options_of_connect(software, nic, kind, option, value):
    with getattr(nic, kind)() as a, getattr(nic, kind)() as b:
        info = b.info
        error = refused(software, lambda: a.connect(info, **{option: value}))
        assert isinstance(error, FieldError) and error.field == option and f"{option}={value}" in error.message
        assert a.state == "RST"
        a.connect(b.info)
        assert a.state == "RTS"


@pytest.mark.parametrize(
    "case",
    [
        ("queue_pair", "depth", 3, (1, 32768)), ("queue_pair", "depth", 65536, (1, 32768)),
        ("queue_pair", "receive_depth", 2, (4, 32768)), ("queue_pair", "psn", 1 << 24, (0, (1 << 24) - 1)),
        ("queue_pair", "user_index", -1, (0, (1 << 24) - 1)), ("host_queue_pair", "psn", -1, (0, (1 << 24) - 1)),
        ("host_queue_pair", "inline_bytes", 829, (0, 828)),
    ],
)  # fmt: skip
def test_options_of_queue_pairs(software, nic, case):
    kind, option, value, bounds = case
    before = software.objects()
    error = refused(software, lambda: getattr(nic, kind)(**{option: value}))
    assert isinstance(error, FieldError) and (error.field, error.value, error.bounds) == (option, value, bounds)
    assert software.objects() == before


def test_options_of_connect_reach_the_nic(nic):
    with nic.queue_pair() as a, nic.queue_pair() as b:
        a.connect(b.info, rnr_retry=3, min_rnr_timer=5, max_rd_atomic=4, ack_timeout=9, retry_count=2)
        context = a.context()
        assert (context["rnr_retry"], context["min_rnr_nak"], context["retry_count"]) == (3, 5, 2)
        assert (context["log_sra_max"], context["log_rra_max"]) == (2, 2)
        assert context["primary_address_path"]["ack_timeout"] == 9
    with nic.host_queue_pair() as a, nic.host_queue_pair() as b:
        a.connect(b.info, rnr_retry=3, min_rnr_timer=5, max_rd_atomic=4, ack_timeout=9, retry_count=2)
        mask = V.IBV_QP_RNR_RETRY | V.IBV_QP_MIN_RNR_TIMER | V.IBV_QP_MAX_QP_RD_ATOMIC | V.IBV_QP_RETRY_CNT
        answer = V.ibv_query_qp(a.raw, mask)
        names = ("rnr_retry", "min_rnr_timer", "max_rd_atomic", "retry_cnt")
        assert [answer[name] for name in names] == [3, 5, 4, 2]


def test_a_send_queue_too_small_for_a_batch(software, nic):
    with nic.host_queue_pair(depth=16) as a, nic.host_queue_pair() as b, nic.allocate(64) as memory:
        gda.nic.connect(a, b)
        rows = np.zeros(17, gda.WORK_REQUEST)
        rows["local_addr"] = rows["remote_addr"] = memory.address
        rows["lkey"], rows["rkey"], rows["length"] = memory.lkey, memory.rkey, 8
        for call in (lambda: a.post(rows), lambda: a.prepare(rows)):
            error = refused(software, call)
            assert isinstance(error, FieldError) and error.field == "depth"
            assert "too small for a batch of 17 requests" in error.message
        rows["send_flags"][15] = V.IBV_SEND_SIGNALED
        a.post(rows[:16])
        assert len(a.wait(1)) == 1


def test_everything_still_works_after_all_these(bench):
    bench.works()


def test_a_bound_keeps_no_nic_open(software):
    nic = gda.open()
    pointer = nic.context.c_pointer
    assert pointer in lint._limits
    del nic
    import gc

    gc.collect()
    assert pointer not in lint._limits


def test_of_an_unknown_context_only_the_fields_bound(nic):
    lint.check(lint.Limits(), port_num=200, max_rd_atomic=200, sgid_index=200)
    with pytest.raises(FieldError, match=r"retry_cnt=8 is outside 0\.\.7: how often"):
        lint.check(lint.Limits(), retry_cnt=8)


def test_a_field_error_survives_pickling():
    error = FieldError("retry_cnt=20 is outside 0..7", "retry_cnt", 20, (0, 7), "7 is the most")
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.field, copy.value, copy.bounds, str(copy)) == ("retry_cnt", 20, (0, 7), str(error))


def test_every_rule_is_tried():
    """A rule without a case here could be wrong unseen."""
    tried = {field for _, field, _, _ in VERBS} | {field for _, field, _, _ in COMMANDS}
    tried |= {"max_send_wr", "max_recv_wr", "max_send_sge", "max_recv_sge", "max_inline_data", "cqe", "length"}
    missing = [rule.names for rule in lint.RULES if not tried & set(rule.names)]
    assert missing == [("user_index",), ("log_sq_size",), ("log_rq_size",), ("log_cq_size",)]
    limits = lint.Limits(blocks=1 << 15, completions=(1 << 22) - 1)
    for name, value in (("user_index", 1 << 24), ("log_sq_size", 16), ("log_rq_size", 16), ("log_cq_size", 23)):
        with pytest.raises(FieldError, match=f"{name}={value} is outside 0"):
            lint.check_command(limits, {"qpc": {name: value}})
        lint.check_command(limits, {"qpc": {name: value - 1}})
