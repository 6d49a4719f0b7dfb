#!/usr/bin/env python3
"""The long fuzzing run: every target of tests/fuzz and csrc/fuzz for a while, and a page of what came of it.

    python tools/fuzz_long.py [--minutes 60] [--jobs 2] [--seed 1] [--only TARGET ...]

Needs clang with libFuzzer (clang-14 and libclang-rt-14-dev) for the native targets and atheris for the others. Works in
build/fuzz; writes docs/fuzz/<date>.md, and tests/data/fuzz/corpus.zip with --keep.
"""

from __future__ import annotations

import argparse
import datetime
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "fuzz"
sys.path[:0] = [str(ROOT / folder) for folder in ("src", "tests", "python")]
# Shares of the time of all jobs.
NATIVE = {"decode": 36, "hash": 12}
GUIDED = {"whole_file": 28, "json_text": 5, "safetensors_file": 5, "gguf_file": 5, "sections": 5, "signature": 4}
LIMITS = ("-timeout=30", "-print_final_stats=1", "-use_value_profile=0")
ROUND = 50_000  # executions of a guided round: atheris never gives back what its mutator returned
KEPT_NBYTES = 16384  # of one input of the corpus
KEPT = 120  # inputs of a target


@dataclass
class Run:
    """What came of a target. ``edges`` is what libFuzzer counts: edges of native code, branches of Python."""

    name: str
    seconds: float
    seed: int
    executions: int = 0
    edges: int = 0
    corpus: int = 0
    peak_mb: int = 0
    took: float = 0
    findings: list[Path] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return BUILD / "work" / self.name

    @property
    def native(self) -> bool:
        return self.name in NATIVE


def main() -> int:
    options = read_options()
    names = options.only or [*NATIVE, *GUIDED]
    shares = NATIVE | GUIDED
    total = sum(shares[name] for name in names)
    seconds = {name: 60 * options.minutes * options.jobs * shares[name] / total for name in names}
    if any(name in NATIVE for name in names):
        build(options.compiler)
    runs = [Run(name, seconds[name], options.seed) for name in sorted(names, key=lambda name: seconds[name])]
    done: list[Run] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for run in pool.map(fuzz, runs):
            print(f"{run.name}: {run.executions:,} executions, {len(run.findings)} findings", flush=True)
            done.append(run)
            page = write_page(done, options)
    print(f"wrote {page}")
    if options.keep:
        keep_corpus(runs)
    return 1 if any(run.findings for run in runs) else 0


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Fuzz everything and write down what came of it.")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--jobs", type=int, default=2, help="targets at a time")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=[*NATIVE, *GUIDED], metavar="TARGET")
    parser.add_argument("--keep", action="store_true", help="put small inputs that were found into the tests")
    parser.add_argument("--compiler", default="clang++-14" if shutil.which("clang++-14") else "clang++")
    return parser.parse_args()


def build(compiler: str) -> None:
    """The harnesses of csrc/fuzz."""
    options = ["-G", "Ninja", "-DCORTIQ_FUZZ=ON", f"-DCMAKE_CXX_COMPILER={compiler}"]
    for command in (["cmake", "-S", ROOT, "-B", BUILD, *options], ["cmake", "--build", BUILD]):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def fuzz(run: Run) -> Run:
    """Until the time is up; a round ends by a finding or its executions, and the next has another seed."""
    shutil.rmtree(run.folder, ignore_errors=True)
    corpus = run.folder / "corpus"
    corpus.mkdir(parents=True)
    for i, data in enumerate(seeds(run.name)):
        (corpus / f"seed-{i:03}").write_bytes(data)
    started = time.monotonic()
    for turn in range(1000):
        left = run.seconds - (time.monotonic() - started)
        if left < 1:
            break
        one_round(run, corpus, run.seed + turn, left)
    run.took = time.monotonic() - started
    run.corpus = sum(1 for _ in corpus.iterdir())
    run.findings = sorted(path for kind in ("crash", "timeout", "oom", "leak") for path in run.folder.glob(f"{kind}-*"))
    return run


