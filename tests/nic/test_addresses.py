# SPDX-License-Identifier: Apache-2.0
"""Which GID is taken to connect, from tables as networks make them."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gda.nic
from gda import attach
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


addresses = st.binary(min_size=16, max_size=16) | st.sampled_from(
    ["fe80::1", "::ffff:10.0.0.1", "::ffff:127.0.0.1", "2001:db8::1", "::", "ff02::1", "fe80::2", "::1"]
).map(lambda text: ipaddress.IPv6Address(text).packed)
tables = st.lists(
    st.builds(Gid, st.integers(0, 15), addresses, st.sampled_from(["RoCE v1", "RoCE v2", "IB"])),
    max_size=16, unique_by=lambda gid: gid.index,
)  # fmt: skip


@given(tables)
def test_from_any_table_the_choice_is_the_best(gids):
    """Nothing in the table is routed when the choice is not; nothing is v2 when it is v1."""
    for gid in gids:
        assert str(gid) and choose(gids, gid.index, "here") == gid
    if not gids:
        return
    best = choose(gids, None, "here")
    assert routed(gids)[:1] in ((best.index,), ())
    if best.type == "RoCE v1":
        assert all(gid.type == "RoCE v1" for gid in gids)


@given(tables, tables.filter(bool), st.booleans())
def test_an_entry_is_found_again_or_its_loss_is_explained(now, before, pinned):
    chosen = before[0]
    same = [gid for gid in now if (gid.raw, gid.type) == (chosen.raw, chosen.type)]
    try:
        found = find_again(now, chosen, pinned, "here")
    except GidError as error:
        assert error.index == chosen.index and f"index {chosen.index}" in str(error)
        assert all(candidate in [gid.index for gid in now] for candidate in error.candidates)
        assert not same or pinned
    else:
        assert found in same or found == chosen
        assert (found.raw, found.type) == (chosen.raw, chosen.type)


changes = st.tuples(st.integers(-1, 17), st.none() | addresses | st.binary(max_size=17), st.sampled_from([1, 2, 3]))


@given(st.lists(changes, min_size=1, max_size=12))
@settings(max_examples=50, deadline=None)
def test_the_table_holds_what_was_put_in(card, orders):
    """As a model of it says: an entry each index, each address and type once."""
    nic, software = card
    model = {gid.index: (gid.raw, gid.type) for gid in nic.gids}
    for index, raw, version in orders:
        entry = None if raw in (None, bytes(16)) else (raw, f"RoCE v{version}")
        elsewhere = [at for at, held in model.items() if held == entry and at != index]
        good = 0 <= index <= 15 and version < 3 and (raw is None or len(raw) == 16) and not elsewhere
        if good:
            software.set_gid(index, raw, f"RoCE v{version}")
            model.pop(index, None)
            if entry is not None:
                model[index] = entry
        else:
            with pytest.raises(ArgumentError, match="GID"):
                software.set_gid(index, raw, f"RoCE v{version}")
    assert {gid.index: (gid.raw, gid.type) for gid in nic.gids} == model


@pytest.fixture(scope="module")
def card():
    software = attach.software_nic()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GDA_NIC", "software")
        nic = gda.nic.open()
        before = nic.gids
        yield nic, software
        for index in range(16):
            software.set_gid(index, None)
        for gid in before:
            software.set_gid(gid.index, gid.raw, gid.type)
        nic.close()
