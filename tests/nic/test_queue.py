# SPDX-License-Identifier: Apache-2.0
"""Life of a queue pair: options, states, connecting, looking inside, resetting, closing."""

from __future__ import annotations

import pytest

from gda import formats
from gda.errors import ArgumentError, ClosedError, CommandError, GidError, NotConnectedError, UnavailableError
from gda.nic import ConnectionInfo, command


def test_states(nic):
    a, b = nic.queue_pair(), nic.queue_pair()
    assert a.state == "RST" and a.remote is None
    a.connect(b.info)
    assert a.state == "RTS" and a.remote == b.info and b.state == "RST"
    b.connect(a.info.to_bytes())
    assert b.state == "RTS"
    a.to_error()
    assert a.state == "ERR"
    a.reset()
    assert a.state == "RST" and a.remote is None
    a.connect(b.info)
    assert a.state == "RTS"
    assert f"0x{a.qpn:x}" in repr(a) and "RTS" in repr(a)
    a.close()
    assert "closed" in repr(a)


def test_what_the_nic_was_told(nic):
    a, b = nic.loopback_pair(depth=64, psn=0x123456, user_index=0xABCDE)
    context = command.query_qp(a._carrier.qp, qpn=a.qpn)
    assert (context["st"], context["pd"], context["remote_qpn"]) == (formats.MLX5_QPC_ST_RC, nic.pdn, b.qpn)
    assert (context["log_sq_size"], context["mtu"], context["cqn_snd"]) == (6, nic.port.mtu, a.cqn)
    assert (context["user_index"], context["rq_type"]) == (0xABCDE, formats.RQ_TYPE_ZERO_SIZE)
    queue = command.query_cq(a._carrier.cq, cqn=a.cqn)
    assert (queue["cc"], queue["oi"], queue["log_cq_size"]) == (1, 1, 0)
    assert a.info.psn == 0x123456 and a.info.gid == nic.pick_gid()[1].raw and any(a.info.mac)


@pytest.mark.parametrize("depth", [0, -1, 3, 100, 65536, 1 << 40, 1.5, "128", None, True])
def test_bad_depths(nic, software, depth):
    before = software.objects()
    with pytest.raises(ArgumentError, match=r"depth=.* is not a power of two from 1 to 32768"):
        nic.queue_pair(depth=depth)
    assert software.objects() == before


@pytest.mark.parametrize("depth", [1, 2, 64, 32768])
def test_good_depths(nic, depth):
    a, _ = nic.loopback_pair(depth=depth)
    assert a.where()["sq"][2] == depth * 64


@pytest.mark.parametrize(
    ("options", "kind", "said"),
    [
        ({"placement": "moon"}, ArgumentError, "'moon' is not one of host, gpu"),
        ({"placement": {"queue": "host"}}, ArgumentError, "unknown part 'queue'"),
        ({"placement": {"cq": "disk"}}, ArgumentError, "placement of cq: 'disk'"),
        ({"placement": 7}, ArgumentError, "placement is a word or a dict"),
        ({"completion": "both"}, ArgumentError, "completion='both'"),
        ({"deadline_ms": 0}, ArgumentError, "deadline_ms=0"),
        ({"deadline_ms": 1.5}, ArgumentError, "deadline_ms=1.5"),
        ({"gid_index": 99}, GidError, "GID index 99"),
        ({"psn": 1 << 24}, ArgumentError, "psn"),
        ({"user_index": -1}, ArgumentError, "user_index"),
    ],
    ids=str,
)
def test_bad_options_leave_nothing_behind(nic, software, options, kind, said):
    before = software.objects()
    with pytest.raises(kind, match=said):
        nic.queue_pair(**options)
    assert software.objects() == before
    nic.queue_pair().close()


def test_gpu_placement_without_gpu_says_why(nic):
    if nic.gpu is not None:
        pytest.skip("not run: there is a GPU")
    for placement in ("gpu", {"cq": "gpu"}, {"handle": "gpu"}):
        with pytest.raises(UnavailableError, match=f"(?s)GPU memory: .*{nic.no_gpu_reason.split(' ')[0]}"):
            nic.queue_pair(placement=placement)


