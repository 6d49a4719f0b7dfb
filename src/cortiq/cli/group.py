"""The table of commands. A command's module is imported when the command is called, not before."""

from __future__ import annotations

import difflib
from importlib import import_module

import click

from cortiq import __version__
from cortiq.cli.console import Console
from cortiq.cli.params import SETTINGS

# name -> (module below cortiq.cli.commands, attribute in it, one line of help)
COMMANDS = {
    "run": ("run", "run", "Answer a prompt, or chat when there is none."),
    "pull": ("pull", "pull", "Download a model and make it a .cmf file."),
    "convert": ("convert", "convert", "Make a .cmf file from a Hugging Face folder or a GGUF file."),
    "import-gguf": ("convert", "import_gguf", "Make a .cmf file from a GGUF file."),
    "requant": ("requant", "requant", "Write a .cmf file in another precision."),
    "info": ("info", "info", "Show what is in a .cmf file."),
    "verify": ("verify", "verify", "Check every hash of a .cmf file, and its signature."),
    "sign": ("sign", "sign", "Sign a .cmf file."),
    "diff": ("diff", "diff", "Show what changes from one .cmf file to another."),
    "story": ("story", "story", "Tell where a .cmf file comes from and what is in it."),
    "edit": ("edit", "edit", "Change header fields of a .cmf file in place."),
    "log": ("log", "log", "List the versions a .cmf file holds."),
    "undo": ("undo", "undo", "Take back the last change of a .cmf file."),
    "checkout": ("checkout", "checkout", "Go to another version a .cmf file holds."),
    "compact": ("compact", "compact", "Write a .cmf file anew, without dead bytes and history."),
    "repair": ("repair", "repair", "Bring back the last whole version of a damaged .cmf file."),
    "shard": ("shard", "shard", "Write a .cmf file as a set of smaller files."),
    "merge": ("merge", "merge", "Write a set of files as one .cmf file."),
    "bench": ("bench", "bench", "Measure prompt and generation speed."),
    "ppl": ("ppl", "ppl", "Measure the perplexity of a text."),
    "masks": ("masks", "masks", "List, add and remove the task masks of a .cmf file."),
    "skill": ("skill", "skill", "List, add, remove and export the skills of a .cmf file."),
    "doctor": ("doctor", "doctor", "Show this processor, what was chosen for it, and why."),
    "completion": ("completion", "completion", "Print the completion script of a shell."),
}

EPILOG = """\
Settings (an option on the command line wins):
  CORTIQ_HOME      folder of downloaded and converted models
  CORTIQ_ISA       instruction set: scalar, avx2 or avx512
  CORTIQ_THREADS   number of threads, caller included
  CORTIQ_MODE      fast or exact
  CORTIQ_TIMEOUT   seconds the server of a remote file may be silent

Exit codes:
  0 ok, 1 error, 2 usage, 3 invalid file, 4 verification failed, 5 differs,
  7 unsupported model, 8 not enough memory, 9 network, 130 interrupted,
  143 terminated

Examples:
  cortiq run smollm2 "Name three uses of a memory-mapped file."
  cortiq convert model.gguf model.cmf --quant q4_tiled
  cortiq info model.cmf --json
"""


class LazyGroup(click.Group):
    """A group that knows its commands by name until one is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        command: click.Command = getattr(import_module(f"cortiq.cli.commands.{entry[0]}"), entry[1])
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            near = difflib.get_close_matches(name, COMMANDS, n=2, cutoff=0.5)
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            raise click.UsageError(f"No such command {name!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry[2]) for name, entry in COMMANDS.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write("\n" + EPILOG)


@click.group(cls=LazyGroup, context_settings=SETTINGS, invoke_without_command=True)
@click.version_option(__version__, message="%(prog)s %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Language models as one auditable file each, fast on an ordinary CPU."""
    if ctx.invoked_subcommand is None:
        console = ctx.find_object(Console)
        if console is not None:
            console.write(ctx.get_help() + "\n")
