#!/usr/bin/env python3
"""Speed next to llama.cpp, from the same weights, on this machine, in one run.

    bench/compare.py --peer FOLDER [--write] SOURCE.gguf...

FOLDER holds llama-bench and llama-quantize. Every SOURCE is converted to q4_tiled and q8_row for us, and requantized to
Q4_0 and Q8_0 for the peer; both keep the embedding and the head at eight bits or as their own default says. Then, for
each file, thread count and test, pairs of measurements follow one another: a read of memory, one side, the other side,
the read again. The order of the sides alternates. A pair during which the memory changed its speed is repeated. What
is reported is the median of the ratios within pairs and their spread, because on a shared machine nothing else holds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cortiq import _native
from cortiq.container import open as open_file
from cortiq.convert import ConvertOptions, convert
from cortiq.engine.model import Model, load
from cortiq.engine.throughput import Plan, measure

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- compare.py: begin -->", "<!-- compare.py: end -->"
FORMATS = (("q4_tiled", "Q4_0"), ("q8_row", "Q8_0"))
PROBE = np.ones(256 << 20, dtype=np.uint8)
STEADY = 0.2  # a probe may change by this share within a pair


@dataclass(frozen=True, slots=True)
class Contest:
    """Two files of the same weights."""

    label: str
    ours: Path
    peer: Path


@dataclass(frozen=True, slots=True)
class Test:
    """What is measured: ``prompt`` tokens at once, or ``generated`` ones one by one."""

    prompt: int
    generated: int

    @property
    def name(self) -> str:
        return f"pp{self.prompt}" if self.prompt else f"tg{self.generated}"


@dataclass(frozen=True, slots=True)
class Pair:
    """One pair: tokens a second of both sides, bytes a second of the probe."""

    ours: float
    peer: float
    probe: float


@dataclass(frozen=True, slots=True)
class Row:
    """All pairs of one line of the table. ``nbytes`` is what one generated token reads."""

    label: str
    test: str
    threads: int
    nbytes: int
    pairs: tuple[Pair, ...]

    @property
    def ratios(self) -> list[float]:
        return [pair.ours / pair.peer for pair in self.pairs]

    def document(self) -> dict[str, object]:
        """The row as JSON."""
        return {
            "label": self.label,
            "test": self.test,
            "threads": self.threads,
            "pairs": len(self.pairs),
            "ours_ts": statistics.median(p.ours for p in self.pairs),
            "peer_ts": statistics.median(p.peer for p in self.pairs),
            "ratio": statistics.median(self.ratios),
            "ratio_min": min(self.ratios),
            "ratio_max": max(self.ratios),
            "probe_bytes_per_second": statistics.median(p.probe for p in self.pairs),
            "of_probe": self.of_probe(),
        }

    def of_probe(self) -> float | None:
        """Weights we read a second while generating, as a share of the probe."""
        if not self.test.startswith("tg"):
            return None
        return statistics.median(p.ours * self.nbytes / p.probe for p in self.pairs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", type=Path, metavar="SOURCE.gguf")
    parser.add_argument("--peer", type=Path, required=True, help="folder of llama-bench and llama-quantize")
    parser.add_argument("--files", type=Path, default=ROOT / "build" / "bench", help="where converted files are kept")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--generated", type=int, default=128)
    parser.add_argument("--only", choices=["pp", "tg"], help="one kind of test only")
    parser.add_argument("--busy", action="store_true", help="with another busy process on the machine")
    parser.add_argument("--json", action="store_true", help="rows as JSON lines on standard output")
    parser.add_argument("--write", action="store_true", help=f"write the table of {TABLE.relative_to(ROOT)}")
    given = parser.parse_args()
    contests = [contest for source in given.sources for contest in prepare(source, given.peer, given.files)]
    tests = [t for t in (Test(0, given.generated), Test(given.prompt, 0)) if not given.only or t.name[:2] == given.only]
    rows = []
    with busy() if given.busy else quiet():
        for contest in contests:
            for threads in given.threads:
                for row in compare(contest, tests, threads, given.pairs, given.peer):
                    rows.append(row)
                    say(row, as_json=given.json)
    if given.write:
        write_table(rows, given.pairs)
    return 0


def prepare(source: Path, peer: Path, folder: Path) -> Iterator[Contest]:
    """Both sides' files of ``source``, made when they are missing."""
    folder.mkdir(parents=True, exist_ok=True)
    name = source.stem.rpartition(".")[0] or source.stem
    for ours_format, peer_format in FORMATS:
        ours = folder / f"{name}-{ours_format}.cmf"
        theirs = folder / f"{name}-{peer_format}.gguf"
        if not ours.exists():
            convert(source, ours, ConvertOptions(quant=ours_format))
        if not theirs.exists():
            part = theirs.with_suffix(".part")
            command = [str(peer / "llama-quantize"), "--allow-requantize", str(source), str(part), peer_format]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            part.rename(theirs)
        yield Contest(f"{name} {ours_format} / {peer_format}", ours, theirs)


