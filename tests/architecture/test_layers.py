# SPDX-License-Identifier: Apache-2.0
"""Dependencies point down. Each layer may use those named after it here, and nothing else of this project.

Why: a reader starts at any floor and meets nothing from above; queues can be made and tested without a GPU or a
compiler (nic does not know run); and the software NIC is an independent reader of what the device library writes,
so a mistake of one shows in the other (sim does not know the device library).
"""

from __future__ import annotations

import ast
import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Layer -> (files, layers it may use besides itself). The first matching layer is a file's layer.
C_LAYERS: dict[str, tuple[str, set[str]]] = {
    "target": ("cuda/gda/target/*", set()),
    "formats": ("cuda/gda/formats/*", {"target"}),
    "handle": ("cuda/gda/handle.h", {"target", "formats"}),
    "trace_ring": ("cuda/gda/trace_ring.h", {"target", "formats"}),
    "kernels": ("cuda/gda/kernels/*", {"target", "formats", "handle", "device", "collectives"}),
    "collectives": ("cuda/gda/collectives/*", {"target", "formats", "handle", "device"}),
    "device": ("cuda/gda/*.h", {"target", "formats", "handle", "trace_ring"}),
    "proxy": ("proxy/*", {"formats", "target"}),
    "clock": ("sim/clock.h", set()),
    "link": ("sim/link/*", {"clock", "formats", "target"}),
    "engine": ("sim/engine/*", {"link", "clock", "trace_ring", "formats", "target"}),
    "firmware": ("sim/firmware/*", {"engine", "link", "clock", "trace_ring", "formats", "target"}),
    "uverbs": ("sim/uverbs/*", {"firmware", "engine", "link", "clock", "formats", "target"}),
    "calls": ("sim/calls/*", {"uverbs", "engine", "formats", "target"}),
    "steer": ("sim/steer*", {"uverbs", "firmware", "engine", "link", "clock", "formats", "target"}),
}
# engine/device.cc hands a command to firmware/: the one call upwards, behind a declaration of engine's own.
DEVICE_TO_SIM = {"kernels", "collectives", "device", "handle"}

PY_FLOOR = {"errors", "config", "formats", "notes", "once", "locks", "idle"}
PY_LAYERS: dict[str, tuple[str, set[str]]] = {
    "errors": ("gda/errors.py", set()),
    "config": ("gda/config.py", {"errors"}),
    "formats": ("gda/formats*", {"errors", "config"}),
    "locks": ("gda/locks.py", set()),
    "present": ("gda/present.py", {"locks"}),
    "once": ("gda/once.py", {"locks"}),
    "idle": ("gda/idle.py", {"locks"}),
    "notes": ("gda/notes.py", {"errors", "config", "formats"}),
    "_verbs": ("gda/_verbs.*", {"errors"}),
    "_cuda": ("gda/_cuda.*", {"errors"}),
    "_proxy": ("gda/_proxy.*", {"_verbs", "errors"}),
    "_rdmacm": ("gda/_rdmacm.*", {"errors"}),
    "complaint": ("gda/complaint.py", set()),
    "attach": ("gda/attach.py", {"errors", "config", "notes", "complaint", "once"}),
    "nic": ("gda/nic/*", {"_verbs", "_cuda", "_proxy", "_rdmacm", "attach", "present"} | PY_FLOOR),
    "run": ("gda/run/*", {"_cuda", "attach", "present"} | PY_FLOOR),
    "numba": ("gda/numba/*", {"run", "_cuda", "attach"} | PY_FLOOR),
    "comm": ("gda/comm/*", {"nic", "run", "_verbs", "_cuda", "attach"} | PY_FLOOR),
    "tools": ("gda/tools/*", {"comm", "nic", "run", "_verbs", "_cuda", "attach", "present"} | PY_FLOOR),
    "sim": ("gda/sim.py", {"complaint", "comm", "nic", "run", "_verbs", "_cuda", "attach"} | PY_FLOOR),
    "commands": ("gda/commands/*", {"tools", "sim", "errors"}),
    "pytest_plugin": ("gda/pytest_plugin.py", set()),
    "__main__": ("gda/__main__.py", {"commands", "errors"}),
    "__init__": ("gda/__init__.py", {"nic", "run", "comm", "tools"} | PY_FLOOR),
}

