"""Fuzzes one target, led by the coverage of the package: ``python tests/fuzz/guided.py TARGET [options of libFuzzer]``.

Needs atheris, which is not among the test dependencies.
"""

from __future__ import annotations

import random
import sys
import warnings
from pathlib import Path

import atheris

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / folder) for folder in ("src", "tests", "python")]

with atheris.instrument_imports(
    include=["cortiq.container", "cortiq.layouts", "cortiq.convert"],
    enable_loader_override=False,
):
    from fuzz.targets import TARGETS

UNGUIDED = 0.2


def main() -> None:
    warnings.simplefilter("error")
    target = TARGETS[sys.argv[1]]
    seeds = target.seeds()

    def mutator(data: bytes, most: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if rng.random() < UNGUIDED and len(data) > 1:
            return bytes(atheris.Mutate(data, most))
        return target.change(data if len(data) > 1 else rng.choice(seeds), rng)[:most]

    # One change is several damages already.
    atheris.Setup([sys.argv[0], "-mutate_depth=1", *sys.argv[2:]], target.run, custom_mutator=mutator)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
