# SPDX-License-Identifier: Apache-2.0
"""`make docs`: the reference, by default in build/docs. Says what it could not show on this machine."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path


def main() -> int:
    """Write it; 0 also where pdoc is missing, which is said."""
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "build/docs")
    absent = [name for name in ("pdoc", "markdown2") if importlib.util.find_spec(name) is None]
    if absent:
        print(f"not run: the reference ({' and '.join(absent)} cannot be imported)")
        print("  try: pip install -r requirements.txt")
        return 0
    from docs.reference.site import write

    for name, why in write(out).items():
        print(f"not shown: {name}: {why}")
    print(f"{(out / 'index.html').resolve().as_uri()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
