# SPDX-License-Identifier: Apache-2.0
"""Makes one fault, sees how it is noticed, and takes everything down: a row of docs/fault_drill.md."""

from __future__ import annotations

import gc
import re
import time
from dataclasses import dataclass

from faults import Fault
from rig import Rig, kernels, with_team

import gda
from gda import attach
from gda.errors import GdaError

TEARDOWN_S = 10.0

@dataclass
class Noticed:
    """What was found, with what varies from run to run taken out."""

    says: str
    seconds: float
    teardown_s: float
    complaints: list[str]
    error: str
    headline: str


def same_every_time(words: str) -> str:
    words = re.sub(r"0x[0-9a-f]{4,}(\.\.)?( [0-9a-f]{8})*", r"0x...\1", words.partition("\n")[0])
    words = re.sub(r"\b(QP|CQ|pair|QPN) 0x[0-9a-f]+", r"\1 0x...", words)
    words = re.sub(r"\b(domain|page|pair to) \d+", r"\1 N", words)
    words = re.sub(r"in \d+ ms", "in N ms", words)
    return words if len(words) <= 150 else words[:147] + "..."


def drill(fault: Fault) -> Noticed:
    assert kernels().names and with_team().names  # compiled before the clock runs
    software = attach.software_nic()
    software.set_thread("adaptive")
    rig = Rig(**fault.options)
    error: GdaError | None = None
    try:
        start = time.monotonic()
        try:
            fault.make(rig)
        except GdaError as raised:
            error = raised
        of_kind = lambda: [c for c in software.report() if c.kind == fault.kind]  # noqa: E731
        if fault.kind:
            rig.until(of_kind, fault.seconds)
        seconds = time.monotonic() - start
        found = of_kind()
        first = str(found[0]) if found else ""
        headline = gda.diagnose(rig.a)[0].headline if fault.headline else ""
        says = "; ".join(
            part for part in (
                f"complaint `{fault.kind}`: {same_every_time(first)}" if found else "",
                f"`{type(error).__name__}`: {same_every_time(str(error))}" if error else "",
                f"diagnose: {same_every_time(headline)}" if headline else "",
            ) if part
        )  # fmt: skip
        kinds = sorted({c.kind for c in software.report()})
    finally:
        begin = time.monotonic()
        rig.close()
        gc.collect()
        teardown_s = time.monotonic() - begin
        software.set_thread("adaptive")
    return Noticed(says, seconds, teardown_s, kinds, type(error).__name__ if error else "", headline)
