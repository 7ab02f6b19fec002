# SPDX-License-Identifier: Apache-2.0
"""The page of the command line, from the parsers of gda/commands. Called by site.py."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from html import escape

from docs.reference.device import Page
from gda.__main__ import COMMANDS

__all__ = ["page", "parsers"]


def parsers() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every command and its actions by name (`record diff`), in the order of --help."""
    top = argparse.ArgumentParser(prog="python -m gda")
    commands = top.add_subparsers()
    for module in COMMANDS:
        module.add(commands.add_parser)
    yield from _below("", commands)


def _below(prefix: str, actions: argparse._SubParsersAction[argparse.ArgumentParser]) -> Iterator[
    tuple[str, argparse.ArgumentParser]
]:
    for name, parser in actions.choices.items():
        yield prefix + name, parser
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                yield from _below(f"{prefix}{name} ", action)


def page() -> Page:
    """The page."""
    out = [
        "<h1>Commands</h1>",
        "<p>What <code>python -m gda COMMAND</code> does; <code>--help</code> behind a command says the same.</p>",
    ]
    contents, found = [], []
    for name, parser in parsers():
        anchor = name.replace(" ", "-")
        text = _of(parser)
        out.append(f'<section id="{anchor}"><h2>{escape(name)}</h2>{text}</section>')
        contents.append((name, anchor))
        found.append(
            {
                "fullname": f"python -m gda {name}",
                "modulename": "commands",
                "qualname": anchor,
                "kind": "command",
                "doc": f"<p>{escape(_description(parser))}</p>",
            }
        )
    return Page("commands.html", "Commands", "\n".join(out), tuple(contents), tuple(found))


def _description(parser: argparse.ArgumentParser) -> str:
    # An action of a command has only the line that its command's help shows: argparse keeps it beside the parser.
    return parser.description or parser.prog.removeprefix("python -m gda ")


def _of(parser: argparse.ArgumentParser) -> str:
    usage = " ".join(parser.format_usage().split()).removeprefix("usage: ")
    out = [f'<pre class="usage"><code>{escape(usage)}</code></pre>']
    if parser.description:
        out.append(f"<p>{escape(parser.description)}</p>")
    rows = []
    for action in parser._actions:
        if action.help == argparse.SUPPRESS or isinstance(action, argparse._HelpAction):
            continue
        if isinstance(action, argparse._SubParsersAction):
            rows += [(each.dest, each.help or "") for each in action._choices_actions]
            continue
        names = ", ".join(action.option_strings) or str(action.metavar or action.dest)
        value = "" if action.nargs == 0 or not action.option_strings else f" {_value(action)}"
        text = (action.help or "") % {**vars(action), "prog": parser.prog}
        rows.append((names + value, text))
    if rows:
        terms = "".join(f"<dt><code>{escape(term)}</code></dt><dd>{escape(text)}</dd>" for term, text in rows)
        out.append(f"<dl>{terms}</dl>")
    if parser.epilog:
        out.append(f"<p>{escape(parser.epilog)}</p>")
    return "".join(out)


def _value(action: argparse.Action) -> str:
    if action.metavar:
        return action.metavar if isinstance(action.metavar, str) else " ".join(action.metavar)
    return "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()
