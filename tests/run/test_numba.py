# SPDX-License-Identifier: Apache-2.0
"""The device library for kernels of Numba, as far as it shows without a GPU: what is linked, checked and said."""

from __future__ import annotations

import ctypes
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gda
from gda.errors import ArgumentError, UnavailableError
from gda.once import once
from gda.run.compile import include_directory, nvrtc_version
from gda.run.linkable import linkable
from gda.run.status_word import AT_ONCE, PinnedStatus

ROOT = Path(__file__).resolve().parents[2]
CC = (9, 0)
HEADER = (include_directory() / "gda" / "numba.h").read_text()
SYMBOLS = {name for name in re.findall(r"GDA_LINKABLE\((gda_numba_\w+?)\)", HEADER) if not name.endswith("_")}
SYMBOLS |= {
    f"gda_numba_put_value{scope}_{kind}"
    for kind in re.findall(r"^GDA_NUMBA_PUT_VALUE\((\w+),", HEADER, re.M)
    for scope in ("", "_warp", "_block")
}


@pytest.fixture(scope="module")
def numba() -> Any:
    """The module gda.numba."""
    try:
        import numba

        __import__("numba.cuda")
    except Exception as error:  # numba-cuda's own, where CUDA's run-time library is missing
        pytest.skip(f"not run: numba-cuda cannot be imported ({error})")
    assert numba
    import gda.numba

    return gda.numba


@pytest.fixture(scope="module")
def nvrtc() -> None:
    try:
        nvrtc_version()
    except UnavailableError as error:
        pytest.skip(f"not run: {error}")


# ------------------------------------------------------------------------------------ the functions that are linked
WRAPPED = r"""
#include <gda/numba.h>
// What a kernel of Numba does, in C++: regions as four words, results through the first parameter.
GDA_KERNEL(all)(gda_qp* qp, uint64_t da, uint64_t db, uint64_t dk, uint64_t df, uint64_t sa, uint64_t sb, uint64_t sk,
                uint64_t sf, uint64_t* seen, gda_status* status) {
    uint64_t q = reinterpret_cast<uint64_t>(qp), t, s, n = 0;
    gda_numba_put(&t, q, da, db, dk, df, 0, sa, sb, sk, sf, 0, 64, 0);
    gda_numba_wait(&s, q, t, GDA_S(5));
    seen[n++] = s;
    gda_numba_put_value_float64(&t, q, da, db, dk, df, 64, 1.5, GDA_MORE);
    gda_numba_put_value_uint8(&t, q, da, db, dk, df, 72, 0xab, 0);
    gda_numba_fetch_add(&t, q, sa, sb, sk, sf, 64, da, db, dk, df, 80, 5, 0);
    gda_numba_compare_swap(&t, q, sa, sb, sk, sf, 72, da, db, dk, df, 80, 5, 9, 0);
    gda_numba_get(&t, q, sa, sb, sk, sf, 80, da, db, dk, df, 80, 8, 0);
    gda_numba_signal(&t, q, da, db, dk, df, 96, 3, GDA_SIGNAL_SET, 0);
    gda_numba_put_signal(&t, q, da, db, dk, df, 112, sa, sb, sk, sf, 0, 8, da, db, dk, df, 96, 4, GDA_SIGNAL_ADD, 0);
    gda_numba_wait_signal(&s, da, db, dk, df, 96, GDA_REACHED, 7, GDA_S(5));
    seen[n++] = s;
    gda_numba_test_signal(&s, da, db, dk, df, 96, GDA_EQUAL, 8);
    seen[n++] = s == GDA_TIMEOUT;
    gda_numba_wait_signal(&s, da, db, dk, df, 124, GDA_EQUAL, 7, GDA_S(5));  // passes the end
    seen[n++] = s == GDA_OUT_OF_BOUNDS;
    gda_numba_nop(&t, q, 0);
    gda_numba_flush(&s, q, GDA_S(5));
    seen[n++] = s;
    gda_numba_old_value(&s, sa, sb, sk, sf, 72);
    seen[n++] = s;
    gda_numba_test(&s, q, t);
    seen[n++] = s;
    gda_numba_failed(&s, t);
    seen[n++] = s;
    gda_numba_put(&t, q, da, db, dk, df, 0, sa, sb, sk, sf, 0, 4096, 0);  // passes the end
    gda_numba_failed(&s, t);
    seen[n++] = s;
    gda_numba_test(&s, q, t);
    seen[n++] = gda_code(s);
    gda_numba_now_ns(&t);
    seen[n++] = t != 0;
    gda_numba_report(&s, reinterpret_cast<uint64_t>(status), s);
}
"""