def compare(contest: Contest, tests: list[Test], threads: int, pairs: int, peer: Path) -> Iterator[Row]:
    """One row a test."""
    context = max(test.prompt + test.generated for test in tests)
    with load(contest.ours, threads=threads, context=context) as model:
        nbytes = token_nbytes(contest.ours)
        for test in tests:
            found: list[Pair] = []
            for attempt in range(4 * pairs):
                pair = one_pair(model, contest, test, peer, ours_first=attempt % 2 == 0)
                if pair is not None:
                    found.append(pair)
                if len(found) == pairs:
                    break
            if len(found) < pairs:
                print(f"{contest.label} {test.name}: only {len(found)} steady pairs", file=sys.stderr)
            if found:
                yield Row(contest.label, test.name, threads, nbytes, tuple(found))


def one_pair(model: Model, contest: Contest, test: Test, peer: Path, *, ours_first: bool) -> Pair | None:
    """Both sides once, between two probes; None when the probes disagree."""
    threads = model.info.threads
    before = probe(threads)
    if ours_first:
        ours = run_ours(model, test)
        theirs = run_peer(peer, contest.peer, test, threads)
    else:
        theirs = run_peer(peer, contest.peer, test, threads)
        ours = run_ours(model, test)
    after = probe(threads)
    if abs(before - after) > STEADY * max(before, after):
        return None
    return Pair(ours, theirs, (before + after) / 2)


def run_ours(model: Model, test: Test) -> float:
    """Tokens a second: one warm-up, one sample, as the peer does."""
    plan = Plan(
        n_prompt=(test.prompt,) if test.prompt else (),
        n_gen=(test.generated,) if test.generated else (),
        repetitions=1,
    )
    return float(measure(model, plan)[0]["avg_ts"])


def run_peer(peer: Path, model: Path, test: Test, threads: int) -> float:
    """The same from llama-bench."""
    command = [str(peer / "llama-bench"), "-m", str(model), "-t", str(threads), "-r", "1", "-o", "json"]
    command += ["-p", str(test.prompt), "-n", str(test.generated)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(done.stdout)[0]["avg_ts"])


def probe(threads: int) -> float:
    """Bytes a second that ``threads`` threads read from memory: the best of three passes over 256 MiB."""
    return PROBE.nbytes / min(_native.read_seconds(PROBE, threads) for _ in range(3))


def token_nbytes(path: Path) -> int:
    """Weights one generated token reads: all of them, but of an embedding that is not the head too only a row."""
    with open_file(path) as file:
        total = sum(entry.nbytes for entry in file.tensors.values())
        embedding = file.tensors["model.embed_tokens.weight"]
        if "lm_head.weight" in file:
            total -= embedding.nbytes - embedding.nbytes // embedding.shape[0]
        return total


@contextmanager
def busy() -> Iterator[None]:
    """Another process that never rests."""
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        other.kill()
        other.wait()


@contextmanager
def quiet() -> Iterator[None]:
    yield


def say(row: Row, *, as_json: bool) -> None:
    """Tell one row."""
    if as_json:
        print(json.dumps(row.document()), flush=True)
        return
    facts = row.document()
    of_probe = row.of_probe()
    share = "" if of_probe is None else f"; reads {of_probe:.2f} of the probe"
    print(
        f"{row.label:44} {row.test:6} {row.threads} threads: {facts['ours_ts']:8.1f} / {facts['peer_ts']:8.1f} tok/s, "
        f"ratio {facts['ratio']:.2f} ({facts['ratio_min']:.2f} to {facts['ratio_max']:.2f}){share}",
        flush=True,
    )


def write_table(rows: list[Row], pairs: int) -> None:
    """Put the table between its two marks, everything around them stays."""
    lines = [
        BEGIN,
        f"{_native.cpu_model_name()}, {_native.best_isa()}; medians of {pairs} pairs, smallest and largest ratio.",
        "",
        "| files, ours / llama.cpp | test | threads | ours tok/s | llama.cpp tok/s | ratio | spread | of raw read |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        facts, share = row.document(), row.of_probe()
        lines.append(
            f"| {row.label} | {row.test} | {row.threads} | {facts['ours_ts']:.1f} | {facts['peer_ts']:.1f} "
            f"| **{facts['ratio']:.2f}** | {facts['ratio_min']:.2f} to {facts['ratio_max']:.2f} "
            f"| {'' if share is None else f'{share:.2f}'} |"
        )
    text = TABLE.read_text() if TABLE.exists() else f"# Performance\n\n{BEGIN}\n{END}\n"
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    TABLE.write_text(head + "\n".join(lines) + "\n" + END + tail)


if __name__ == "__main__":
    sys.exit(main())
