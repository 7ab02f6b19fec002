# SPDX-License-Identifier: Apache-2.0
"""Builds the four Cython leaves and the software NIC.

`python setup.py build_ext --inplace` builds in the tree (editable installs do the same); a wheel carries the headers
as gda/include. Only what changed is compiled again. `python setup.py sanitized --kind address` builds the software NIC
alone, under a sanitizer, into build/address (GDA_SIM_LIBRARY names it to the package; sanitize.sh runs the tests so).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Command, Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
CALL_SOURCES = [*sorted(p.relative_to(ROOT) for p in ROOT.glob("sim/calls/*.cc")), Path("sim/uverbs/profile.cc")]
PRELOAD_SOURCE = Path("sim/uverbs/preload.cc")
SIM_SOURCES = sorted(
    {p.relative_to(ROOT) for p in ROOT.glob("sim/**/*.cc") if p.parent.name != "calls"} - {PRELOAD_SOURCE}
)
LIBRARIES = ("sim", "preload", "calls")
CXX_FLAGS = ["-std=c++17", "-O3", "-g", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", "-Icuda", "-I."]


def compiler() -> str:
    """The C++ compiler of the software NIC."""
    for name in (os.environ.get("CXX"), "g++", "c++", "clang++"):
        if name and shutil.which(name):
            return name
    sys.exit("no C++ compiler found: install g++ (apt-get install g++)")


def run(*command: str) -> None:
    """Run a compiler; its words go to the terminal."""
    print(" ".join(command), flush=True)
    subprocess.run(command, cwd=ROOT, check=True)


def compile_object(source: Path, objects: Path, flags: list[str]) -> Path:
    """Compile one file unless it and every header are older than its object."""
    target = objects / source.with_suffix(".o").as_posix().replace("/", "_")
    depends = target.with_suffix(".d")
    if target.exists() and depends.exists():
        names = depends.read_text().replace("\\\n", " ").split(":", 1)[1].split()
        paths = [ROOT / name for name in names]
        if all(p.exists() and p.stat().st_mtime <= target.stat().st_mtime for p in [*paths, ROOT / "setup.py"]):
            return target
    run(compiler(), *CXX_FLAGS, *flags, "-MMD", "-MF", str(depends), "-c", str(source), "-o", str(target))
    return target


def build_simulator(directory: Path, name: str = "sim", flags: tuple[str, ...] = ()) -> None:
    """Build libgda_sim.so (attached by Python) and libgda_preload.so (LD_PRELOAD) into `directory`.

    Beside them libgda_calls.so (LD_PRELOAD, on any NIC; sim/calls), but not under a sanitizer. Objects go to
    build/NAME, one directory for each set of flags.
    """
    objects = ROOT / "build" / name
    objects.mkdir(parents=True, exist_ok=True)
    directory.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        sources = [*SIM_SOURCES, PRELOAD_SOURCE, *([] if flags else CALL_SOURCES)]
        made = dict(zip(sources, pool.map(lambda s: compile_object(s, objects, list(flags)), sources), strict=True))
    core, preload, calls = (directory / f"libgda_{name}.so" for name in LIBRARIES)
    newest = max(p.stat().st_mtime for p in made.values())
    if all(p.exists() and p.stat().st_mtime >= newest for p in (core, preload, *([] if flags else [calls]))):
        return
    definitions = [] if flags else ["-Wl,-z,defs"]  # a sanitizer's runtime is found at load time
    shared = [compiler(), "-shared", "-pthread", *flags, *definitions, "-Wl,-Bsymbolic"]
    run(*shared, "-Wl,-soname,libgda_sim.so", *(str(made[s]) for s in SIM_SOURCES), "-o", str(core), "-ldl")
    tail = ["-o", str(preload), f"-L{directory}", "-lgda_sim", "-ldl", "-Wl,-rpath,$ORIGIN"]
    run(*shared, str(made[PRELOAD_SOURCE]), *tail)
    if not flags:
        run(*shared, *(str(made[s]) for s in CALL_SOURCES), "-o", str(calls), "-ldl")


class BuildExtensions(build_ext):
    """The Cython modules, then the software NIC beside them."""

    def run(self) -> None:
        super().run()
        package = ROOT / "gda" if self.inplace or self.editable_mode else Path(self.build_lib) / "gda"
        build_simulator(package / "lib")

    def get_outputs(self) -> list[str]:
        package = ROOT / "gda" if self.inplace or self.editable_mode else Path(self.build_lib) / "gda"
        return [*super().get_outputs(), *(str(package / "lib" / f"libgda_{n}.so") for n in LIBRARIES)]


class Sanitized(Command):
    """The software NIC under a sanitizer, in build/KIND."""

    description = "build the software NIC under a sanitizer"
    user_options = [("kind=", None, "address (with undefined) or thread")]
    FLAGS = {"address": "-fsanitize=address,undefined", "thread": "-fsanitize=thread"}

    def initialize_options(self) -> None:
        self.kind = "address"

    def finalize_options(self) -> None:
        if self.kind not in self.FLAGS:
            sys.exit(f"--kind {self.kind} is not one of {', '.join(self.FLAGS)}")

    def run(self) -> None:
        flags = (self.FLAGS[self.kind], "-fno-omit-frame-pointer")
        build_simulator(ROOT / "build" / self.kind, f"sim-{self.kind}", flags)


class BuildPython(build_py):
    """The Python files and, in a wheel, the device headers as gda/include."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib) / "gda" / "include" / "gda"
            shutil.copytree(ROOT / "cuda" / "gda", target, dirs_exist_ok=True)


def extensions() -> list[Extension]:
    """One extension a leaf."""
    verbs = Extension("gda._verbs", ["gda/_verbs.pyx"], libraries=["ibverbs", "mlx5"], extra_compile_args=["-O2"])
    cuda = Extension("gda._cuda", ["gda/_cuda.pyx"], libraries=["dl"], extra_compile_args=["-O2"])
    proxy = Extension(
        "gda._proxy",
        ["gda/_proxy.pyx", *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("proxy/*.cc"))],
        libraries=["ibverbs"], include_dirs=["cuda", "."], language="c++",
        depends=[str(p.relative_to(ROOT)) for p in [*ROOT.glob("proxy/*.h"), *ROOT.glob("cuda/gda/formats/*.h")]],
        extra_compile_args=["-O2", "-std=c++17"],
    )  # fmt: skip
    cm = Extension("gda._rdmacm", ["gda/_rdmacm.pyx"], libraries=["ibverbs", "dl"], extra_compile_args=["-O2"])
    return [e for e in (verbs, cuda, proxy, cm) if (ROOT / e.sources[0]).exists()]


setup(
    ext_modules=cythonize(extensions(), language_level=3, annotate=False, quiet=True),
    cmdclass={"build_ext": BuildExtensions, "build_py": BuildPython, "sanitized": Sanitized},
)