TOGETHER = r"""
#include <gda/numba.h>
GDA_KERNEL(together)(gda_qp* qp, uint64_t da, uint64_t db, uint64_t dk, uint64_t df, uint64_t sa, uint64_t sb,
                     uint64_t sk, uint64_t sf, gda_status* status) {
    uint64_t q = reinterpret_cast<uint64_t>(qp), t, s;
    gda_numba_put_warp(&t, q, da, db, dk, df, 0, sa, sb, sk, sf, 0, 8, 0);
    gda_numba_put_value_warp_uint16(&t, q, da, db, dk, df, 8, 7, 0);
    gda_numba_signal_warp(&t, q, da, db, dk, df, 96, 7, GDA_SIGNAL_ADD, 0);
    gda_numba_wait_warp(&s, q, t, GDA_S(5));
    gda_report(status, s);
    gda_numba_flush_warp(&s, q, GDA_S(5));
    gda_report(status, s);
    gda_numba_put_block(&t, q, da, db, dk, df, 16, sa, sb, sk, sf, 0, 8, 0);
    gda_numba_put_value_block_uint16(&t, q, da, db, dk, df, 24, 9, 0);
    gda_numba_signal_block(&t, q, da, db, dk, df, 96, 9, GDA_SIGNAL_ADD, 0);
    gda_numba_wait_block(&s, q, t, GDA_S(5));
    gda_report(status, s);
    gda_numba_flush_block(&s, q, GDA_S(5));
    gda_report(status, s);
}
"""


def test_a_warp_and_a_block_do_each_once() -> None:
    with gda.open() as nic:
        src, dst = nic.allocate(128), nic.allocate(128)
        src.write(0, bytes(range(128)))
        a, _ = nic.loopback_pair(depth=64)
        words = [struct.unpack("<4Q", memory.__gda_argument__("host")[1]) for memory in (dst, src)]
        gda.Kernel(TOGETHER, target="host").together[1, 32](a, *words[0], *words[1])
        assert dst.read(0, 8) == dst.read(16, 8) == bytes(range(8))
        assert (dst.read(8, 2), dst.read(24, 2)) == (b"\x07\x00", b"\x09\x00")
        assert int.from_bytes(dst.read(96, 8), "little") == 16, "one signal of the warp, one of the block"
        assert a.read_handle()["reserved"] == 6


def test_they_do_what_they_are_named_after() -> None:
    from gda import formats
    from gda.errors import OutOfBoundsError

    with gda.open() as nic:
        src, dst = nic.allocate(128), nic.allocate(128)
        src.write(0, bytes(range(128)))
        a, _ = nic.loopback_pair()
        words = [struct.unpack("<4Q", memory.__gda_argument__("host")[1]) for memory in (dst, src)]
        seen = np.full(12, 99, np.uint64)
        with pytest.raises(OutOfBoundsError):
            gda.Kernel(WRAPPED, target="host").all[1, 1](a, *words[0], *words[1], seen)
        assert seen.tolist() == [0, 0, 1, 1, 0, 5, 0, 0, 1, int(formats.GDA_OUT_OF_BOUNDS), 1, 99]
        assert dst.read(0, 64) == bytes(range(64))
        assert struct.unpack("<dB", dst.read(64, 9)) == (1.5, 0xAB)
        assert struct.unpack("<QQQQQ", dst.read(80, 40)) == (9, 0, 7, 0, 0x0706050403020100)
        old, swapped, got = struct.unpack("<QQQ", src.read(64, 24))
        assert (old, swapped) == (0, 5)
        assert got == 9, "a get behind the swap on one queue"


