"""Options more than one command has, and the command class that sorts them into the groups of its help page."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cortiq.cli.console import CHOICES, Console
from cortiq.settings import ISAS, MODES

if TYPE_CHECKING:
    from cortiq.container.locking import InPlace

SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
CONSOLE_OPTIONS = ("color", "quiet", "verbosity", "progress")
F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")


class Gigabytes(click.FloatRange):
    """A size in GB, 10^9 bytes, as bytes."""

    def __init__(self) -> None:
        super().__init__(min=0, min_open=True)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        size = super().convert(value, param, ctx) * 1e9
        if not math.isfinite(size):
            self.fail(f"{value} is not a size", param, ctx)
        return max(1, round(size))


class Option(click.Option):
    """An option that belongs to a group of the help page."""

    def __init__(self, *arguments: Any, group: str = "Options", **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.group = group
        if self.metavar is None and not self.is_flag and isinstance(self.type, click.types.IntParamType):
            self.metavar = "N"
        elif self.metavar is None and not self.is_flag and isinstance(self.type, click.types.FloatParamType):
            self.metavar = "X"

    def get_help_extra(self, ctx: click.Context) -> Any:
        extra = super().get_help_extra(ctx)
        extra.pop("range", None)  # said by the error when it matters; here it would break the line
        return extra


class Command(click.Command):
    """A command with the options every command has, grouped help and an examples block as its epilog."""

    def __init__(self, *arguments: Any, **attributes: Any) -> None:
        attributes["params"] = [*attributes.get("params", []), *_console_options()]
        attributes["context_settings"] = {**SETTINGS, **attributes.get("context_settings", {})}
        super().__init__(*arguments, **attributes)

    def invoke(self, ctx: click.Context) -> Any:
        given = {name: ctx.params.pop(name) for name in CONSOLE_OPTIONS}
        console = ctx.find_object(Console)
        if console is None:
            raise RuntimeError("commands are run through cortiq.cli.main, which brings the console")
        console.configure(**given)
        return super().invoke(ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        groups: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                groups.setdefault(getattr(param, "group", "Output"), []).append(record)
        for name, records in groups.items():
            with formatter.section(name):
                formatter.write_dl(records)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(self.epilog, formatter)


class Group(click.Group):
    """A command of commands with an examples block as its epilog.

    ``default`` names the one that is meant when the first argument names none.
    """

    def __init__(self, *arguments: Any, default: str | None = None, **attributes: Any) -> None:
        super().__init__(*arguments, **{**attributes, "context_settings": SETTINGS, "invoke_without_command": True})
        self.default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        named = next((argument for argument in args if not argument.startswith("-")), None)
        if self.default is not None and named is not None and named not in self.commands:
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_examples(self.epilog, formatter)


def write_examples(epilog: str | None, formatter: click.HelpFormatter) -> None:
    """The lines of ``epilog`` as they are, below their heading."""
    if epilog:
        with formatter.section("Examples"):
            for line in epilog.strip().splitlines():
                formatter.write(f"{' ' * formatter.current_indent}{line.strip()}\n")


def pass_console(function: Callable[..., R]) -> Callable[..., R]:
    """Gives the console as the first argument."""

    @wraps(function)
    def wrapped(*arguments: Any, **given: Any) -> R:
        return function(click.get_current_context().find_object(Console), *arguments, **given)

    return wrapped


def option(*declarations: str, group: str = "Options", **attributes: Any) -> Callable[[F], F]:
    """``click.option`` with a group."""
    return click.option(*declarations, cls=Option, group=group, **attributes)


def stacked(*decorators: Callable[[F], F]) -> Callable[[F], F]:
    """One decorator out of several; the first is listed first in the help."""

    def apply(function: F) -> F:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return apply


def json_option(function: F) -> F:
    """``--json``: the result as one document; parameter ``as_json``."""
    return option("--json", "as_json", group="Output", is_flag=True, help="One JSON document on standard output.")(
        function
    )


def execution_options(threads: click.ParamType[Any] | None = None) -> Callable[[F], F]:
    """How to execute: parameters ``threads``, ``mode``, ``isa``; None means the environment's or the default.

    ``threads`` is the type of that option where one number is not enough.
    """
    count = threads or click.IntRange(1, 1024)
    return stacked(
        option("-t", "--threads", group="Execution", type=count, help="Threads, caller included."),
        option("--mode", group="Execution", type=click.Choice(MODES), help="int8 (fast) or f32 (exact) activations."),
        option("--isa", group="Execution", type=click.Choice(ISAS), help="Instruction set of the kernels."),
    )


def in_place_options(function: F) -> F:
    """What a command that changes a file in place allows: parameters of ``in_place``."""
    group = "In place"
    return stacked(
        option("--in-place-anyway", "anyway", group=group, is_flag=True, help="Also through a link; others see it."),
        option("--drop-signature", group=group, is_flag=True, help="Rename its .sig to .sig.stale."),
        option("--no-lock", group=group, is_flag=True, help="Without a lock: nobody else writes to it."),
        option("--wait", group=group, is_flag=True, help="Wait for another writer."),
    )(function)


def in_place(given: dict[str, Any]) -> InPlace:
    """The values of ``in_place_options``, taken out of ``given``."""
    from cortiq.container.locking import InPlace

    names = ("anyway", "drop_signature", "no_lock", "wait")
    anyway, drop_signature, no_lock, wait = (given.pop(name) for name in names)
    return InPlace(anyway=anyway, drop_signature=drop_signature, lock=not no_lock, wait=wait)


def alone_option(function: F) -> F:
    """``--alone``: one file of a set without the others; parameter ``alone``."""
    return option("--alone", is_flag=True, help="The file named, without the rest of its set.")(function)


def quant_option(function: F) -> F:
    """``--quant`` of commands that convert on the way: parameter ``quant``."""
    return option("--quant", default="q4_tiled", help="Dtype when converting.  [default: q4_tiled]")(function)


def _console_options() -> list[click.Parameter]:
    progress = click.Choice(["auto", "json", "none"])
    return [
        Option(["-q", "--quiet"], group="Output", is_flag=True, help="Only data and errors."),
        Option(["-v", "--verbose", "verbosity"], group="Output", count=True, help="Statistics and details."),
        Option(["--color"], group="Output", type=click.Choice(CHOICES), default="auto", help="Colour."),
        Option(["--progress"], group="Output", type=progress, default="auto", help="Progress on standard error."),
    ]
