"""``cortiq run``: answers a prompt, or chats when there is none."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from cortiq.cli.console import Console
from cortiq.cli.params import Command, execution_options, json_option, option, pass_console, quant_option
from cortiq.cli.sampling import generate_options, sampling_options
from cortiq.errors import UnsupportedFeature, UsageError

if TYPE_CHECKING:
    from cortiq.engine.model import Model
    from cortiq.engine.results import Chunk

EPILOG = """
cortiq run smollm2 "Name three uses of a memory-mapped file."
git diff | cortiq run smollm2 "Summarize this change." --max-tokens 80
cortiq run model.gguf --raw --greedy "The capital of France is"
cortiq run smollm2
"""


@click.command(cls=Command, epilog=EPILOG)
@click.argument("model")
@click.argument("prompt", required=False)
@option("-p", "--prompt", "prompt_option", metavar="PROMPT", help="The prompt as an option.")
@option("--system", metavar="TEXT", help="System message.")
@option("--raw", is_flag=True, help="Continue the prompt; no chat template.")
@option("-n", "--max-tokens", type=click.IntRange(1), default=512, show_default=True, help="Longest answer.")
@option("--context", type=click.IntRange(2), help="Longest conversation, in tokens.")
@option("--task", metavar="NAME", help="Task mask of the file.")
@quant_option
@sampling_options
@execution_options()
@option("--stats", group="Output", is_flag=True, help="Speed, on standard error; so does -v.")
@json_option
@pass_console
def run(console: Console, model: str, prompt: str | None, **given: Any) -> None:
    """Answer PROMPT with MODEL, or chat when there is no prompt and a terminal.

    MODEL is a .cmf file, a known name, a Hugging Face folder or repository, or a .gguf file; what is no .cmf yet is
    made one first and kept in CORTIQ_HOME. PROMPT "-" is standard input; what is piped in goes before PROMPT.
    """
    from cortiq.cli import prompt as prompts
    from cortiq.cli.models import load_model, resolve

    if prompt is not None and given["prompt_option"] is not None:
        raise UsageError("the prompt is given twice", code="prompt")
    options = {"max_tokens": given["max_tokens"], **generate_options(given)}
    text = prompts.assemble(given["prompt_option"] if prompt is None else prompt, console)
    if text is None and (given["as_json"] or not console.interactive):
        raise UsageError("there is no prompt, and no terminal to chat on", code="prompt")
    path = resolve(model, given["quant"], console)
    with load_model(path, given, console) as loaded:
        _check_task(loaded, given["task"])
        if text is None:
            from cortiq.cli.chat import Chat

            Chat(console, loaded, options, system=given["system"], stats=given["stats"]).loop()
            return
        _answer(console, loaded, _chunks(loaded, text, given, options), given)


def _chunks(model: Model, text: str, given: dict[str, Any], options: dict[str, Any]) -> Iterator[Chunk]:
    if given["raw"]:
        if given["system"] is not None:
            raise UsageError("--raw knows no system message", code="raw")
        return model.stream(text, **options)
    messages = [{"role": "user", "content": text}]
    if given["system"] is not None:
        messages.insert(0, {"role": "system", "content": given["system"]})
    return model.chat_stream(messages, **options)


def _answer(console: Console, model: Model, chunks: Iterator[Chunk], given: dict[str, Any]) -> None:
    from cortiq.cli.models import engine_facts

    begun = time.perf_counter()
    first = 0.0
    text: list[str] = []
    tokens: list[int] = []
    last: Chunk | None = None
    for last in chunks:
        first = first or time.perf_counter() - begun
        text.append(last.text)
        tokens.extend(last.tokens)
        if not given["as_json"]:
            console.say(last.text)
    if last is None or last.timings is None:
        raise RuntimeError("a stream ended without its last chunk")
    if given["as_json"]:
        console.json(
            {
                "model": str(model.path),
                "text": "".join(text),
                "tokens": tokens,
                "finish_reason": last.finish_reason,
                "first_token_seconds": first,
                "timings": asdict(last.timings),
                "engine": engine_facts(model),
            }
        )
        return
    if not text or not "".join(text).endswith("\n"):
        console.line()
    if last.finish_reason == "length":
        console.note(f"(stopped after {last.timings.generated_tokens} tokens)")
    if given["stats"] or console.verbosity:
        console.hint(statistics(last))


def statistics(last: Chunk) -> str:
    """One line about a finished stream, from its last chunk."""
    times = last.timings
    if times is None:
        raise ValueError("not the last chunk of a stream")
    return (
        f"prompt {times.prompt_tokens} tokens ({times.cached_tokens} cached), {times.prompt_per_second:.1f} tok/s; "
        f"answer {times.generated_tokens} tokens, {times.decode_per_second:.1f} tok/s; finish: {last.finish_reason}"
    )


def _check_task(model: Model, task: str | None) -> None:
    if task is None:
        return
    if model.file.section("masks") is None:
        raise UsageError(f"unknown task {task!r}: the file has no tasks", code="task", path=str(model.path))
    raise UnsupportedFeature("task masks are not supported yet", code="task", path=str(model.path), section="masks")
