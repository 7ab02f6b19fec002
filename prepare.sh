#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes this tree runnable and writes the interpreter to use into build/python. Called by the Makefile:
#   sh prepare.sh demo     what the demo needs
#   sh prepare.sh test     and what the tests and checks need
#   sh prepare.sh docs     and what makes the reference
#   sh prepare.sh conformance   and what the conformance suites need besides: always looked for, for a missing program
#                               fails them
# If the interpreter at hand can import everything needed and the C headers are there, it is used and nothing is
# installed; otherwise Debian packages and a virtual environment in .venv are set up (root or sudo, and a network).
set -eu
cd "$(dirname "$0")"
purpose=${1:-demo}
mkdir -p build

say() { printf '%s\n' "$*"; }

modules="numpy, rich, Cython, setuptools"
packages="g++ make libibverbs-dev ibverbs-providers libnl-3-200"
case $purpose in demo | docs) tests="" ;; *) tests=yes ;; esac
if [ "$purpose" = docs ]; then modules="$modules, pdoc, markdown2"; fi
if [ -n "$tests" ]; then
    modules="$modules, pytest, pytest_timeout, hypothesis"
    packages="$packages ibverbs-utils clang libclang-rt-dev"
    # Programs of other people, and their tests: tests/conformance, and oracles of tests/formats.
    packages="$packages rdma-core perftest python3-pyverbs python3-scapy ucx-utils tshark"
fi
if [ "$purpose" = conformance ]; then
    # A guest whose kernel has soft-RoCE: tests/conformance/rxe.
    packages="$packages qemu-system-x86 iproute2"
fi

have_headers() {
    command -v "${CXX:-g++}" >/dev/null 2>&1 &&
        printf '#include <infiniband/mlx5dv.h>\n' | "${CXX:-g++}" -x c++ -fsyntax-only - 2>/dev/null
}
can_import() { command -v "$1" >/dev/null 2>&1 && "$1" -c "import sys, $modules; sys.exit(sys.version_info < (3, 11))" 2>/dev/null; }

# linux-headers-VERSION, as far as the package lists at hand know: empty on a machine that has none yet.
kernel_headers() {
    apt-cache depends linux-headers-amd64 2>/dev/null |
        sed -n 's/.*Depends: \(linux-headers-[0-9].*\)-amd64$/\1/p' | head -1
}

# A browser for the tests that look at pages, as far as the package lists know a real one: Ubuntu's only fetches a snap.
# Without one those tests are not run, and say so.
install_browser() {
    apt-cache policy chromium 2>/dev/null | grep -q 'Candidate: [0-9]' || return 0
    ! apt-cache policy chromium | grep -q 'Candidate:.*snap' || return 0
    (packages=chromium && install_debian) || say "going on without a browser: tests of pages will not be run"
}

install_debian() {
    missing=""
    for package in $packages; do
        dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q "ok installed" || missing="$missing $package"
    done
    [ -n "$missing" ] || return 0
    run=""
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null 2>&1 || { say "missing Debian packages:$missing"; say "  try: as root, apt-get install$missing"; exit 1; }
        run=sudo
    fi
    say "installing Debian packages:$missing"
    $run apt-get update -qq || say "apt-get update failed; trying with the package lists at hand"
    if ! DEBIAN_FRONTEND=noninteractive $run apt-get install -y -qq --no-install-recommends $missing >build/apt.log 2>&1; then
        tail -5 build/apt.log
        say "could not install:$missing"
        say "  try: apt-get install$missing, then run this again (the whole log is build/apt.log)"
        exit 1
    fi
}

python=${PYTHON:-python3}
if have_headers && can_import "$python"; then
    if [ "$purpose" = conformance ] && command -v dpkg-query >/dev/null 2>&1; then install_debian; fi
    [ "$purpose" != demo ] || say "using $(command -v "$python"): it has everything needed"
else
    command -v dpkg-query >/dev/null 2>&1 || {
        say "this is not a Debian or Ubuntu system, so packages are not installed for you"
        say "  try: install the equivalents of: $packages, and: pip install -r requirements.txt"
        exit 1
    }
    system=""
    command -v "$python" >/dev/null 2>&1 && "$python" -c "import venv, ensurepip" 2>/dev/null || system=yes
    if [ -n "$system" ]; then python=/usr/bin/python3; fi
    case $(command -v "$python" || true) in
        /usr/bin/*|/bin/*|"") packages="$packages python3 python3-dev python3-venv" ;;
    esac
    if [ -n "$tests" ]; then
        # The kernel's own declaration of every firmware command: an oracle of the format tests.
        release=$(kernel_headers)
        [ -z "$release" ] || packages="$packages $release-common"
    fi
    install_debian
    if [ -n "$tests" ] && [ -z "$release" ]; then
        release=$(kernel_headers)
        packages="$release-common"
        [ -z "$release" ] || install_debian
    fi
    [ -z "$tests" ] || install_browser
    stamp=.venv/prepared-$purpose-$(cat requirements.txt prepare.sh | cksum | cut -d' ' -f1)
    if [ ! -e "$stamp" ]; then
        say "setting up a virtual environment in .venv"
        [ -x .venv/bin/python ] || "$python" -m venv .venv
        if [ "$purpose" = demo ]; then
            grep -E '^(numpy|rich|Cython|setuptools|wheel)==' requirements.txt >build/requirements.txt
        else
            cp requirements.txt build/requirements.txt
        fi
        .venv/bin/python -m pip install -q --disable-pip-version-check -r build/requirements.txt 2>build/pip.log || {
            tail -5 build/pip.log
            say "could not install the Python packages of requirements.txt"
            say "  try: check the network, then run this again (the whole log is build/pip.log)"
            exit 1
        }
        touch "$stamp"
    fi
    python=$PWD/.venv/bin/python
fi

"$python" setup.py -q build_ext --inplace >build/build.log 2>&1 || {
    tail -20 build/build.log
    say "the build failed; the whole log is build/build.log"
    exit 1
}
case $python in
    "$PWD"/.venv/*)
        # Editable: `import gda` works from anywhere with this environment.
        ls .venv/lib/python3*/site-packages/gda.pth >/dev/null 2>&1 || {
            for directory in .venv/lib/python3*/site-packages; do echo "$PWD" >"$directory/gda.pth"; done
        } ;;
esac
printf '%s\n' "$python" >build/python