def test_recordless_needs_the_capability(nic, monkeypatch):
    monkeypatch.setitem(nic.capabilities.groups["general_2"], "send_dbr_mode_no_dbr_ext", 0)
    with pytest.raises(UnavailableError, match="send_dbr_mode_no_dbr_ext"):
        nic.queue_pair(record=False)


def test_connect_twice(nic):
    a, b = nic.loopback_pair()
    with pytest.raises(ArgumentError, match=f"0x{a.qpn:x} is connected already, to 0x{b.qpn:x}"):
        a.connect(b.info)
    assert a.state == "RTS"


@pytest.mark.parametrize("garbage", [b"", b"x" * 42, bytes(42), 17, None, "text"], ids=str)
def test_connect_with_garbage(nic, garbage):
    a, b = nic.queue_pair(), nic.queue_pair()
    with pytest.raises(ArgumentError):
        a.connect(garbage)
    assert a.state == "RST"
    a.connect(b.info)


def test_bad_connect_options(nic):
    a, b = nic.queue_pair(), nic.queue_pair()
    for options, said in (
        ({"path_mtu": 6}, "path_mtu=6 is not one of 256, 512, 1024, 2048, 4096"), ({"path_mtu": 0}, "path_mtu=0"),
        ({"ack_timeout": 32}, r"ack_timeout=32 is outside 0\.\.31"), ({"retry_count": 8}, "retry_count=8"),
    ):  # fmt: skip
        with pytest.raises(ArgumentError, match=said):
            a.connect(b.info, **options)
    info = b.info
    with pytest.raises(ArgumentError, match="one side is on Ethernet"):
        a.connect(ConnectionInfo(info.qpn, info.psn, info.gid, info.mtu, False, 1))
    assert a.path_mtu == 0
    a.connect(info, path_mtu=1024)
    assert a.path_mtu == 3 == command.query_qp(a._carrier.qp, qpn=a.qpn)["mtu"] == 3


def test_smaller_mtu_of_the_other_side_wins(nic):
    a, b = nic.queue_pair(), nic.queue_pair()
    info = b.info
    a.connect(ConnectionInfo(info.qpn, info.psn, info.gid, 2, True, 0, info.mac))
    assert command.query_qp(a._carrier.qp, qpn=a.qpn)["mtu"] == 2


def test_a_refused_connect_can_be_repeated(nic, monkeypatch):
    a, b = nic.queue_pair(), nic.queue_pair()

    def refuse(*arguments, **fields):
        raise CommandError("rtr2rts_qp", 3, 0x1234, "refused by the test")

    with monkeypatch.context() as patch:
        patch.setattr(command, "rtr2rts_qp", refuse)
        with pytest.raises(CommandError, match="refused by the test"):
            a.connect(b.info)
    assert a.state == "RST" and a.remote is None
    a.connect(b.info)
    assert a.state == "RTS"


