# SPDX-License-Identifier: Apache-2.0
"""`python -m gda bench connect`: what it measures of every way to connect, what it says of it, draws and refuses."""

from __future__ import annotations

import gc
import json
import resource
from pathlib import Path
from typing import Any

import pytest

from gda.__main__ import main
from gda.tools.bench.connect_cost import fit
from gda.tools.bench.connect_rank import NEIGHBOURS, WAYS


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GDA_TARGET", "host")
    monkeypatch.setenv("GDA_NIC", "software")


def measured(tmp_path: Path, *words: str) -> dict[str, Any]:
    file = tmp_path / "connect.json"
    assert main(["bench", "connect", "--seconds", "0.001", "--json", str(file), *words]) == 0
    data: dict[str, Any] = json.loads(file.read_text())
    return data


def test_every_way_by_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = measured(tmp_path, "--ranks", "4,1,8,4", "--depth", "32")
    rows = data["rows"]
    assert [(row["way"], row["ranks"]) for row in rows] == [(way, size) for way in WAYS for size in (1, 4, 8)]
    for row in rows:
        assert row["queue_pairs"] == (min(3, row["ranks"]) if row["way"] == NEIGHBOURS else row["ranks"])
        parts = [row[f"{step}_s"] for step in ("make", "connect", "exchange", "nic")]
        assert row["make_s"] > 0 and row["connect_s"] > 0 and row["signal_s"] > 0 and row["passed_s"] > 0
        assert all(part >= 0 for part in parts) and sum(parts) >= row["rank_s"] - 1e-9
        assert row["each_s"] == row["rank_s"] / row["queue_pairs"]
        assert row["queue_bytes"] > 32 * 64 and row["rounds"] == 1
        assert (row["all_bytes"] is not None) == (row["way"] == "all" and row["ranks"] == 8)
    assert (data["command"], data["ranks_are"], data["depth"]) == ("bench connect", "threads", 32)
    assert data["laws"].keys() == WAYS.keys() and data["not_measured"] == []
    shown = capsys.readouterr().out
    assert shown.count("a rank takes ") == 3 and shown.count("no figure is off by more than") == 3
    assert 'connect="on_demand": each rank to the two beside it' in shown and "software ConnectX" in shown
    assert gc.isenabled()


def test_deeper_rings_take_more_memory(tmp_path: Path) -> None:
    small, large = (measured(tmp_path, "--ranks", "1", "--depth", depth)["rows"][0] for depth in ("16", "4096"))
    assert large["queue_bytes"] > small["queue_bytes"] + 4000 * 64


def test_the_line_through_the_figures() -> None:
    law = fit([(2, 7.0), (4, 13.0), (64, 193.0)])
    assert law is not None and law.off < 1e-9
    assert (law.base_s, law.each_s, law.at(10)) == pytest.approx((1.0, 3.0, 31.0))
    bent = fit([(x, float(x * x)) for x in (2, 4, 8, 16)])
    assert bent is not None and bent.off > 0.3  # what grows by the square is no line
    assert fit([(4, 1.0)]) is None and fit([(4, 1.0), (4, 2.0)]) is None and fit([]) is None


def test_one_number_of_ranks_has_no_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert measured(tmp_path, "--ranks", "2")["laws"] == {}
    assert "a rank takes" not in capsys.readouterr().out


def test_what_needs_too_many_descriptors_is_left_out_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only where all meet all at once in one process; a limit that may be raised is raised meanwhile."""
    limits, set_to = (288, 288), list[tuple[int, int]]()
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda _, new: set_to.append(new))
    data = measured(tmp_path, "--ranks", "3")
    assert [row["way"] for row in data["rows"]] == ["all", NEIGHBOURS] and set_to == []
    (why,) = data["not_measured"]
    assert "may need 289 descriptors, and it may have 288" in why and why in capsys.readouterr().out
    limits = (100, 100000)
    assert len(measured(tmp_path, "--ranks", "3")["rows"]) == 3
    assert set_to == [(280, 100000), (100, 100000), (289, 100000), (100, 100000), (286, 100000), (100, 100000)]


def test_draws(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason='not run: matplotlib is missing (pip install "gda[plot]")')
    for ranks in ("1", "2,4"):  # without a line and memory, and with
        file = tmp_path / f"{ranks}.png"
        assert main(["bench", "connect", "--ranks", ranks, "--seconds", "0.001", "--plot", str(file)]) == 0
        assert file.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n" and file.stat().st_size > 20000


@pytest.mark.parametrize(
    "words, message",
    [
        (["--ranks", "0"], "--ranks 0: numbers from 1 to 256"),
        (["--ranks", "2,some"], "--ranks 2,some"),
        (["--ranks", "257"], "--ranks 257"),
        (["--seconds", "0"], "outside 0.001..60"),
        (["--depth", "0"], "--depth 0 is outside 1..32768"),
        (["--plot", "picture.svg"], "ends in .png"),
        (["--json", "/nowhere/file"], "its folder does not exist"),
    ],
)
def test_refuses(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "connect", *words]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--placement", "--queues"])
def test_refuses_what_it_would_ignore(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", option, "gpu", "connect"]) == 1
    assert "queue pairs lie in host memory" in capsys.readouterr().err
