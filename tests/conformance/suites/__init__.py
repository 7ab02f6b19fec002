# SPDX-License-Identifier: Apache-2.0
"""The suites, in the order in which the command runs them: a row each."""

from __future__ import annotations

from ..results import Suite
from . import capture, perftest, pingpong, pyverbs, rxe, ucx

SUITES: list[Suite] = [
    pyverbs.SUITE, pingpong.SUITE, perftest.SUITE, ucx.SUITE, capture.SUITE, rxe.SUITE, rxe.PROXY_SUITE,
    rxe.IWARP_SUITE,
]  # fmt: skip