@pytest.mark.parametrize("completion", ["collapsed", "ring"])
@pytest.mark.parametrize("record", [True, False])
def test_handle_says_what_was_made(nic, completion, record):
    a, _ = nic.loopback_pair(depth=32, completion=completion, record=record, shared=False, deadline_ms=5)
    handle, where = a.read_handle(), a.where()
    assert handle["version"] == formats.GDA_HANDLE_VERSION
    flags = handle["flags"]
    assert bool(flags & formats.GDA_QP_RECORDLESS) == (not record)
    assert flags & formats.GDA_QP_OWNED and flags & formats.GDA_QP_CONNECTED
    assert (handle["qpn"], handle["log_sq_size"], handle["deadline_ns"]) == (a.qpn, 5, 5_000_000)
    assert handle["max_message_bytes"] == 1 << 30
    cq = handle["cq"]
    assert bool(cq["flags"] & formats.GDA_CQ_COLLAPSED) == (completion == "collapsed")
    assert cq["flags"] & formats.GDA_CQ_IGNORE_OVERRUN
    assert (cq["cqn"], cq["log_size"]) == (a.cqn, 0 if completion == "collapsed" else 5)
    assert all(handle[name] == 0 for name in ("reserved", "ready", "done", "error", "cq_consumed"))
    if a.where()["handle"][0] == "host" and nic.gpu is None:
        assert (handle["sq"], handle["doorbell"]) == (where["sq"][1], where["doorbell"][1])
        assert (cq["ring"], cq["record"]) == (where["cq"][1], where["cq_record"][1])
        assert handle["record"] == (where["record"][1] + 4 if record else 0)
        assert handle["doorbell"] % 4096 == (0x800 if record else 0x600)
    assert where["cq"][2] == (64 if completion == "collapsed" else 32 * 64)
    assert ("record" in where) == record


def test_rings_are_poisoned(nic):
    a = nic.queue_pair(depth=4, completion="ring")
    assert all(a.read_wqe(i) == b"\xff" * 64 and a.read_cqe(i) == b"\xff" * 64 for i in range(4))
    assert a.read_record() == 0
    assert formats.cqe64.unpack(a.read_cqe())["opcode"] == formats.MLX5_CQE_INVALID


def test_kernel_argument_only_when_connected(nic):
    a, b = nic.queue_pair(), nic.queue_pair()
    with pytest.raises(NotConnectedError, match=r"not connected(.|\n)*connect"):
        a.__gda_argument__("host")
    a.connect(b.info)
    name, value = a.__gda_argument__("host")
    assert name == "gda_qp*" and int.from_bytes(value, "little") == a.where()["handle"][1]
    a.reset()
    with pytest.raises(NotConnectedError):
        a.__gda_argument__("host")
    with nic.queue_pair(allow_unconnected=True) as c:
        assert not c.read_handle()["flags"] & formats.GDA_QP_CONNECTED
        assert c.__gda_argument__("host")[0] == "gda_qp*"
    if nic.gpu is None:
        a.connect(b.info)
        with pytest.raises(UnavailableError, match="made for the CPU"):
            a.__gda_argument__("gpu")


def test_reset_zeroes_what_kernels_left(nic):
    a, b = nic.loopback_pair(depth=4)
    a._handle.update(reserved=9, ready=9, done=7, error=1)
    a.write_wqe(0, bytes(64))
    a.write_record(9)
    a.reset()
    handle = a.read_handle()
    assert all(handle[name] == 0 for name in ("reserved", "ready", "done", "error", "cq_consumed"))
    assert a.read_wqe(0) == b"\xff" * 64 and a.read_record() == 0
    b.reset()


def test_closed_queue_refuses_everything(nic):
    a, b = nic.loopback_pair()
    info = b.info
    a.close()
    a.close()
    assert a.closed
    uses = (
        lambda: a.state, lambda: a.info, lambda: a.connect(info), a.reset, a.to_error, a.where, a.read_handle,
        a.read_cqe, a.read_record, lambda: a.read_wqe(0), lambda: a.write_wqe(0, bytes(64)),
        lambda: a.write_record(1), lambda: a.ring(bytes(8)), lambda: a.__gda_argument__("host"),
    )  # fmt: skip
    for use in uses:
        with pytest.raises(ClosedError, match=f"queue pair 0x{a.qpn:x} has been closed"):
            use()
    assert b.state == "RTS"


def test_many_queue_pairs(nic, software):
    pairs = [nic.loopback_pair(depth=16) for _ in range(32)]
    assert len({q.qpn for pair in pairs for q in pair}) == 64
    for pair in pairs:
        for queue in pair:
            queue.close()


def test_loopback_pair_that_cannot_be_made_leaves_nothing(nic, software):
    before = software.objects()
    with pytest.raises(ArgumentError):
        nic.loopback_pair(gid_index=99)
    assert software.objects() == before
