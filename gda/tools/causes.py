# SPDX-License-Identifier: Apache-2.0
"""Why nothing goes on: where a request of a queue pair stands still, by what live.py saw. Used by it and by diagnose.

A request goes through stages: reserved, written, rung, taken by the NIC, fetched, sent, answered, completion written,
read by a kernel. The first stage that it has not reached tells who is to act; counters and the NIC's sentences tell
why. A kernel that waits while nothing is under way waits for somebody else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gda import formats
from gda.tools.finding import CAUSE, COUNTED, LIKELY, SAID, SYMPTOM, Finding

if TYPE_CHECKING:
    from gda.tools.live import Live, LiveNic, LiveQueue

__all__ = ["causes", "of_queue", "stuck"]

_HEADERS_BYTES = 96  # that the largest path MTU leaves for headers in a network device's MTU


def causes(seen: Live) -> list[Finding]:
    """What is wrong in a process, the most telling first; never empty."""
    found: list[Finding] = []
    for queue in seen.queues:
        found += of_queue(queue, seen)
    told: set[str] = set()
    for nic in seen.nics:
        if any(queue.nic == nic.name and not queue.idle for queue in seen.queues) or nic.complaints:
            found += (f for f in _counted(nic, seen) if f.headline not in told)
        told |= {f.headline for f in found}
        found += [Finding(s, f"{nic.name} says so", rank=SAID + 99 - min(n, 99)) for n, s in enumerate(nic.complaints)]
    if seen.stopped:
        found.append(
            Finding(
                f"process {seen.pid} is stopped", "the system lets none of its threads run: a signal or a debugger",
                f"kill -CONT {seen.pid}, or let the debugger go on", rank=CAUSE + 98,
            )
        )  # fmt: skip
    if not any(finding.rank >= LIKELY for finding in found):  # else it waits for that
        found += _waiting(seen)
    found.sort(key=lambda finding: -finding.rank)
    if not found and (hidden := [f"0x{queue.qpn:06x}" for queue in seen.queues if queue.notes]):
        return [Finding(
            f"nothing wrong is visible, but not all is: {', '.join(hidden)}",
            "what a kernel posted to these queue pairs and what it has read cannot be seen from here",
            "see what is named as not visible above",
        )]  # fmt: skip
    return found or [Finding("nothing wrong is visible", "no request stands still, and the NIC has no complaint")]


def of_queue(queue: LiveQueue, seen: Live) -> Iterator[Finding]:
    """Where requests of one queue pair stand still, and why."""
    error = queue.error()
    if error is not None and (queue.member("error") or 0) == 0:
        yield _failed(queue, error)
    yield from stuck(queue, seen)


def stuck(queue: LiveQueue, seen: Live) -> Iterator[Finding]:
    """The same without failures, of which the NIC itself can tell more."""
    nic = seen.nic(queue.nic)
    yield from _wrong_state(queue)
    yield from _not_told(queue)
    yield from _not_served(queue, nic, seen)
    yield from _overran(queue)
    if queue.state not in ("ERR", "SQER"):
        yield from _not_read(queue)


def _name(queue: LiveQueue) -> str:
    return f"queue pair 0x{queue.qpn:06x}"


def _stages(queue: LiveQueue) -> dict[str, int | str]:
    """The values behind a finding, in the order of the stages."""
    stages = {
        "reserved": queue.reserved, "ready": queue.member("ready"), "rung": queue.member("rung"),
        "record": queue.record, "told": queue.told, "fetched": queue.fetched, "completed": queue.completed,
        "done": queue.member("done"),
    }  # fmt: skip
    return {name: value for name, value in stages.items() if value is not None}


def _found(queue: LiveQueue, rank: int, headline: str, meaning: str, advice: str, **more: int | str) -> Finding:
    return Finding(f"{_name(queue)}: {headline}", meaning, advice, {**_stages(queue), **more}, rank)


def _failed(queue: LiveQueue, entry: bytes) -> Finding:
    error = formats.err_cqe.unpack(entry)
    meaning = formats.syndrome_meaning(int(error["syndrome"]))
    vague = meaning.code in (0x05, 0x15, 0x16)  # a consequence, and two that have causes of their own
    return _found(
        queue, SYMPTOM + 95 if vague else CAUSE + 99,
        f"request {int(error['wqe_counter'])} failed: {meaning.words} (0x{meaning.code:02x}), and no kernel "
        "has seen it",
        meaning.text, meaning.advice,
    )  # fmt: skip


def _wrong_state(queue: LiveQueue) -> Iterator[Finding]:
    if queue.state in ("RST", "INIT", "RTR") and queue.posted > (queue.completed or 0):
        yield _found(
            queue, CAUSE + 70, f"posted in state {queue.state}",
            "a queue pair sends when it is connected; the NIC ignores what was posted before",
            "connect() both sides first",
        )  # fmt: skip
    if queue.peer.startswith(("RST", "INIT", "gone")) and not queue.idle:
        yield _found(
            queue, CAUSE + 72, f"its peer is {queue.peer}", "what is sent there is dropped, without an answer",
            "find out who reset or closed it; connect both sides again", peer=queue.peer,
        )  # fmt: skip
    elif queue.peer.startswith("ERR") and not queue.idle:
        yield _found(
            queue, CAUSE + 71, f"its peer is in the error state ({queue.peer})",
            "it failed first, and drops what arrives", "look at the peer: its first error completion is the cause",
            peer=queue.peer,
        )  # fmt: skip


def _not_told(queue: LiveQueue) -> Iterator[Finding]:
    """Posted, but the NIC does not know."""
    reserved, ready, rung = queue.reserved, queue.member("ready"), queue.member("rung")
    if reserved is not None and ready is not None and rung is not None:
        if ready > rung:
            yield _found(
                queue, LIKELY + 85, f"posted but not rung: {ready - rung} basic blocks",
                "the requests are written, but nobody rang the doorbell for them",
                "the last request of a series is posted without GDA_MORE, or followed by gda_wait or gda_flush",
            )  # fmt: skip
        if reserved > max(ready, rung):
            yield _found(
                queue, LIKELY + 80, f"reserved but not written: {reserved - max(ready, rung)} basic blocks",
                "a thread took slots and has not told that they are complete: it runs still, or it ended between",
                "every thread that reserves must write and submit; look at divergent branches around the post",
            )  # fmt: skip
    if queue.register:
        yield _found(
            queue, LIKELY + 78, "a doorbell was rung that the NIC has not taken",
            "its value lies in the register",
            "is the NIC's engine running? on the software NIC: its thread, or who polls",
            register=f"{queue.register:#018x}",
        )  # fmt: skip
    yield from _record_or_doorbell(queue)


def _record_or_doorbell(queue: LiveQueue) -> Iterator[Finding]:
    if queue.record is None or queue.told is None or queue.state == "RST":
        return
    modulus = 1 << 16
    if queue.receive_record and not queue.receives and queue.record == queue.told % modulus:
        yield _found(
            queue, CAUSE + 90, "the send counter is in the wrong word of the doorbell record",
            f"the receive word holds {queue.receive_record}, and the queue pair has no receive queue: the NIC reads "
            "the send counter from the second dword and finds nothing new",
            "store the send counter, big-endian, 4 bytes behind the record's start", receive_word=queue.receive_record,
        )  # fmt: skip
    elif queue.announced is not None:
        yield _found(
            queue, CAUSE + 88, "a doorbell without a record",
            f"the doorbell's value says that requests below {queue.announced} are there, the record says "
            f"{queue.record}",
            "write the record before the doorbell, with a fence for the system between them",
            announced=queue.announced,
        )  # fmt: skip
    elif queue.record != queue.told % modulus and not queue.register:
        yield _found(
            queue, CAUSE + 86, "a record without a doorbell",
            f"the record says that requests below {queue.record} are there, but nobody rang: the NIC knows "
            f"of {queue.told}",
            "store the doorbell's eight bytes to the register after the record",
        )  # fmt: skip
    elif (index := _next_in_ring(queue)) is not None:
        yield _found(
            queue, LIKELY + 84, "posted but not rung: a request stands in the ring behind the record",
            f"slot {index % queue.depth} holds request {index} of this queue pair; record and doorbell end before",
            "write the record, then ring the doorbell",
        )  # fmt: skip


def _next_in_ring(queue: LiveQueue) -> int | None:
    """The index of a request that was written by hand and never told of."""
    if queue.reserved is not None or queue.told is None:
        return None
    for index, block in queue.wqes:
        control = formats.wqe_ctrl_seg.unpack(block[:16])
        ours = control["qp_or_sq"] == queue.qpn and control["ds"] and control["wqe_index"] == index % (1 << 16)
        if ours and index >= queue.told:
            return index
    return None


def _not_served(queue: LiveQueue, nic: LiveNic | None, seen: Live) -> Iterator[Finding]:
    """The NIC knows, and does not go on; or the peer does not answer."""
    told, fetched, completed = queue.told, queue.fetched, queue.completed
    if told is None or fetched is None or completed is None or queue.state in ("RST", "ERR", "SQER"):
        return
    still = nic is not None and nic.thread == "off" and not nic.moves
    behind = queue.register or told > completed
    if still and behind and not seen.stopped:
        yield _found(
            queue, CAUSE + 60, "the NIC's engine stands still",
            "its thread is off, and nobody polls a completion queue or steps it",
            'sim.current().set_thread("adaptive")',
        )  # fmt: skip
    if told > fetched:
        yield _found(
            queue, LIKELY + 70 if fetched == completed else SYMPTOM + 60,  # else it waits behind what is under way
            f"rung but not fetched: {told - fetched} basic blocks",
            "the NIC was told of them and has not read them: it is busy, stands still, or waits for reads, atomics or "
            "a full window of earlier requests",
            "look at the oldest request under way; then at the engine",
        )  # fmt: skip
    if fetched > completed and queue.waits_rnr:
        yield _found(
            queue, LIKELY + 75, "the peer has no receive posted",
            "it answered `receiver not ready`, and this side waits",
            "post receives there before sending here",
        )  # fmt: skip
    elif fetched > completed and queue.unanswered:
        tries = f", {queue.retries_left} of {queue.retries} retries are left" if queue.retries else ""
        yield _found(
            queue, LIKELY + 18, f"sent, nothing answered: {queue.unanswered} packets",
            f"requests from {completed} on are on their way{tries}",
            "look at the peer's state and at counters of lost packets, here and there; the timeout ends it",
            unanswered=queue.unanswered,
        )  # fmt: skip
    if fetched > completed and queue.unsent:
        waited = nic.counters.get("link_full", 0) - queue.counters_before.get("link_full", 0) if nic else 0
        why = "the link took no more: a rate, or the inbox of a peer that does not look" if waited else (
            "they wait for answers to earlier ones, or a fence for earlier reads"
        )
        yield _found(
            queue, LIKELY + 68 if waited or not queue.unanswered else SYMPTOM + 65,
            f"fetched, nothing sent: {queue.unsent} packets", f"the NIC knows the requests; {why}",
            "look at the peer's process: does it run, does it take packets? on the software NIC: at the faults",
            unsent=queue.unsent, link_full=waited,
        )  # fmt: skip


def _overran(queue: LiveQueue) -> Iterator[Finding]:
    """Also of a queue pair that failed: that is what comes of it."""
    if queue.cq_failed:
        yield _found(
            queue, CAUSE + 80, "its completion queue overran", "completions came faster than they were read",
            "make it deeper, poll more often, or store the consumer index", written=queue.written or 0,
        )  # fmt: skip


def _not_read(queue: LiveQueue) -> Iterator[Finding]:
    """Complete, and nobody looks."""
    done, completed = queue.member("done"), queue.completed
    if done is None or completed is None or completed <= done or completed < queue.posted:
        return
    # Requests without a completion of their own are complete without anybody being able to know.
    silent = int(queue.handle["silent"]) if queue.handle else 0
    if queue.written and silent <= done:
        yield _found(
            queue, SYMPTOM + 70, f"answered, completions are there, nobody polled: {completed - done} basic blocks",
            "the NIC wrote them, and no kernel has read them since", "call gda_wait or gda_flush on this queue pair",
            written=queue.written,
        )  # fmt: skip


def _counted(nic: LiveNic, seen: Live) -> Iterator[Finding]:
    suspects = [q for q in seen.queues if q.nic == nic.name and (not q.idle or q.state == "ERR")]
    for row in COUNTED:
        before = [queue.counters_before.get(row.counter, 0) for queue in suspects]
        count = nic.counters.get(row.counter, 0) - min(before, default=0)
        if count <= 0:
            continue
        values: dict[str, int | str] = {row.counter: count}
        headline = f"{row.headline}: {count}"
        if row.counter == "packets_over_link_mtu":
            stuck = [q for q in seen.queues if q.nic == nic.name and q.path_mtu + _HEADERS_BYTES > nic.link_mtu[q.port]]
            if stuck:
                q = max(stuck, key=lambda queue: not queue.idle)
                values |= {"path_mtu": q.path_mtu, "link_mtu": nic.link_mtu[q.port]}
                values |= {"rung": q.posted, "fetched": q.fetched or 0}
        yield Finding(headline, row.meaning, row.advice, values, row.rank)


def _waiting(seen: Live) -> Iterator[Finding]:
    """A kernel that waits though nothing is under way."""
    if not seen.kernels or not seen.queues or not all(queue.idle for queue in seen.queues):
        return
    if any(queue.error() is not None for queue in seen.queues):
        return
    kernel = max(seen.kernels, key=lambda one: one.seconds)
    ends = ", ".join(f"0x{q.qpn:06x} {q.state or '?'}, its peer {q.peer or 'unknown'}" for q in seen.queues[:4])
    peers = [queue.peer_idle for queue in seen.queues if queue.remote is not None]
    quiet = bool(peers) and all(idle is True for idle in peers)
    where = "and nothing is under way from its peers either" if quiet else "its peers cannot all be seen from here"
    yield Finding(
        f"kernel {kernel.name} waits for something that nobody has posted",
        f"it runs since {kernel.seconds:.1f} s; everything that was posted here is complete and read, {where}: if it "
        "waits for a signal, the peer has not sent it, or waits itself",
        "look at the peer's program: did it start its kernel, does it wait for this side first, does it signal the "
        "window that this side waits on? give gda_wait_signal a deadline",
        {"queue pairs": ends}, LIKELY + 95 if quiet else LIKELY + 50,
    )  # fmt: skip
