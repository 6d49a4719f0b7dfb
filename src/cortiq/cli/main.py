"""Entry point: runs a command and turns whatever ends it into an exit code.

0 ok, 1 error, 2 usage, 3 invalid file, 4 verification failed, 5 differs, 7 unsupported model or feature,
8 not enough memory, 9 network, 130 interrupted, 141 the reader of our output went away, 143 terminated.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    import click

    from cortiq.cli.console import Console

INTERRUPTED = 130
OUTPUT_CLOSED = 141  # 128 + SIGPIPE, the status a C program has after `| head`


def entry_point() -> None:
    """The ``cortiq`` script. A request to terminate cleans up as Ctrl-C does."""
    signal.signal(signal.SIGTERM, _terminate)
    sys.exit(main(sys.argv[1:]))


def main(arguments: Sequence[str]) -> int:
    """Run the command line ``arguments`` (without the program's name) and return the exit code."""
    from cortiq.cli.console import Console

    console = Console.standard()
    # Not ours to compete with the engine's threads; and starting a pool nobody uses costs 60 ms.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = lambda message, *_, **__: console.warning(str(message))
            code = _run(list(arguments), console)
        console.flush()
        return code
    except KeyboardInterrupt:
        console.failure("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        # Nobody reads any more. The interpreter's own flush at exit must not complain about it either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OUTPUT_CLOSED


def _terminate(number: int, frame: object) -> NoReturn:
    raise SystemExit(128 + number)


def _run(arguments: list[str], console: Console) -> int:
    if arguments == ["--version"]:  # answered before anything else is imported
        from cortiq import __version__

        console.line(f"cortiq {__version__}")
        return 0
    if instruction := os.environ.get("_CORTIQ_COMPLETE"):
        return _complete(instruction)
    import click

    from cortiq.cli.group import cli
    from cortiq.errors import CortiqError, OutOfMemory

    try:
        # Not cli.main(): click would end by itself on Ctrl-C and on a closed pipe.
        with cli.make_context("cortiq", arguments, obj=console) as context:
            result = cli.invoke(context)
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.UsageError as error:
        return _usage(error, console)
    except click.ClickException as error:
        console.failure(error.format_message())
        return error.exit_code
    except CortiqError as error:
        console.failure(str(error))
        return error.exit_code
    except MemoryError:
        console.failure("not enough memory")
        return OutOfMemory.exit_code
    except BrokenPipeError:
        raise
    except OSError as error:
        console.failure(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        return 1


def _usage(error: click.UsageError, console: Console) -> int:
    command = error.ctx.command_path if error.ctx else "cortiq"
    console.failure(error.format_message())
    console.hint(f"Try '{command} --help' for help.")
    return error.exit_code


def _complete(instruction: str) -> int:
    """Answer the completion script that ``cortiq completion`` printed."""
    from click.shell_completion import shell_complete

    from cortiq.cli.group import cli

    return shell_complete(cli, {}, "cortiq", "_CORTIQ_COMPLETE", instruction)
