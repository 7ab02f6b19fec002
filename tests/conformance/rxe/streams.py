# SPDX-License-Identifier: Apache-2.0
"""Many messages over UC or UD while packets are lost: what arrives is what was sent, whole, once and in order.

Called by the suite rxe for the combinations of interop.py that lose packets and do not send them again. A lost message
is nobody's fault there, a wrong one is. Sources: InfiniBand Architecture Specification, volume 1, "Transport Layer",
sections on unreliable connections and datagrams.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from .interop import IMMEDIATE, LIMIT_S, REGION, Combination, connected
from .remote import Remote

SLOT = 3072  # of the region, one a message
SIZES = {"UC": (8, 1024, 1025, 3000), "UD": (8, 1000, 1024, 3000)}
COUNT = 40
BATCH = 8  # messages on the way at a time: no socket between the ends runs over
QUIET_S = 0.5  # nothing arrives any more
assert COUNT * SLOT <= REGION


def stream(c: Combination, ends: tuple[Remote, Remote], seed: int) -> int:
    """Send COUNT messages and judge what arrives; returns how many did."""
    with connected(c, ends) as place:
        sizes = [SIZES[c.service][i % 4] for i in range(COUNT)]
        told = _send(c, ends, place, sizes, seed)
        if "SEND" in c.verb:
            arrived, could = _judge_sends(c, ends[1], told, seed), COUNT
        else:
            arrived, could = _judge_writes(c, ends[1], sizes, seed)
    assert len(arrived) >= could // 2, f"{len(arrived)} of {could} arrived where one packet in a hundred is lost"
    if "IMM" in c.verb:
        imms = [completion.get("imm") for completion in told]
        assert imms == [IMMEDIATE + i for i in arrived], f"{arrived} arrived, and immediates {imms}"
    return len(arrived)


def _send(
    c: Combination, ends: tuple[Remote, Remote], place: dict[str, int], sizes: list[int], seed: int
) -> list[dict[str, Any]]:
    """Post everything; returns what the responder's completions say."""
    asking, answering = ends
    name = str(c)
    asking.fill(name, offset=0, size=REGION, seed=seed)
    answering.clear(name)
    if c.verb != "RDMA_WRITE":
        slots = ({"size": SLOT, "offset": SLOT * i, "number": i} for i in range(COUNT))
        answering.all([("receive", {"name": name, **slot}) for slot in slots])
    told: list[dict[str, Any]] = []
    for begin in range(0, COUNT, BATCH):
        orders: list[tuple[str, dict[str, Any]]] = []
        for i in range(begin, begin + BATCH):
            what = {"opcode": c.verb, "size": sizes[i], "offset": SLOT * i, "imm": IMMEDIATE + i, "number": i}
            there = {"va": place["va"] + SLOT * i, "rkey": place["rkey"]}
            orders.append(("post", {"name": name, **what, **there}))
        orders.append(("wait", {"name": name, "count": BATCH, "seconds": LIMIT_S}))
        done = asking.all(orders, 2 * LIMIT_S)[-1]
        wanted = [(i, 0) for i in range(begin, begin + BATCH)]
        assert [(d["wr_id"], d["status"]) for d in done] == wanted, f"completions of the requester: {done}"
        told += answering.wait(name, count=BATCH, seconds=QUIET_S)
    while more := answering.wait(name, count=1, seconds=QUIET_S):
        told += more
    assert all(completion["status"] == 0 for completion in told), told
    return told


def _judge_sends(c: Combination, answering: Remote, told: list[dict[str, Any]], seed: int) -> list[int]:
    """Numbers of the messages that arrived: each receive holds one, whole, and they are in order."""
    assert [t["wr_id"] for t in told] == list(range(len(told))), f"receives out of order: {told}"
    places = [(SLOT * t["wr_id"] + c.head, t["bytes"] - c.head) for t in told]
    found: list[int] = answering.sources(str(c), seed=seed, slot=SLOT, places=places)
    for number, (_, size) in zip(found, places, strict=True):
        assert number >= 0, f"a receive of {size} bytes holds no message that was sent"
        assert size == SIZES[c.service][number % 4], f"message {number} arrived with {size} bytes"
    assert all(a < b for a, b in pairwise(found)), f"messages arrived twice or out of order: {found}"
    return found


def _judge_writes(c: Combination, answering: Remote, sizes: list[int], seed: int) -> tuple[list[int], int]:
    """Numbers of the messages that arrived whole, of the others a beginning at most; and how many could arrive.

    The kernel hears no message after one whose end was lost: do_class_d1e_error() of its rxe_resp.c forgets the opcode
    before only where a receive was begun, so that it takes every later first packet for a wrong middle one.
    """
    packets: list[str] = answering.packets(str(c), seed=seed, slot=SLOT, sizes=sizes, mtu=c.mtu)
    for number, letters in enumerate(packets):
        assert letters.rstrip("0") == "=" * letters.count("="), f"packets of message {number}: {letters}"
    arrived = [number for number, letters in enumerate(packets) if "0" not in letters]
    cut = next((number for number, letters in enumerate(packets) if {"0", "="} <= set(letters)), COUNT)
    if c.requester == "kernel":
        return arrived, COUNT
    assert not any("=" in letters for letters in packets[cut + 1 :]), f"the kernel hears after message {cut}, cut short"
    return arrived, cut
