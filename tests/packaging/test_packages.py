# SPDX-License-Identifier: Apache-2.0
"""An sdist becomes a wheel, the wheel an installation that works from anywhere: Python, C++ and Cython users."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow  # builds the whole package from its sdist

FIRST_PUT = r'''
import gda
import numpy as np
from gda import attach

KERNEL = """
#include <gda/gda.h>
GDA_KERNEL(first_put)(gda_qp* qp, gda_mr dst, gda_mr src, uint64_t bytes, gda_status* status) {
    gda_ticket ticket = gda_put(qp, dst, 0, src, 0, bytes);
    *status = gda_wait(qp, ticket, GDA_MS(10000));
}
"""
with gda.open() as nic:
    assert nic.is_software and attach.loaded() is not None
    source, target = np.arange(1024, dtype=np.uint8), np.zeros(1024, np.uint8)
    src, dst = nic.register(source), nic.register(target)
    a, b = nic.loopback_pair(depth=16)
    gda.Kernel(KERNEL, target="host").first_put[1, 1](a, dst, src, 1024)
    assert np.array_equal(source, target)
print(gda.get_include())
print(gda.__file__)
'''

HOST_PROGRAM = r"""
#include <gda/formats/wqe.h>
#include <gda/gda.h>
#include <cstdio>
int main() {
    const uint64_t start = gda_now_ns();
    std::printf("%d\n", gda_now_ns() >= start && sizeof(gda_mr) > 0);
    return 0;
}
"""

EXTENSION = """
# cython: language_level=3
from gda._verbs cimport PD, c_mlx5dv_init_obj_pd, mlx5dv_pd


def number(PD pd not None):
    cdef mlx5dv_pd out
    out.comp_mask = 0
    assert c_mlx5dv_init_obj_pd(pd.get(), &out) == 0
    return out.pdn
"""

USE_EXTENSION = """
import gda_user
from gda import _verbs, attach

attach.software_nic()
with _verbs.ibv_open_device(_verbs.ibv_get_device_list()[0].name) as context, _verbs.ibv_alloc_pd(context) as pd:
    assert gda_user.number(pd) == _verbs.mlx5dv_init_obj_pd(pd) > 0
