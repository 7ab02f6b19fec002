# SPDX-License-Identifier: Apache-2.0
"""Fuzzes for as long as one likes: `make fuzz SECONDS=600 TARGET=packet`.

New inputs are kept in build/fuzz/corpus, so that the next run goes on from them; an input that went wrong is written
to build/fuzz and named.
"""

from __future__ import annotations

import argparse
import sys

from . import fuzzer


def main(given: list[str]) -> int:
    """Fuzz each target for its share of the time; 1 when something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--seed", type=int, default=0, help="0: another one in each run; it is printed")
    parser.add_argument("targets", nargs="*", default=fuzzer.TARGETS, metavar="TARGET", help=", ".join(fuzzer.TARGETS))
    options = parser.parse_args(given)
    for target in options.targets:
        if target not in fuzzer.TARGETS:
            parser.error(f"no target is called {target!r}; there are: {', '.join(fuzzer.TARGETS)}")
    if fuzzer.compiler() is None:
        print("not run: no clang++ with libFuzzer; apt-get install clang libclang-rt-dev")
        return 1
    fuzzer.build()
    found = 0
    for target in options.targets:
        corpus = fuzzer.BUILD / "corpus" / target
        corpus.mkdir(parents=True, exist_ok=True)
        done = fuzzer.run(target, fuzzer.BUILD, f"-max_total_time={options.seconds}", seed=options.seed, corpus=corpus)
        lines = done.output.splitlines()
        print("\n".join(lines[-40:] if done.status else [line for line in lines if line.startswith("stat:")]))
        print(f"{target}: {'found something' if done.status else 'ok'}", flush=True)
        found += done.status != 0
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
