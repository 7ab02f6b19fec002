# SPDX-License-Identifier: Apache-2.0
"""Which GID is taken to connect, from tables as networks make them."""

from __future__ import annotations

import ipaddress

import pytest

from gda.errors import ArgumentError, GidError, UnavailableError
from gda.nic.addresses import Gid, choose, find_again, routed, wanted_index


def table(*entries: tuple[int, str, str]) -> list[Gid]:
    return [Gid(index, ipaddress.IPv6Address(address).packed, f"RoCE {version}") for index, address, version in entries]


PLAIN = table((0, "fe80::1", "v1"), (1, "fe80::1", "v2"), (2, "::ffff:10.0.0.1", "v1"), (3, "::ffff:10.0.0.1", "v2"))
VLAN = table(
    (0, "fe80::2", "v1"), (1, "fe80::2", "v2"), (2, "fe80::3", "v1"), (3, "fe80::3", "v2"),
    (4, "::ffff:10.0.0.2", "v1"), (5, "::ffff:10.0.0.2", "v2"),
)  # fmt: skip


def test_each_side_has_its_own_index():
    assert choose(PLAIN, None, "a").index == 3
    assert choose(VLAN, None, "b").index == 5


@pytest.mark.parametrize(
    ("entries", "best"),
    [
        ([(0, "fe80::1", "v2"), (1, "2001:db8::1", "v2")], 1),
        ([(0, "2001:db8::1", "v2"), (1, "::ffff:10.0.0.1", "v2")], 1),
        ([(0, "::ffff:127.0.0.1", "v2"), (1, "::ffff:10.0.0.1", "v2")], 1),
        ([(0, "::ffff:10.0.0.1", "v1"), (1, "fe80::1", "v2")], 1),
        ([(4, "::ffff:10.0.0.2", "v2"), (7, "::ffff:10.0.0.1", "v2")], 4),
        ([(0, "::1", "v2"), (1, "fd00::1", "v2")], 1),
    ],
)
def test_order_of_preference(entries, best):
    assert choose(table(*entries), None, "here").index == best


def test_an_empty_index_says_what_there_is():
    with pytest.raises(GidError, match=r"GID index 9 of mlx5_0 is empty(.|\n)*3: 10\.0\.0\.1 RoCE v2") as caught:
        choose(PLAIN, 9, "mlx5_0")
    assert (caught.value.index, caught.value.candidates) == (9, (3,))
    with pytest.raises(UnavailableError, match="has no GID"):
        choose([], None, "mlx5_0")


def test_an_entry_that_moved_is_found_again():
    moved = [*PLAIN[:3], Gid(4, PLAIN[3].raw, "RoCE v2")]
    assert find_again(moved, PLAIN[3], False, "a").index == 4
    with pytest.raises(GidError, match="index 3 empty; same address now at 4") as caught:
        find_again(moved, PLAIN[3], True, "a")
    assert (caught.value.index, caught.value.candidates) == (3, (4,))
    with pytest.raises(GidError, match=r"index 3 empty; 10\.0\.0\.1 RoCE v2 is no address of a any more"):
        find_again(PLAIN[:3], PLAIN[3], False, "a")
    other = [*PLAIN[:3], Gid(3, b"\xfd" + bytes(14) + b"\x07", "RoCE v2")]
    with pytest.raises(GidError, match=r"index 3 holds fd00::7 RoCE v2;"):
        find_again(other, PLAIN[3], True, "a")
    assert find_again(PLAIN, PLAIN[3], True, "a") == PLAIN[3]


def test_only_routed_entries_are_candidates():
    assert routed(PLAIN) == (3,)
    assert routed(table((0, "fd00::1", "v2"), (1, "::ffff:10.0.0.1", "v2"), (2, "fe80::1", "v2"))) == (1, 0)


def test_an_empty_variable_is_unset(monkeypatch):
    monkeypatch.setenv("GDA_GID_INDEX", "")
    assert wanted_index(None) is None
    monkeypatch.setenv("GDA_GID_INDEX", "1")
    assert wanted_index(None) == 1 and wanted_index(0) == 0
    monkeypatch.setenv("GDA_GID_INDEX", "one")
    with pytest.raises(ArgumentError, match="GDA_GID_INDEX='one' is no index"):
        wanted_index(None)
