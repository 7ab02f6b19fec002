# SPDX-License-Identifier: Apache-2.0
"""The picture of a captured put in the documents shows what a capture gives today."""

from __future__ import annotations

import importlib.util
import re
import shutil
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

PICTURES = Path(__file__).resolve().parents[2] / "docs" / "pictures"


@pytest.fixture
def drawer() -> ModuleType:
    if shutil.which("tshark") is None:
        pytest.skip("not run: apt-get install tshark")
    spec = importlib.util.spec_from_file_location("put_picture", PICTURES / "put.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def lines(svg: str) -> list[str]:
    """What an SVG of rich's shows, line by line."""
    shown: dict[float, str] = {}
    for text in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text"):
        height = float(text.get("y", 0))
        shown[height] = shown.get(height, "") + " " + "".join(text.itertext()).replace("\xa0", " ")
    return [shown[height] for height in sorted(shown)]


def packets(svg: str) -> list[tuple[str, ...]]:
    """Number, NIC, direction, bytes, PSN and opcode of each packet that is shown."""
    pattern = r"\s*(\d+)\s+(mlx5_\d) (sends|receives)\s+(\d+)\s+(\d+)\s+(RC [\w ]+?) QP="
    return [match.groups() for line in lines(svg) if (match := re.match(pattern, line))]


def test_the_picture_shows_what_a_new_capture_gives(drawer: ModuleType, tmp_path: Path) -> None:
    new = drawer.picture(drawer.rows(tmp_path))
    kept = (PICTURES / "put.svg").read_text()
    assert packets(kept) == packets(new), "python docs/pictures/put.py draws it again"
    sent = [p[-1].removeprefix("RC ") for p in packets(kept) if p[2] == "sends"]
    first, middle, last, ack = "RDMA Write First", "RDMA Write Middle", "RDMA Write Last", "Acknowledge"
    assert sent == [first, middle, last, ack, middle, last, ack]
    text = " ".join(lines(kept))
    for words in ("dropped by", "PSN Sequence Error", "sent again", "WQE 0"):
        assert words in text
