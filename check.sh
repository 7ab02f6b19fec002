#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs the linters with the interpreter that prepare.sh chose. A linter that is not installed there is reported as
# not run; a linter that finds something fails the check.
set -u
cd "$(dirname "$0")"
python=$(cat build/python)
failed=0
case $python in
    */*) PATH=$(dirname "$python"):$PATH ;; # linters call each other by name
esac

check() {
    name=$1
    shift
    if ! command -v "$name" >/dev/null 2>&1; then
        echo "not run: $name (it is neither beside $python nor on the PATH)"
    elif "$name" "$@"; then
        echo "ok: $name"
    else
        echo "failed: $name"
        failed=1
    fi
}

files() { git ls-files --cached --others --exclude-standard "$@"; }

check ruff check --no-cache -q .
check mypy --no-incremental --no-error-summary
check cython-lint $(files '*.pyx' '*.pxd')
check clang-format --dry-run --Werror $(files '*.h' '*.cc' '*.c' '*.cu')
exit $failed
