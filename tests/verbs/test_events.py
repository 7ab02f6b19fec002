# SPDX-License-Identifier: Apache-2.0
"""Events: of completion channels, asynchronous ones of queues and ports, and those that DEVX subscribes to."""

from __future__ import annotations

import errno
import gc
import os
import select

import pytest
from connected import make_pair, poll

from gda import _verbs
from gda.errors import ArgumentError, ClosedError, VerbsError


def readable(fd: int, seconds: float = 10.0) -> bool:
    return bool(select.select([fd], [], [], seconds)[0])


@pytest.fixture
def channel(context):
    channel = _verbs.ibv_create_comp_channel(context)
    yield channel
    channel.close()


@pytest.fixture
def cqs(context, channel):
    cqs = [_verbs.ibv_create_cq(context, 64, channel) for _ in range(2)]
    yield cqs
    for cq in cqs:
        cq.close()


@pytest.fixture
def pair(context, pd, cqs):
    pair = make_pair(context, pd, _verbs.IBV_QPT_RC, cqs)
    yield pair
    pair.close()


def send(pair, flags: int = 0) -> None:
    _verbs.ibv_post_send(
        pair.a,
        _verbs.SendWR(opcode=_verbs.IBV_WR_SEND, sg_list=pair.piece(8), send_flags=flags | _verbs.IBV_SEND_SIGNALED),
    )


def test_unacknowledged_events_hold_the_queue(pair, cqs, channel, software):
    _verbs.ibv_req_notify_cq(cqs[0])
    _verbs.ibv_post_recv(pair.b, _verbs.RecvWR(sg_list=pair.landing(64)))
    send(pair)
    assert readable(channel.fd), software.report()
    assert _verbs.ibv_get_cq_event(channel) is cqs[0] and cqs[0].unacknowledged == 1
    poll(cqs[0], software)
    pair.a.close()
    with pytest.raises(
        VerbsError, match=r"ibv_destroy_cq\(\).*EBUSY(.|\n)*acknowledge \(ibv_ack_cq_events\) its 1 event"
    ):
        cqs[0].close()  # the library would wait for ever
    with pytest.raises(VerbsError, match="1 event"):
        _verbs.ibv_ack_cq_events(cqs[0], 2)
    _verbs.ibv_ack_cq_events(cqs[0], 1)
    assert cqs[0].unacknowledged == 0


def test_solicited_only(pair, cqs, channel, software):
    _verbs.ibv_req_notify_cq(cqs[1], True)
    for _ in range(2):
        _verbs.ibv_post_recv(pair.b, _verbs.RecvWR(sg_list=pair.landing(64)))
    send(pair)
    poll(cqs[0], software)
    poll(cqs[1], software)
    assert not readable(channel.fd, 0.0)
    send(pair, _verbs.IBV_SEND_SOLICITED)
    assert readable(channel.fd), software.report()
    assert _verbs.ibv_get_cq_event(channel) is cqs[1]
    _verbs.ibv_ack_cq_events(cqs[1], 1)
    poll(cqs[0], software)


def test_shared_receive_queue_limit(context, pd, cqs, software):
    srq = _verbs.ibv_create_srq(pd, 16)
    pair = make_pair(context, pd, _verbs.IBV_QPT_RC, cqs, srq=srq)
    for _ in range(3):
        _verbs.ibv_post_srq_recv(srq, _verbs.RecvWR(sg_list=pair.landing(64)))
    _verbs.ibv_modify_srq(srq, _verbs.IBV_SRQ_LIMIT, srq_limit=2)
    for _ in range(2):
        send(pair)
        poll(cqs[0], software)
    assert readable(context.async_fd), software.report()
    event = _verbs.ibv_get_async_event(context)
    assert (event.event_type, event.element) == (_verbs.IBV_EVENT_SRQ_LIMIT_REACHED, srq)
    assert "SRQ" in _verbs.ibv_event_type_str(event.event_type) and "SRQ" in repr(event)
    pair.close()
    with pytest.raises(VerbsError, match=r"ibv_destroy_srq\(\).*EBUSY(.|\n)*ibv_ack_async_event\) its 1 event"):
        srq.close()
    _verbs.ibv_ack_async_event(event)
    _verbs.ibv_ack_async_event(event)
    assert srq.events == 0
    srq.close()


def test_a_forgotten_event_is_acknowledged_by_the_collector(context, pd, cqs, software):
    srq = _verbs.ibv_create_srq(pd, 16)
    pair = make_pair(context, pd, _verbs.IBV_QPT_RC, cqs, srq=srq)
    pair.close()
    _verbs.ibv_post_srq_recv(srq, _verbs.RecvWR())
    _verbs.ibv_modify_srq(srq, _verbs.IBV_SRQ_LIMIT, srq_limit=4)  # one receive: below it at once
    assert readable(context.async_fd), software.report()
    assert _verbs.ibv_get_async_event(context).element is srq
    gc.collect()
    assert srq.events == 0
    srq.close()


def test_no_event_is_an_error_of_a_nonblocking_descriptor(context):
    os.set_blocking(context.async_fd, False)
    with pytest.raises(VerbsError, match=r"ibv_get_async_event\(\w+\)") as caught:
        _verbs.ibv_get_async_event(context)
    assert caught.value.errno == errno.EAGAIN
    with pytest.raises(TypeError, match="come from ibv_get_async_event"):
        _verbs.AsyncEvent()


def test_wrong_subscriptions_are_refused(context):
    """Events that arrive are in tests/nic/test_device_events.py: they need a queue made by commands."""
    channel = _verbs.mlx5dv_devx_create_event_channel(
        context, _verbs.MLX5DV_DEVX_CREATE_EVENT_CHANNEL_FLAGS_OMIT_EV_DATA
    )
    assert channel.fd >= 0 and channel.context is context
    with pytest.raises(VerbsError, match=r"subscribe_devx_event\(\[9\], cookie=5\) failed: EINVAL"):
        _verbs.mlx5dv_devx_subscribe_devx_event(channel, None, [9], 5)  # this NIC has no events of no object
    with pytest.raises(ArgumentError, match="at most 32 events"):
        _verbs.mlx5dv_devx_subscribe_devx_event(channel, None, range(33))
    with pytest.raises(VerbsError, match=r"subscribe_devx_event_fd\(fd=-1, event_num=9\)"):
        _verbs.mlx5dv_devx_subscribe_devx_event_fd(channel, -1, None, 9)
    channel.close()
    channel.close()
    with pytest.raises(ClosedError):
        channel.fd
    with pytest.raises(VerbsError, match=r"mlx5dv_devx_create_event_channel\(\w+, flags=0x8000\)"):
        _verbs.mlx5dv_devx_create_event_channel(context, 0x8000)