"""


def run(*command: str, **options: object) -> str:
    result = subprocess.run(command, capture_output=True, text=True, timeout=280, **options)  # type: ignore[call-overload]
    assert result.returncode == 0, " ".join(command) + "\n" + result.stdout[-3000:] + result.stderr[-3000:]
    return str(result.stdout)


@pytest.fixture(scope="module")
def quick_compilers(tmp_path_factory) -> dict[str, str]:
    """The environment of a build whose compilers leave optimization out: what is tested is what goes where."""
    directory = tmp_path_factory.mktemp("compilers")
    environment = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "CFLAGS", "CXXFLAGS"}}
    for variable, name in (("CC", "gcc"), ("CXX", "g++")):
        real = shutil.which(os.environ.get(variable, name)) or shutil.which(name)
        if real is None:
            pytest.skip(f"not run: no {name} here")
        script = directory / name
        script.write_text(f'#!/bin/sh\nexec {real} "$@" -O0 -g0\n')
        script.chmod(0o755)
        environment[variable] = str(script)
    return environment


@pytest.fixture(scope="module")
def sdist(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("sdist")
    # The hook that every front end calls; in a copy, for it writes beside the sources.
    tree = tmp_path_factory.mktemp("source") / "gda"
    ignore = shutil.ignore_patterns(".git", ".venv", "build", "dist", "*.egg-info", "__pycache__", "*.so", "*.o", "lib")
    shutil.copytree(ROOT, tree, ignore=ignore)
    run(
        sys.executable, "-c", "import sys, setuptools.build_meta as hooks; hooks.build_sdist(sys.argv[1])", str(out),
        cwd=tree,
    )  # fmt: skip
    (path,) = out.glob("gda-*.tar.gz")
    return path


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory, quick_compilers) -> Path:
    """Built from the unpacked sdist by its own hook, as pip and build do."""
    base = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(base, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))  # since 3.11.4
    (tree,) = base.iterdir()
    out = tmp_path_factory.mktemp("wheel")
    run(
        sys.executable, "-c", "import sys, setuptools.build_meta as hooks; hooks.build_wheel(sys.argv[1])", str(out),
        cwd=tree, env=quick_compilers,
    )  # fmt: skip
    (path,) = out.glob("gda-*.whl")
    return path


@pytest.fixture(scope="module")
def site(wheel, tmp_path_factory) -> Path:
    """Where the wheel is unpacked: a directory of packages, as pip leaves it."""
    site = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    return site


@pytest.fixture
def environment(site) -> dict[str, str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("GDA_")}
    return {**clean, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1", "GDA_NIC": "software"}


def test_sdist_has_sources_and_nothing_built(sdist):
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "gda/_verbs.pyx", "gda/_verbs.pxd", "gda/_verbs.pyi", "gda/py.typed", "cuda/gda/gda.h", "sim/steer.cc",
        "gda/_proxy.pyx", "gda/_rdmacm.pyx", "proxy/queue.cc", "proxy/queue.h",
        "sim/uverbs/preload.cc", "LICENSE", "README.md", "pyproject.toml", "setup.py",
    } <= names  # fmt: skip
    assert not [name for name in names if name.endswith((".so", ".o", ".c", ".cpp", ".pyc"))]


def test_wheel_has_what_is_found_at_run_time(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    assert {
        f"gda/_verbs{suffix}", f"gda/_cuda{suffix}", f"gda/_proxy{suffix}", f"gda/_rdmacm{suffix}",
        "gda/_verbs.pxd", "gda/_verbs.pyi", "gda/_proxy.pyi", "gda/_rdmacm.pyi", "gda/py.typed",
        "gda/lib/libgda_sim.so", "gda/lib/libgda_preload.so", "gda/lib/libgda_calls.so", "gda/include/gda/gda.h",
        "gda/include/gda/formats/wqe.h", "gda/nic/interop.py", "gda/tools/demo.py",
    } <= names  # fmt: skip
    headers = {f"gda/include/gda/{p.relative_to(ROOT / 'cuda/gda')}" for p in (ROOT / "cuda" / "gda").rglob("*.h")}
    assert headers <= names
    assert not [name for name in names if name.startswith(("tests/", "sim/", "cuda/", "proxy/"))]


def test_installed_package_puts_from_any_directory(site, environment, tmp_path):
    out = run(sys.executable, "-c", FIRST_PUT, cwd=tmp_path, env=environment).splitlines()
    assert Path(out[-2]) == site / "gda" / "include"
    assert Path(out[-1]) == site / "gda" / "__init__.py"


def test_cpp_program_finds_the_headers(environment, tmp_path):
    include = run(sys.executable, "-c", "import gda; print(gda.get_include())", cwd=tmp_path, env=environment).strip()
    (tmp_path / "user.cc").write_text(HOST_PROGRAM)
    # Blocks and fibers: what the host target runs on.
    runtime = sorted(map(str, Path(include, "gda", "target", "host").glob("*.cc")))
    compiler = os.environ.get("CXX", "g++")
    run(compiler, "-std=c++17", "-pthread", f"-I{include}", "user.cc", *runtime, "-o", "user", cwd=tmp_path)
    assert run(str(tmp_path / "user")).strip() == "1"


def test_cython_module_cimports_the_bindings(site, environment, tmp_path):
    (tmp_path / "gda_user.pyx").write_text(EXTENSION)
    run(sys.executable, "-m", "cython", "-3", "gda_user.pyx", cwd=tmp_path, env=environment)
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    run(
        os.environ.get("CC", "cc"), "-shared", "-fPIC", f"-I{sysconfig.get_path('include')}", "gda_user.c",
        "-o", f"gda_user{suffix}", "-libverbs", "-lmlx5", cwd=tmp_path,
    )  # fmt: skip
    both = {**environment, "PYTHONPATH": f"{site}{os.pathsep}{tmp_path}"}
    run(sys.executable, "-c", USE_EXTENSION, cwd=tmp_path, env=both)


def test_stated_versions_are_the_same_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    readme = (ROOT / "README.md").read_text()
    stated = {
        "Python": project["project"]["requires-python"].removeprefix(">="),
        "NumPy": next(d for d in project["project"]["dependencies"] if d.startswith("numpy")).partition(">=")[2],
        "CuPy": project["project"]["optional-dependencies"]["gpu"][0].partition(">=")[2],
        "Cython": next(d for d in project["build-system"]["requires"] if d.startswith("Cython")).partition(">=")[2],
    }
    for name, version in stated.items():
        assert f"{name} {version}" in readme, f"README.md does not say {name} {version}"
    assert sys.version_info >= tuple(int(part) for part in stated["Python"].split("."))
