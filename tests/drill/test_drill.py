# SPDX-License-Identifier: Apache-2.0
"""The fault drill: every fault is noticed, named, bounded in time and torn down; docs/fault_drill.md is its record.

`python tests/drill/write_page.py` makes all faults and writes the page; here each must leave the row that stands there.
"""

from __future__ import annotations

import pytest
from faults import FAULTS, Fault
from harness import TEARDOWN_S, drill
from plain import tells
from write_page import PAGE, row, row_of

from gda import attach


@pytest.fixture(autouse=True)
def software_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GDA_NIC", "software")


@pytest.mark.gda_complaints(may=("any",))
@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name.replace(" ", "-"))
def test_fault(fault: Fault) -> None:
    before = attach.software_nic().objects()
    noticed = drill(fault)
    assert attach.software_nic().objects() == before, "something of the NIC was left behind"
    assert noticed.teardown_s < TEARDOWN_S
    assert noticed.seconds < fault.seconds, "noticed too late"
    if fault.kind:
        assert fault.kind in noticed.complaints, noticed
    assert noticed.error == fault.error or (fault.kind and not fault.error), noticed
    if fault.headline:
        assert noticed.headline.startswith(fault.headline), noticed
    assert row_of(fault).startswith(row(fault, noticed)), "python tests/drill/write_page.py writes it"


def test_the_page_has_a_row_for_each() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ") and not line.startswith("| fault")]
    assert [line.split(" | ")[0][2:] for line in rows] == [fault.name for fault in FAULTS]
    assert len(rows) >= 30


@pytest.mark.gda_complaints(may=("any",))
@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name.replace(" ", "-"))
def test_what_a_user_of_libibverbs_is_told(fault: Fault) -> None:
    """The last column, made with queue pairs of unmodified libmlx5."""
    before = attach.software_nic().objects()
    told = tells(fault)
    assert attach.software_nic().objects() == before, "something of the NIC was left behind"
    assert row_of(fault).endswith(f" s | {told} |"), told
