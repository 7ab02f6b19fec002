# SPDX-License-Identifier: Apache-2.0
"""The commands of `python -m gda`, a module for each: arguments, and a few lines that call the tool.

A module has `add(command)`, which declares the command by argparse's add_parser and gives it `run(options)`, whose
result is the exit status. Tools are imported by `run` alone: the command line must come up at once, and without
libibverbs.
"""
