"""``cortiq bench``: prompt and generation speed with llama-bench's meaning, names and units."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from cortiq.cli.console import SCHEMA_VERSION, Console, human_bytes, human_count
from cortiq.cli.params import Command, execution_options, option, pass_console, quant_option
from cortiq.cli.ranges import NumberList, PromptAndGeneration

if TYPE_CHECKING:
    from cortiq.engine.throughput import Plan, Test

EPILOG = """
cortiq bench smollm2
cortiq bench model.cmf -p 128-512+128 -n 0 -t 1,2
cortiq bench model.cmf -p 0 -n 64 -d 0,4096 -o jsonl
"""
FORMATS = ("md", "json", "jsonl", "csv")
HEAD = ("model", "size", "params", "kernels", "threads", "test", "t/s")


@click.command(cls=Command, epilog=EPILOG)
@click.argument("models", metavar="MODEL...", nargs=-1, required=True)
@option("-p", "--n-prompt", type=NumberList(), default="512", show_default=True, help="Prompt tokens at once; 0: none.")
@option("-n", "--n-gen", type=NumberList(), default="128", show_default=True, help="Tokens one by one; 0: none.")
@option("-pg", "pairs", type=PromptAndGeneration(), multiple=True, help="Both in one test; repeatable.")
@option("-d", "--n-depth", type=NumberList(), default="0", show_default=True, help="Tokens before the test.")
@option("-r", "--repetitions", type=click.IntRange(2), default=5, show_default=True, help="Samples of each test.")
@quant_option
@execution_options(NumberList(1))
@option("-o", "--output", group="Output", type=click.Choice(FORMATS), default="md", show_default=True, help="Format.")
@option("--json", "as_json", group="Output", is_flag=True, help="The same as -o json.")
@pass_console
def bench(console: Console, models: tuple[str, ...], **given: Any) -> None:
    """Measure how fast each MODEL reads a prompt (pp) and generates (tg).

    Every option takes lists and ranges: 1,2 or 128-512+128 or 1-16*2; the product is run. Tokens are random ids; one
    run warms up. Rates are tokens a second, mean and standard deviation of the samples.
    """
    from cortiq.cli.models import resolve

    paths = [resolve(model, given["quant"], console) for model in models]
    kind = "json" if given["as_json"] else given["output"]
    rows = _measured(console, [str(path) for path in paths], given)
    if kind == "json":
        console.line(json.dumps(list(rows), ensure_ascii=False, indent=2))
    elif kind == "jsonl":
        for row in rows:
            console.line(json.dumps(row, ensure_ascii=False))
    elif kind == "csv":
        _print_csv(console, rows)
    else:
        _print_markdown(console, rows)


def _measured(console: Console, paths: list[str], given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows, as they come: every model, thread count and test."""
    from cortiq.engine.model import load
    from cortiq.engine.throughput import Plan, measure

    plan = Plan(given["n_prompt"], given["n_gen"], given["pairs"], given["n_depth"], given["repetitions"])
    needed = [test.n_depth + test.n_prompt + test.n_gen for test in plan.tests()]
    if not needed:
        raise click.UsageError("nothing to measure: -p, -n and -pg are all empty", click.get_current_context())
    for path in paths:
        for threads in given["threads"] or (None,):
            settings = {"threads": threads, "mode": given["mode"], "isa": given["isa"]}
            with load(path, context=max(*needed, 2), **settings) as model:
                for test in plan.tests():
                    console.detail(f"{path}: {test.name}")
                    for row in measure(model, _alone(test, plan)):
                        yield {"schema_version": SCHEMA_VERSION, **row}


def _alone(test: Test, plan: Plan) -> Plan:
    """A plan of one test, so that its row can be shown when it is done."""
    both = test.n_prompt > 0 and test.n_gen > 0
    return replace(
        plan,
        n_prompt=() if both else (test.n_prompt,),
        n_gen=() if both else (test.n_gen,),
        pairs=((test.n_prompt, test.n_gen),) if both else (),
        n_depth=(test.n_depth,),
    )


def _print_csv(console: Console, rows: Iterator[dict[str, Any]]) -> None:
    for number, row in enumerate(rows):
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        if number == 0:
            writer.writerow(row)
        writer.writerow(json.dumps(v) if isinstance(v, list) else v for v in row.values())
        console.write(buffer.getvalue())


def _print_markdown(console: Console, rows: Iterator[dict[str, Any]]) -> None:
    said: list[str] = []
    widths = [30, 10, 9, 12, 7, 15, 20]
    console.line("| " + " | ".join(name.ljust(w) for name, w in zip(HEAD, widths, strict=True)) + " |")
    console.line("| " + " | ".join("-" * w if i < 3 else "-" * (w - 1) + ":" for i, w in enumerate(widths)) + " |")
    for row in rows:
        cells = (
            str(row["model_type"]),
            human_bytes(row["model_size"]),
            human_count(row["model_n_params"]),
            f"{row['isa']} {row['mode']}",
            str(row["n_threads"]),
            row["test"],
            f"{row['avg_ts']:.2f} ± {row['stddev_ts']:.2f}",
        )
        line = (c.ljust(w) if i < 3 else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True)))
        console.line("| " + " | ".join(line) + " |")
        facts = f"{row['cpu_info']}; {row['model_filename']}, directory {row['dir_hash']}"
        if facts not in said:
            said.append(facts)
    for facts in said:
        console.line(f"\n{facts}")
