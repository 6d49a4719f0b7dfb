"""``cortiq completion``: the completion script of a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from cortiq.cli.console import Console
from cortiq.cli.params import Command

SHELLS = ("bash", "zsh", "fish")
EPILOG = """
eval "$(cortiq completion bash)"
cortiq completion fish > ~/.config/fish/completions/cortiq.fish
"""


@click.command(cls=Command, epilog=EPILOG)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of SHELL."""
    kind = get_completion_class(shell)
    console = ctx.find_object(Console)
    if kind is None or console is None:
        raise click.UsageError(f"no completion for {shell}", ctx)
    console.line(kind(ctx.find_root().command, {}, "cortiq", "_CORTIQ_COMPLETE").source().rstrip("\n"))
