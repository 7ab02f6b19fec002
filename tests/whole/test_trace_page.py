# SPDX-License-Identifier: Apache-2.0
"""The page of a trace, in a real browser, at a desk's and a phone's width; and the pictures of it in the documents."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import gda
from gda import trace
from gda.sim import current, faults
from tests.browser import Browser, Page, fixture  # noqa: F401

ROOT = Path(__file__).resolve().parents[2]
PUTS = 12


@pytest.fixture(scope="module")
def recorded() -> trace.Trace:
    current()
    kernel = gda.Kernel("#include <gda/kernels/put.h>\n", target="host", trace=True)
    with gda.open() as nic, trace.record() as t:
        source, target = nic.register(np.arange(4096, dtype=np.uint8)), nic.allocate(4096)
        a, _b = nic.loopback_pair()
        kernel.gda_kernel_put[1, 4](a, target, 0, source, 0, 512, 10**10)
        for _ in range(PUTS - 5):
            kernel.gda_kernel_put[1, 1](a, target, 0, source, 0, 512, 10**10)
        with faults("drop request first=1"):
            kernel.gda_kernel_put[1, 1](a, target, 0, source, 0, 4096, 10**10)
    return t


@pytest.fixture(scope="module")
def file(recorded: trace.Trace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "put.html"
    recorded.save(path)
    return path


SIZES = {"desk": {"width": 1280, "height": 800}, "phone": {"width": 390, "height": 844, "touch": True, "scale": 2.0}}


@pytest.fixture(scope="module", params=[(size, dark) for size in SIZES for dark in (False, True)],
                ids=lambda p: f"{p[0]}-{'dark' if p[1] else 'light'}")  # fmt: skip
def page(request: pytest.FixtureRequest, chromium: Browser, file: Path) -> Page:
    size, dark = request.param
    return chromium.open(file, dark=dark, **SIZES[size])


def middle_of(page: Page, put: int, part: str) -> tuple[float, float]:
    """Where a part of a put lies in the window."""
    x, y = page.value(
        f"(() => {{const s = PUTS[{put}].slices.find(s => s.name === {part!r}), r = lanes.getBoundingClientRect();"
        "return [r.x + (x_of(s.a) + x_of(s.b)) / 2, r.y + middle(s.lane)]})()"
    )
    return x, y


def test_all_lanes_and_puts_are_there(page: Page) -> None:
    kinds = [lane["kind"] for lane in page.value("LANES")]
    assert kinds == ["python", *["thread"] * 4, "queue", "engine", "wire", "peer"]
    assert page.value("PUTS.length") == PUTS
    assert page.value("PUTS.every(p => p.slices.length === 8 && p.slices.every(s => s.b >= s.a))")
    names = ["post", "in the queue", "send", "request", "carry out", "answer", "complete", "done"]
    assert page.value("PUTS[0].slices.map(s => s.name)") == names
    stages = page.value("[...document.querySelectorAll('#stages tr td:first-child')].map(e => e.textContent)")
    assert stages[0] == "reserve → write"
    assert stages[-1] == "reserve → done"
    assert len(stages) == 10
    assert page.complaints == []


def test_it_fits_its_window_and_can_be_read(page: Page) -> None:
    assert page.overflow() == 0
    small = (
        "[...document.querySelectorAll('body *')].filter(e => e.children.length === 0 && e.textContent.trim() &&"
        "!['SCRIPT', 'STYLE'].includes(e.tagName) && parseFloat(getComputedStyle(e).fontSize) < 11)"
    )
    assert page.value(f"{small}.map(e => e.textContent)") == []
    low = page.value("Math.min(...[...document.querySelectorAll('button')].map(b => b.getBoundingClientRect().height))")
    assert low >= 36, "fingers are wide"


def test_the_picture_is_drawn_in_the_colours_of_its_scheme(page: Page) -> None:
    dark = page.value("matchMedia('(prefers-color-scheme: dark)').matches")
    painted = page.value(  # in one look: a second one brings a warning
        "new Set(lanes.getContext('2d').getImageData(0, 0, lanes.width, lanes.height).data"
        ".filter((v, i) => i % 4 < 3)).size"
    )
    assert painted > 20, "nothing but the ground is there"
    assert (page.value("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 28)") == dark


def test_what_went_wrong_is_shown_first(page: Page) -> None:
    """The put whose packet was lost, with the places where it was sent again."""
    page.value("choose(data.first, true)")
    assert page.value("chosen") == PUTS - 1
    assert "sent again" in page.value("document.getElementById('detail').textContent")
    marks = page.value("data.marks.filter(m => m.t >= from && m.t <= to).length")
    assert marks >= 1


def test_a_tap_shows_the_values(page: Page) -> None:
    page.value("choose(5, true); scrollTo(0, 0); document.getElementById('lanes').scrollIntoView({block: 'center'})")
    page.value("chosen = -1; describe(); draw()")
    x, y = middle_of(page, 5, "answer")
    (page.tap if page.value("matchMedia('(pointer: coarse)').matches") else page.click)(x, y)
    page.until("chosen === 5")
    words = page.value("document.getElementById('detail').textContent")
    assert "RDMA_WRITE 512 B" in words
    assert "index 5" in words
    for part in ("in the queue", "send", "request", "answer", "complete"):
        assert part in words
    assert page.complaints == []


def test_buttons_go_from_put_to_put_and_zoom(page: Page) -> None:
    page.value("choose(3, true)")
    length = page.value("to - from")
    page.value("document.getElementById('after').click()")
    assert page.value("document.getElementById('which').textContent") == f"put 5 of {PUTS}"
    assert page.value("from <= PUTS[4].begin && PUTS[4].end <= to")
    page.value("choose(3, true); document.getElementById('in').click()")
    assert page.value("to - from") == pytest.approx(max(length / 2, 20))
    page.value("document.getElementById('all').click()")
    assert page.value("from <= 0 && to >= data.span")
    assert page.complaints == []


def test_pointing_and_the_wheel(chromium: Browser, file: Path) -> None:
    page = chromium.open(file)
    page.value("choose(6, true)")
    x, y = middle_of(page, 6, "send")
    page.hover(x, y)
    page.until("getComputedStyle(document.getElementById('tip')).visibility === 'visible'")
    assert page.value("document.getElementById('tip').textContent").startswith("send ")
    length = page.value("to - from")
    page.wheel(x, y, -120)
    page.until(f"to - from < {length}")
    assert abs(middle_of(page, 6, "send")[0] - x) < 2, "it zooms about the pointer"


def test_many_puts_are_drawn_at_once(chromium: Browser, tmp_path: Path, recorded: trace.Trace) -> None:
    """20,000 on one page: as one pixel's worth, in well under a second."""
    from gda.tools.trace import page as pages

    big = trace.Trace()
    big.events, big.actors, big.texts = recorded.events, recorded.actors, recorded.texts
    big.puts = recorded.puts
    times = 20_100 // PUTS
    step = int(recorded.events["time_ns"][-1] - recorded.events["time_ns"][0]) + 1000
    parts = []
    for lap in range(times):
        part = recorded.events.copy()
        part["time_ns"] += lap * step
        part["index"] += lap * PUTS
        part["put"] = -1
        parts.append(part)
    big.events = np.concatenate(parts)
    from gda.tools.trace.puts import follow

    big.puts = follow(big.events)
    assert len(big.puts) > pages.MOST_PUTS
    big.save(tmp_path / "many.html")
    view = chromium.open(tmp_path / "many.html")
    assert view.value("PUTS.length") == pages.MOST_PUTS
    assert "newest 20000" in view.value("document.getElementById('summary').textContent")
    view.value("look(0, data.span)")
    took_ms = view.value("(() => {const t = performance.now(); draw(); return performance.now() - t})()")
    assert took_ms < 2000
    assert view.complaints == []


def test_words_of_a_program_cannot_leave_their_place(chromium: Browser, tmp_path: Path, recorded: trace.Trace) -> None:
    named = trace.Trace()
    named.events, named.actors, named.puts = recorded.events, recorded.actors, recorded.puts
    named.texts = ["</script><script>document.title = 'gone'</script>"] * len(recorded.texts)
    named.save(tmp_path / "named.html")
    page = chromium.open(tmp_path / "named.html")
    assert page.value("document.title") != "gone"
    assert page.complaints == []


@pytest.fixture(scope="module")
def drawer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("trace_picture", ROOT / "docs" / "pictures" / "trace.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pictures_of_the_documents_can_be_taken_again(
    chromium: Browser, drawer: ModuleType, tmp_path: Path
) -> None:
    taken = drawer.photograph(chromium, tmp_path, tmp_path)
    assert [path.name for path in taken] == [name for name, *_ in drawer.PICTURES]
    for path in taken:
        kept = ROOT / "docs" / "pictures" / path.name
        for png in (path, kept):
            head = png.read_bytes()[:24]
            assert head.startswith(b"\x89PNG")
        assert path.read_bytes()[16:24] == kept.read_bytes()[16:24], "of another size: take them again"
        assert path.stat().st_size > 20_000
