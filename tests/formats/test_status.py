# SPDX-License-Identifier: Apache-2.0
"""cuda/gda/formats/status.h: golden status words, both ways, and their decoder."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gda import formats
from gda.errors import ArgumentError

from . import quad
from .golden import Record, records


@pytest.mark.parametrize("record", records("status", "status.h"))
@pytest.mark.parametrize("check", quad.QUAD, ids=lambda check: check.__name__)
def test_status(check: Callable[[Record], None], record: Record) -> None:
    check(record)


def word(**fields: int) -> int:
    return int.from_bytes(formats.status.pack(**fields), "big")


def test_code_is_the_low_byte() -> None:
    """Zero is success, and the low byte tells the kinds apart."""
    assert word(code=formats.GDA_TIMEOUT) == 2
    assert word(qpn=1) == 0x100
    assert word(wqe_index=0xFFFF) == 0xFFFF << 48


def test_decode_success() -> None:
    found = formats.decode_status(0)
    assert found["ok"] is True
    assert found["text"] == "ok"


OF_A_QUEUE = [c for c in formats.enums["status_code"] if c and c != formats.GDA_SIGNAL_TIMEOUT]


@pytest.mark.parametrize("code", OF_A_QUEUE, ids=lambda c: c.name)
def test_decode_every_code(code: int) -> None:
    found = formats.decode_status(word(code=code, qpn=0x48, wqe_index=5, syndrome=0x13, vendor_error_syndrome=0x88))
    assert not found["ok"]
    assert (found["code"], found["qpn"], found["wqe_index"]) == (code, 0x48, 5)
    assert found["code_name"] == formats.enums["status_code"](code).name
    assert "on queue pair 0x48, work request 5: " + found["meaning"] in found["text"]
    assert found["advice"]
    assert "unknown" not in found["words"]


def test_a_signal_that_did_not_come() -> None:
    """The value takes the place of queue and request."""
    found = formats.decode_status(0x12345678ABCDEF08)
    assert (found["code_name"], found["last_seen"]) == ("GDA_SIGNAL_TIMEOUT", 0x12345678ABCDEF)
    assert (found["qpn"], found["wqe_index"]) == (0, 0)
    assert found["text"].startswith(f"no signal, last seen {0x12345678ABCDEF}: ")
    assert found["advice"]


def test_completion_error_speaks_of_its_syndrome() -> None:
    found = formats.decode_status(word(code=formats.GDA_COMPLETION_ERROR, syndrome=0x13, vendor_error_syndrome=0x88))
    assert found["syndrome_name"] == "MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR"
    assert found["words"] == "remote access error (0x13, vendor 0x88)"


def test_decode_keeps_what_it_does_not_know() -> None:
    found = formats.decode_status(word(code=0x77))
    assert (found["code"], found["code_name"], found["words"]) == (0x77, "", "unknown status 0x77")


@pytest.mark.parametrize("value", [-1, 1 << 64])
def test_decode_refuses_what_is_no_word(value: int) -> None:
    with pytest.raises(ArgumentError, match="64 bits"):
        formats.decode_status(value)


def test_every_command_status_has_a_meaning() -> None:
    for status in formats.enums["cmd_status"]:
        meaning = formats.command_status_meaning(status)
        assert (meaning.code, meaning.name) == (status, status.name)
        assert "unknown" not in meaning.words
    assert formats.command_status_meaning(0x77).words == "unknown status"
