# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin: a test fails when the software NIC complained during it.

pytest loads it where gda is installed (entry point pytest11), else by `-p gda.pytest_plugin`. Tests that make mistakes
on purpose say which: `@pytest.mark.gda_complaints("wqe-stale", may=("retries-exceeded",))`. docs/checker.md.
"""

from __future__ import annotations

import sys
from collections.abc import Generator
from typing import Any

import pytest

__all__ = ["pytest_configure", "pytest_runtest_call", "pytest_runtest_setup", "pytest_runtest_teardown"]

_ANY = "any"


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line(
        "markers",
        "gda_complaints(*kinds, may=()): the software NIC must complain of each of these kinds during the test, and "
        f"may of those in `may` ({_ANY!r}: of everything); any other complaint fails a test",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Forget what tests before have left."""
    del item
    _forget()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """After the test itself: what it expected must have come, and nothing else."""
    try:
        result = yield
    except BaseException:  # whatever failed: what the NIC says belongs to it
        item.add_report_section("call", "software NIC", "\n".join(one.explain() for one in _complaints()))
        _forget()
        raise
    must, may = _expected(item)
    came = {one.kind for one in _complaints()}
    _judge(must | may)
    if missing := must - came:
        pytest.fail(f"the software NIC did not complain: {', '.join(sorted(missing))}", pytrace=False)
    return result


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    """After its fixtures have ended: closing may be wrong, too."""
    result = yield
    must, may = _expected(item)
    _judge(must | may)
    _forget()  # what was expected is no last word of the process
    return result


def _expected(item: pytest.Item) -> tuple[set[str], set[str]]:
    must: set[str] = set()
    may: set[str] = set()
    for marker in item.iter_markers("gda_complaints"):
        must |= set(marker.args)
        may |= set(marker.kwargs.get("may", ()))
    return must, may


def _judge(expected: set[str]) -> None:
    unexpected = [one for one in _complaints() if one.kind not in expected]
    if unexpected and _ANY not in expected:
        words = "\n".join(one.explain() for one in unexpected)
        _forget()  # told once
        pytest.fail(f"the software NIC complained:\n{words}", pytrace=False)


def _nic() -> Any:
    # Only where a test has loaded it: this plugin is there for every test of a machine that has gda installed.
    attach = sys.modules.get("gda.attach")
    nic = attach.loaded() if attach is not None else None
    return nic if attach is not None and isinstance(nic, attach.SoftwareNic) else None  # not a test's stand-in


def _forget() -> None:
    nic = _nic()
    if nic is not None:
        nic.clear_report()


def _complaints() -> list[Any]:
    nic = _nic()
    return nic.report() if nic is not None else []