def one_round(run: Run, corpus: Path, seed: int, seconds: float) -> None:
    harness = [BUILD / f"fuzz_{run.name}"] if run.native else [sys.executable, ROOT / "tests/fuzz/guided.py", run.name]
    native, guided = ["-max_len=1024", "-rss_limit_mb=2048"], ["-max_len=131072", "-rss_limit_mb=512", f"-runs={ROUND}"]
    most = native if run.native else guided
    limits = (*LIMITS, *most, f"-artifact_prefix={run.folder}/")
    command = [*harness, corpus, *limits, f"-seed={seed}", f"-max_total_time={max(int(seconds), 1)}"]
    environment = {**os.environ, "ASAN_OPTIONS": "quarantine_size_mb=8:detect_leaks=0", "PYTHONDONTWRITEBYTECODE": "1"}
    log = run.folder / f"log-{seed}"
    with log.open("wb") as output:
        subprocess.run(command, cwd=run.folder, env=environment, stdout=output, stderr=output, check=False)
    said = log.read_text(errors="replace")
    run.executions += int(_last(r"stat::number_of_executed_units: (\d+)", said))
    run.edges = max(run.edges, int(_last(r" cov: (\d+)", said)))
    run.peak_mb = max(run.peak_mb, int(_last(r"stat::peak_rss_mb:\s+(\d+)", said)))


def seeds(name: str) -> list[bytes]:
    """Inputs to begin with."""
    from fuzz.targets import TARGETS, native_seeds

    return native_seeds(name) if name in NATIVE else TARGETS[name].seeds()


def _last(pattern: str, text: str) -> str:
    found = re.findall(pattern, text)
    return found[-1] if found else "0"


def write_page(runs: list[Run], options: argparse.Namespace) -> Path:
    today = datetime.date.today().isoformat()
    native, guided = ([run for run in runs if run.native is kind] for kind in (True, False))
    lines = [
        f"# Fuzzing, {today}",
        "",
        f"`python tools/fuzz_long.py --minutes {options.minutes:g} --jobs {options.jobs} --seed {options.seed}` on "
        f"Python {sys.version.split()[0]}, {compiler_version(options.compiler)}.",
        "",
        f"Native: {sum(run.executions for run in native):,} executions. "
        f"Python: {sum(run.executions for run in guided):,} executions. "
        f"Findings: {sum(len(run.findings) for run in runs)}.",
        "",
        "| target | executions | seconds | edges | inputs kept | peak RSS, MB | findings |",
        "|---|---|---|---|---|---|---|",
    ]
    for run in (*native, *guided):
        found = ", ".join(path.name for path in run.findings) or "0"
        where = "csrc" if run.native else "tests"
        lines.append(
            f"| {where}/fuzz {run.name} | {run.executions:,} | {run.took:.0f} | {run.edges:,} | {run.corpus:,} "
            f"| {run.peak_mb} | {found} |"
        )
    page = ROOT / "docs" / "fuzz" / f"{today}.md"
    page.parent.mkdir(exist_ok=True)
    page.write_text("\n".join(lines) + "\n")
    return page


def compiler_version(compiler: str) -> str:
    if shutil.which(compiler) is None:
        return "no clang"
    said = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True)
    return said.stdout.splitlines()[0]


def keep_corpus(runs: list[Run]) -> None:
    """The smallest inputs that found something new, for tests/fuzz/test_targets.py."""
    target = ROOT / "tests" / "data" / "fuzz" / "corpus.zip"
    target.parent.mkdir(exist_ok=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for run in sorted(runs, key=lambda run: run.name):
            if run.native:
                continue
            small = sorted((p.stat().st_size, p.name, p) for p in (run.folder / "corpus").iterdir())
            for size, name, path in small[:: max(len(small) // KEPT, 1)]:
                if size <= KEPT_NBYTES:
                    entry = zipfile.ZipInfo(f"{run.name}/{name}")
                    archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    sys.exit(main())
