# SPDX-License-Identifier: Apache-2.0
"""The Linux kernel's soft-RoCE, in a virtual machine, as peer and as judge: tests/conformance/rxe.

Not in pytest: two boots and emulation take minutes. pytest compares with the kernel's recorded answers instead.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ..results import Case, Host, NotInstalledError, Result, Suite
from ..rxe import compare, interop, iwarp, kernel, proxied, record, streams
from ..rxe.remote import Remote
from ..rxe.rows import ROWS


def _ready() -> None:
    try:
        kernel.prepare()
    except kernel.NotAvailableError as missing:
        raise NotInstalledError(str(missing)) from None


def _result(name: str, check: Callable[[], str | None]) -> Result:
    begun = time.monotonic()
    try:
        wrong = check()
    except AssertionError as error:
        wrong = str(error) or "an assertion without words"
    return Result(name, "failed" if wrong else "passed", wrong or "", time.monotonic() - begun)


def answers(host: Host) -> Iterator[Result]:
    """Ask the kernel and the software NIC each row: the kernel must answer as recorded, the NIC as the kernel."""
    _ready()
    recorded = record.blocks(record.FILE)
    places = [host.directory / side for side in ("kernel", "software")]
    for place in places:
        place.mkdir()
    with record.kernel(places[0]) as (_, theirs), compare.software(places[1], host.environment) as ours:
        for number, row in enumerate(ROWS):

            def kernel_row() -> str | None:
                said = theirs.run(row, number)  # noqa: B023
                return None if said == recorded[row.name] else f"the kernel's answer is now:\n{said}"  # noqa: B023

            yield _result(f"answers.kernel.{row.name}", kernel_row)
            yield _result(f"answers.software.{row.name}", lambda: compare.judge(row, ours.run(row, number)))  # noqa: B023


def interoperation(host: Host) -> Iterator[Result]:
    """Every operation of every service, each side as requester, without loss and with it."""
    _ready()
    with interop.world(Path(host.directory), host.environment) as world:
        for loss in (False, True):
            streams_arrived: list[int] = []
            with world.software(loss) as software:
                ends = {"software": (software, world.kernel), "kernel": (world.kernel, software)}
                for c in interop.COMBINATIONS:
                    if c.loss == loss:
                        check = functools.partial(_interoperate, c, ends[c.requester], streams_arrived)
                        yield _result(f"interoperation.{c}", check)
                if loss:
                    lost = world.lost()
                    yield _result("interoperation.loss", lambda: None if lost else "no packet was lost")  # noqa: B023
                    some = any(count < streams.COUNT for count in streams_arrived)
                    yield _result("interoperation.loss seen", lambda: None if some else "every message arrived")  # noqa: B023


def _interoperate(c: interop.Combination, ends: tuple[Remote, Remote], streams_arrived: list[int]) -> None:
    if c.loss and c.service != "RC":
        streams_arrived.append(streams.stream(c, ends, seed=interop.COMBINATIONS.index(c)))
    else:
        interop.exchange(c, ends)


def proxy(host: Host) -> Iterator[Result]:
    """Kernels whose requests the proxy posts, on the kernel's soft-RoCE: alone, and with the software NIC as peer."""
    _ready()
    yield from _each("proxy", proxied.outcomes(Path(host.directory)))


def proxy_on_iwarp(host: Host) -> Iterator[Result]:
    """The same on its soft-iWARP, alone."""
    _ready()
    try:
        iwarp.siw.module()
    except kernel.NotAvailableError as missing:
        raise NotInstalledError(str(missing)) from None
    yield from _each("iwarp", iwarp.outcomes(Path(host.directory)))


def _each(what: str, outcomes: Iterator[proxied.Outcome]) -> Iterator[Result]:
    begun = time.monotonic()
    try:
        for name, wrong in outcomes:
            yield Result(f"{what}.{name}", "failed" if wrong else "passed", wrong, time.monotonic() - begun)
            begun = time.monotonic()
    except AssertionError as error:
        yield Result(f"{what}.run", "failed", str(error), time.monotonic() - begun)


def cases() -> list[Case]:
    """Both need a guest."""
    return [Case("answers", answers, ci=False), Case("interoperation", interoperation, ci=False)]


def proxy_cases() -> list[Case]:
    """A guest of its own."""
    return [Case("proxy", proxy, ci=False)]


def iwarp_cases() -> list[Case]:
    """Another guest."""
    return [Case("iwarp", proxy_on_iwarp, ci=False)]


SUITE = Suite("rxe", "the Linux kernel's soft-RoCE in a guest", cases, 900)
PROXY_SUITE = Suite("rxe-proxy", "the proxy on the Linux kernel's soft-RoCE", proxy_cases, 2400)
IWARP_SUITE = Suite("siw-proxy", "the proxy on the Linux kernel's soft-iWARP", iwarp_cases, 1800)
