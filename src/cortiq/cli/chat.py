"""The conversation on a terminal: a prompt, an answer, and a handful of commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cortiq.cli.console import Console
from cortiq.errors import CortiqError

if TYPE_CHECKING:
    from cortiq.engine.model import Model
    from cortiq.engine.results import Chunk

HELP = """\
/help          this list
/system TEXT   set the system message and start over; without TEXT: none
/retry         answer the last message again
/reset         start over
/stats         show or hide the speed after each answer
/quit          leave; so does the end of input
A line that ends in a backslash goes on in the next one. Ctrl-C stops an answer."""


class Chat:
    """One conversation. Only finished or interrupted turns are in ``messages``."""

    def __init__(
        self, console: Console, model: Model, options: dict[str, Any], *, system: str | None, stats: bool
    ) -> None:
        self._console = console
        self._model = model
        self._options = options
        self._stats = stats or console.verbosity > 0
        self._system = system
        self.messages: list[dict[str, str]] = []
        self.reset()

    def loop(self) -> None:
        """Read and answer until the user leaves."""
        try:
            import readline  # noqa: F401  (importing it gives input() editing and history)
        except ImportError:
            self._console.detail("this Python has no readline: no editing and no history")
        self._console.note(f"{self._model.path.stem}: /help lists the commands, /quit leaves")
        while True:
            try:
                text = self._read()
            except EOFError:
                self._console.line()
                return
            except KeyboardInterrupt:
                self._console.line()
                continue
            if text.startswith("/"):
                if not self.command(text):
                    return
            elif text.strip():
                self.answer(text)

    def command(self, line: str) -> bool:
        """Obey ``/name argument``. False ends the conversation."""
        name, _, argument = line.strip().partition(" ")
        match name:
            case "/quit" | "/exit" | "/bye":
                return False
            case "/help" | "/?":
                self._console.line(HELP)
            case "/reset" | "/clear":
                self.reset()
            case "/system":
                self._system = argument.strip() or None
                self.reset()
            case "/stats":
                self._stats = not self._stats
            case "/retry":
                self._retry()
            case _:
                self._console.line(f"no command {name}; /help lists them")
        return True

    def reset(self) -> None:
        """Start over, with the system message."""
        self.messages = [] if self._system is None else [{"role": "system", "content": self._system}]

    def answer(self, text: str) -> None:
        """Take one turn. A turn that fails leaves the conversation as it was."""
        turn = [*self.messages, {"role": "user", "content": text}]
        said: list[str] = []
        last: Chunk | None = None
        try:
            for last in self._model.chat_stream(turn, **self._options):
                said.append(last.text)
                self._console.say(last.text)
        except KeyboardInterrupt:
            self._console.note("\n(stopped)")
        except CortiqError as error:
            self._console.failure(str(error))
            return
        self._console.line()
        self.messages = [*turn, {"role": "assistant", "content": "".join(said)}]
        if self._stats and last is not None and last.timings is not None:
            from cortiq.cli.commands.run import statistics

            self._console.note(statistics(last))

    def _retry(self) -> None:
        if len(self.messages) < 2 or self.messages[-1]["role"] != "assistant":
            self._console.line("there is nothing to answer again")
            return
        question = self.messages[-2]["content"]
        del self.messages[-2:]
        self.answer(question)

    def _read(self) -> str:
        lines = [input("> ")]
        while lines[-1].endswith("\\"):
            lines[-1] = lines[-1][:-1]
            lines.append(input(". "))
        return "\n".join(lines)
