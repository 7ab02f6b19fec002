# SPDX-License-Identifier: Apache-2.0
"""docs/checker.md lists every kind of complaint, as the NIC has it."""

from __future__ import annotations

import re

from checker_page import PAGE, page

from gda import attach


def test_the_page_is_the_nics_own_table() -> None:
    assert PAGE.read_text() == page(), "python tests/whole/checker_page.py writes it"


def test_names_and_words() -> None:
    kinds = attach.software_nic().complaint_kinds()
    for name, kind in kinds.items():
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", name)
        assert kind.rule and kind.source and kind.advice, name
        assert "|" not in kind.rule + kind.source + kind.advice