def test_the_object_has_them_all(nvrtc: None) -> None:
    ptx = linkable(arch="compute_90", form="ptx").decode()
    assert set(re.findall(r"\.visible \.func .*?(gda_numba_\w+)\(", ptx)) == SYMBOLS
    assert len(SYMBOLS) >= 23
    assert "st.mmio.relaxed.sys.global" in ptx, "the doorbell"


def test_forms_of_the_object(nvrtc: None) -> None:
    assert linkable(form="ltoir") == linkable(form="ltoir"), "from the cache"
    with pytest.raises(ArgumentError, match="form='elf' is not one of cubin, ptx, ltoir"):
        linkable(form="elf")
    with pytest.raises(UnavailableError, match="NVRTC"):
        linkable(form="ltoir", library="/nowhere/libnvrtc.so")


# --------------------------------------------------------------------------------------------- what is said without
def test_import_without_numba_explains_itself() -> None:
    code = "import sys; sys.modules['numba'] = None\nimport gda\ntry:\n    import gda.numba\n"
    code += "except gda.GdaError as error: print(type(error).__name__, error)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert re.fullmatch(
        r"UnavailableError gda\.numba lets kernels of Numba call the device library, but Numba cannot be imported "
        r"\(.*\)\n  try: pip install .*numba-cuda.*; without it, gda\.Kernel runs kernels in CUDA C\+\+.*\n",
        done.stdout,
    ), done.stdout + done.stderr


def test_simulator_is_refused(numba: Any) -> None:
    code = "import os; os.environ['NUMBA_ENABLE_CUDASIM'] = '1'\nimport gda.numba"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert "UnavailableError: NUMBA_ENABLE_CUDASIM is set" in done.stderr


def test_called_from_python(numba: Any) -> None:
    with pytest.raises(ArgumentError, match=r"gda\.numba\.put was called from Python, but it runs on a GPU"):
        numba.put(1, 2, 3)


def test_without_a_gpu(numba: Any) -> None:
    from gda.run.cuda import gpu_available

    if gpu_available():
        pytest.skip("not run: this machine has a GPU")

    def nothing(qp: Any, status: Any) -> None:
        numba.report(status, numba.flush(qp, 1))

    with pytest.raises(UnavailableError, match=r"no GPU to run Numba's kernels on: .*driver.*\n  try: gda\.Kernel"):
        numba.Kernel(nothing)[1, 1](0)
    with pytest.raises(UnavailableError, match="no GPU to link the device library for"):
        numba.object_code()
    with gda.open() as nic:
        a, _ = nic.loopback_pair()
        with pytest.raises(UnavailableError, match="this queue pair was made for the CPU"):
            numba.queue(a)


