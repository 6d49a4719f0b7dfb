#!/usr/bin/env python3
"""Writes the pages of docs/ that follow from the code: cli.md and errors.md.

tools/generate_docs.py           writes them
tools/generate_docs.py --check   exit code 1 when one is not what it would be
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click

ROOT = Path(__file__).parents[1]
GENERATED = "<!-- written by tools/generate_docs.py -->"


def cli_page() -> str:
    """Every command: what it does, its options, examples. Written from the declarations, not from click's layout."""
    import click

    from cortiq.cli.group import COMMANDS, EPILOG, cli

    lines = ["# Command line", "", GENERATED, "", "```", EPILOG.rstrip(), "```"]
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        lines += command_lines(name, command)
    return "\n".join(lines) + "\n"


def command_lines(name: str, command: click.Command) -> list[str]:
    """The section of a command, then those of its own commands."""
    import click

    places = [p.metavar or p.name.upper() for p in command.params if isinstance(p, click.Argument) and p.name]
    inner = command.commands if isinstance(command, click.Group) else {}
    places += ["COMMAND"] if inner else []
    text = "\n".join(line.strip() for line in (command.help or "").strip().splitlines())
    lines = ["", f"## {name}", "", f"`cortiq {name} {' '.join(places)}`", "", text]
    options = [option_row(p) for p in command.params if isinstance(p, click.Option)]
    lines += ["", "| option | meaning |", "|---|---|", *options] if options else []
    lines += ["", "```", (command.epilog or "").strip(), "```"]
    for below, own in inner.items():
        lines += command_lines(f"{name} {below}", own)
    return lines


def option_row(option: click.Option) -> str:
    """One line of the table of options."""
    import click

    names = ", ".join(f"`{name}`" for name in option.opts)
    if isinstance(option.type, click.Choice):
        names += " " + " \\| ".join(option.type.choices)
    elif not option.is_flag and not option.count:
        names += f" {option.metavar or 'X'}"
    help_text = option.help or ""
    if option.show_default and option.default is not None:
        help_text += f"  [default: {option.default}]"
    return f"| {names} | {help_text} |"


def errors_page() -> str:
    """Every class of error with its exit code."""
    from cortiq import errors

    lines = [
        "# Errors",
        "",
        GENERATED,
        "",
        "Every error the package raises on purpose is one of these, below `cortiq.errors.CortiqError`. It carries",
        "`code`, `path`, `section`, `tensor`, `offset`, `expected` and `found`; what does not apply is None. The exit",
        "code is what the command line ends with.",
        "",
        "| class | below | exit code | meaning |",
        "|---|---|---|---|",
    ]
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, errors.CortiqError):
            parent = "" if kind is errors.CortiqError else f"`{kind.__mro__[1].__name__}`"
            meaning = (kind.__doc__ or "").splitlines()[0].replace("``", "`")
            lines.append(f"| `{name}` | {parent} | {kind.exit_code} | {meaning} |")
    return "\n".join(lines) + "\n"


PAGES = {"cli.md": cli_page, "errors.md": errors_page}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = []
    for name, make in PAGES.items():
        path, text = ROOT / "docs" / name, make()
        if check:
            stale += [name] if not path.exists() or path.read_text() != text else []
        else:
            path.write_text(text)
    for name in stale:
        print(f"docs/{name} is not what the code says; run tools/generate_docs.py", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