C_TOPS = ("cuda", "proxy", "sim")
C_FILES = sorted(p for top in C_TOPS for p in (ROOT / top).rglob("*") if p.suffix in {".h", ".cc", ".cu"})
PY_FILES = sorted(p for p in (ROOT / "gda").rglob("*") if p.suffix in {".py", ".pyx", ".pxd", ".pyi"})


def layer_of(path: str, layers: dict[str, tuple[str, set[str]]]) -> str:
    for name, (pattern, _) in layers.items():
        if fnmatch(path, pattern):
            return name
    raise AssertionError(f"{path} belongs to no layer: the house has no such room")


def c_uses(path: Path) -> set[str]:
    text = path.read_text()
    used = set()
    for include in re.findall(r'^\s*#\s*include\s*[<"]([^">]+)[">]', text, re.M):
        for base in (ROOT / "cuda", ROOT, path.parent):
            if (base / include).is_file():
                used.add((base / include).resolve().relative_to(ROOT).as_posix())
                break
    return used


def py_uses(path: Path) -> set[str]:
    text = path.read_text()
    if path.suffix in {".pyx", ".pxd"}:
        names = re.findall(r"^\s*(?:from|c?import)\s+(gda[\w.]*)(?:\s+c?import\s+([\w, ]+))?", text, re.M)
        modules = {m if "." in m or not n else f"{m}.{n.split(',')[0].strip()}" for m, n in names}
    else:
        modules = set()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                modules |= {a.name for a in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                modules |= {f"gda.{a.name}" for a in node.names} if node.module == "gda" else {node.module}
            elif isinstance(node, ast.ImportFrom) and node.level:
                package = path.relative_to(ROOT).parts[: -node.level]
                modules.add(".".join([*package, *(node.module or "").split(".")]).rstrip("."))
    return {m.split(".")[1] for m in modules if m.startswith("gda.")}


@pytest.mark.parametrize("path", C_FILES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_c_dependencies_point_down(path: Path) -> None:
    name = path.relative_to(ROOT).as_posix()
    layer = layer_of(name, C_LAYERS)
    for used in c_uses(path):
        other = layer_of(used, C_LAYERS)
        assert other == layer or other in C_LAYERS[layer][1], f"{name} ({layer}) includes {used} ({other})"
        assert not (name.startswith("sim/") and other in DEVICE_TO_SIM), f"{name} includes the device library: {used}"


@pytest.mark.parametrize("path", PY_FILES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_python_dependencies_point_down(path: Path) -> None:
    name = path.relative_to(ROOT).as_posix()
    layer = layer_of(name, PY_LAYERS)
    for other in py_uses(path):
        if other in PY_LAYERS:
            assert other == layer or other in PY_LAYERS[layer][1], f"{name} ({layer}) imports gda.{other}"


def test_the_test_sees_edges() -> None:
    """A wrong edge would be found: the floors are really there and really read."""
    assert "cuda/gda/target/types.h" in c_uses(ROOT / "cuda/gda/formats/bits.h")
    assert "cuda/gda/formats/bits.h" in c_uses(ROOT / "cuda/gda/formats/wqe.h")
    assert "errors" in py_uses(ROOT / "gda/config.py")
    assert layer_of("cuda/gda/put.h", C_LAYERS) == "device"
    assert layer_of("cuda/gda/handle.h", C_LAYERS) == "handle"
    assert layer_of("cuda/gda/kernels/put.h", C_LAYERS) == "kernels"