def test_status_words_are_pinned_by_the_driver(numba: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from gda.numba import kernel

    memory = ctypes.create_string_buffer(8 * AT_ONCE)
    calls = {("cuMemHostAlloc", 8 * AT_ONCE, 0): ctypes.addressof(memory)}
    monkeypatch.setattr(kernel, "driver", lambda *call: calls.pop(call))
    monkeypatch.setattr(kernel, "_status_words", once(kernel._status_words.__wrapped__))
    kept = [PinnedStatus(kernel._status_words()) for _ in range(AT_ONCE)]
    addresses = sorted(word.address for word in kept)
    assert addresses == [ctypes.addressof(memory) + 8 * word for word in range(AT_ONCE)]


# -------------------------------------------------------------------------------------------------------- arguments
def test_regions(numba: Any) -> None:
    from numba import cuda, types

    with gda.open() as nic:
        memory = nic.allocate(100)
        words = numba.region(memory)
        assert struct.pack("<4Q", *map(int, words)) == memory.__gda_argument__("gpu")[1]
        assert (int(words.address), int(words.bytes)) == (memory.address, 100)
        assert words.owner is memory
        remote = numba.region(memory.remote)
        assert int(remote.keys) & 0xFFFFFFFF == 0, "no local key"
        kind = cuda.jit(lambda a: None).typeof_pyval(words)
        assert isinstance(kind, types.NamedUniTuple)
        assert (kind.dtype, kind.count) == (types.uint64, 4)
        memory.close()
        with pytest.raises(gda.GdaError, match="closed"):
            numba.region(memory)
    with pytest.raises(ArgumentError, match="a int is no gda_mr"):
        numba.region(3)


def test_queues_are_checked(numba: Any) -> None:
    from gda.errors import NotConnectedError

    with gda.open() as nic:
        queue = nic.queue_pair()
        with pytest.raises(NotConnectedError):
            numba.queue(queue)
        memory = nic.allocate(8)
        with pytest.raises(ArgumentError, match=r"a Memory is a gda_mr, not a gda_qp\*"):
            numba.queue(memory)


def test_shapes_and_counts(numba: Any) -> None:
    def three(qp: Any, dst: Any, status: Any) -> None:
        numba.report(status, numba.flush(qp, 1))

    kernel = numba.Kernel(three)
    with pytest.raises(ArgumentError, match=r"kernel three takes 3 arguments \(qp, dst, status\), not 1"):
        kernel[1, 1](5)
    with pytest.raises(ArgumentError, match="2000 threads per block"):
        kernel[1, 2000](5, 6)
    with pytest.raises(ArgumentError, match="the shape is"):
        kernel.start[1](5, 6)


# ------------------------------------------------------------------------------------------------- compile and link
def compiled(numba: Any, kernel: Callable[..., None], *kinds: Any, form: str = "ltoir") -> list[Any]:
    from numba import cuda

    numba.library.LIBRARY.cc = CC
    try:
        codes, _ = cuda.compile_all(kernel, kinds, device=False, abi="numba", cc=CC, output=form)
        codes = [getattr(code, "data", code) for code in codes]  # what was linked is an object that has data
        return [code.encode() if isinstance(code, str) else code for code in codes]
    finally:
        numba.library.LIBRARY.cc = None


def region_type() -> Any:
    from numba import types

    return types.UniTuple(types.uint64, 4)


def test_linked_kernel_holds_the_library(numba: Any, nvrtc: None) -> None:
    """Kernel and library are one program after the link: the call is gone, its doorbell is in the kernel."""
    from cuda.core import Linker, LinkerOptions, ObjectCode
    from numba import types

    def both(qp: Any, dst: Any, src: Any, count: Any, status: Any) -> None:
        for i in range(count):
            ticket = numba.put(qp, dst, 8 * i, src, 8 * i, 8, flags=numba.MORE)
            if numba.failed(ticket):
                numba.report(status, numba.test(qp, ticket))
        numba.report(status, numba.flush(qp, 100 * numba.MS))

    codes = compiled(numba, both, types.uint64, region_type(), region_type(), types.int64, types.uint64)
    assert len(codes) == 2, "one object, however many functions of it are called"
    parts = [ObjectCode.from_ltoir(code) for code in codes]
    ptx = Linker(*parts, options=LinkerOptions(arch="sm_90", link_time_optimization=True, ptx=True)).link("ptx").code
    text = ptx.decode() if isinstance(ptx, bytes) else ptx
    assert ".entry" in text
    assert "st.mmio.relaxed.sys.global" in text
    headers = "".join(path.read_text() for path in (include_directory() / "gda").glob("*.h"))
    cold = set(re.findall(r"GDA_COLD \w+ (\w+)\(", headers))
    assert "await_room" in cold
    called = re.findall(r"call\.uni[^;]*?(_ZN?\w+|gda_\w+)", text.split(".entry", 1)[1])
    assert called and not [name for name in called if not any(word in name for word in cold)], "all else is inlined"
    cubin = Linker(*parts, options=LinkerOptions(arch="sm_90", link_time_optimization=True)).link("cubin").code
    assert cubin[:4] == b"\x7fELF"


def test_every_function_links(numba: Any, nvrtc: None) -> None:
    """Also without link-time optimization, which is how Numba compiles by default: a kernel in PTX with the object."""
    from cuda.core import Linker, LinkerOptions, ObjectCode
    from numba import types

    def every(qp: Any, dst: Any, src: Any, small: Any, real: Any, single: Any, status: Any) -> None:  # noqa: PLR0917
        numba.put(qp, dst, 0, src, 0, 8)
        numba.put_imm(qp, dst, 0, src, 0, 8, 77)
        numba.get(qp, src, 0, dst, 0, dst.bytes)
        numba.put_value(qp, dst, 0, small)
        numba.put_value(qp, dst, 0, np.uint16(3))
        numba.put_value(qp, dst, 0, np.int32(-3))
        numba.put_value(qp, dst, 0, 3)
        numba.put_value(qp, dst, 0, real)
        numba.put_value(qp, dst, 0, single, flags=numba.UNSIGNALED)
        numba.put_value(qp, dst, 0, True)
        numba.signal(qp, dst, 0, 1)
        numba.put_signal(qp, dst, 0, src, 0, 8, dst, 8, 1, numba.SIGNAL_SET)
        if numba.test_signal(src, 0, numba.REACHED, 1) != 0:
            numba.report(status, numba.wait_signal(src, 0, numba.NOT_EQUAL, numba.old_value(src, 8), numba.MS))
        numba.fetch_add(qp, src, 0, dst, 0, 1)
        ticket = numba.compare_swap(qp, src, 0, dst, 0, 1, 2)
        if numba.failed(ticket):
            ticket = numba.nop(qp)
        if numba.test(qp, ticket) != 0 and numba.now_ns() != 0:
            numba.report(status, numba.wait(qp, ticket, numba.S))
        numba.report(status, numba.flush(qp, numba.US))
        ticket = numba.put_warp(qp, dst, 0, src, 0, 8) + numba.put_block(qp, dst, 0, src, 0, 8)
        numba.put_value_warp(qp, dst, 0, small)
        numba.put_value_warp(qp, dst, 0, np.uint16(3))
        numba.put_value_warp(qp, dst, 0, np.int32(-3))
        numba.put_value_warp(qp, dst, 0, 3)
        numba.put_value_warp(qp, dst, 0, real)
        numba.put_value_warp(qp, dst, 0, single)
        numba.put_value_block(qp, dst, 0, small)
        numba.put_value_block(qp, dst, 0, np.uint16(3))
        numba.put_value_block(qp, dst, 0, np.int32(-3))
        numba.put_value_block(qp, dst, 0, 3)
        numba.put_value_block(qp, dst, 0, real)
        numba.put_value_block(qp, dst, 0, single)
        numba.signal_warp(qp, dst, 0, 1)
        numba.signal_block(qp, dst, 0, 1, numba.SIGNAL_SET)
        numba.report(status, numba.wait_warp(qp, ticket, numba.S))
        numba.report(status, numba.wait_block(qp, ticket, numba.S))
        numba.report(status, numba.flush_warp(qp, numba.S))
        numba.report(status, numba.flush_block(qp, numba.S))

    region = types.NamedUniTuple(types.uint64, 4, numba.Region)
    kinds = (types.uint64, region, region, types.int8, types.float64, types.float32, types.uint64)
    ptx, _ = compiled(numba, every, *kinds, form="ptx")
    called = set(re.findall(r"\.extern \.func .*?(gda_numba_\w+)", ptx.decode()))
    assert called == SYMBOLS, "each function of the header is declared for Python, and the other way round"
    parts = [ObjectCode.from_ptx(ptx), ObjectCode.from_ltoir(numba.object_code(CC, "ltoir"))]
    cubin = Linker(*parts, options=LinkerOptions(arch="sm_90", link_time_optimization=True)).link("cubin").code
    assert cubin[:4] == b"\x7fELF"


def test_declarations_have_the_headers_parameters(numba: Any) -> None:
    """A linker does not compare them."""
    import inspect

    values = {"put_value", "put_value_warp", "put_value_block"}
    for name in {symbol.removeprefix("gda_numba_") for symbol in SYMBOLS if "put_value" not in symbol} | values:
        pattern = rf"GDA_LINKABLE\(gda_numba_{name}{'_##suffix' if name in values else ''}\)\(([^{{]*)\) {{"
        (found,) = re.findall(pattern, re.sub(r"\\\n", " ", HEADER))
        theirs = [" ".join(p.split()) for p in re.split(r",(?![^(]*\))", found)][1:]
        kinds = {"Queue": "uint64_t", "Word": "uint64_t", "Flags": "uint32_t", "Value": "type"}
        parameters = list(inspect.signature(getattr(numba, name)._defn).parameters.values())[1:]
        ours = [
            f"GDA_REGION_WORDS({p.name})" if p.annotation == "Region" else f"{kinds[p.annotation]} {p.name}"
            for p in parameters
        ]
        assert ours == theirs, name


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("put(qp, dst, 0.5, dst, 0, 8)", r"gda\.numba\.put: dst_offset is float64, not an integer \(say i // 2"),
        ("put(qp, dst, 0, dst, i / 2, 8)", r"gda\.numba\.put: src_offset is float64, not an integer"),
        ("put(qp, qp, 0, dst, 0, 8)", r"gda\.numba\.put: dst is uint64, not a region: pass a Memory"),
        ("put(dst, dst, 0, dst, 0, 8)", r"gda\.numba\.put: qp is UniTuple.*, not a queue: pass a QueuePair"),
        ("put_value(qp, dst, 0, dst)", r"gda\.numba\.put_value: value is UniTuple.*, not an integer, float"),
        ("wait(qp, 1)", r"wait: missing a required argument: 'deadline_ns'; it takes \(qp, ticket, deadline_ns\)"),
    ],
)  # fmt: skip
def test_wrong_types_are_named(numba: Any, statement: str, message: str) -> None:
    from numba import types
    from numba.core.errors import TypingError

    names: dict[str, Any] = {"numba": numba}
    exec(f"def wrong(qp, dst, i):\n    numba.{statement}\n", names)
    with pytest.raises(TypingError, match=message):
        compiled(numba, names["wrong"], types.uint64, region_type(), types.int64, form="ptx")


def test_what_the_gpu_tests_launch_compiles(numba: Any, nvrtc: None) -> None:
    """Their kernels must not be found broken only where there is a GPU."""
    from numba import types

    from . import test_numba_gpu

    word, region, array = types.uint64, types.NamedUniTuple(types.uint64, 4, numba.Region), types.uint64[::1]
    kernels: dict[str, tuple[Any, ...]] = {
        "fill_and_put": (word, region, region, array, types.int64, word),
        "operations": (word, region, region, word),
        "pass_rows": (word, region, region, region, types.int64, array, word),
        "together": (word, region, region, types.int64, word),
        "hold": (array, word),
        "add_slowly": (array,),
        "put_one": (word, region, region, word),
    }
    for name, kinds in kernels.items():
        assert compiled(numba, getattr(test_numba_gpu, name).py_func, *kinds, form="ptx")
    others = {name for name, value in vars(test_numba_gpu).items() if hasattr(value, "py_func")}
    assert others == set(kernels)
