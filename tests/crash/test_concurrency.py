"""Several processes append, read and compact one file at once: nothing is lost, nothing invalid is seen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import cortiq
from builders.cmf import two_layers
from builders.operations import tensor
from cortiq.container import File, grow, open_single, verify
from cortiq.container.hashing import hash64

TESTS = Path(__file__).parents[1]


def start(work: str, path: Path, who: str, count: int) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(Path(cortiq.__file__).parents[1])])}
    command = [sys.executable, str(TESTS / "builders" / "crowd.py"), work, str(path), who, str(count)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment)


def test_appenders_readers_and_a_compactor(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    long = request.config.getoption("--long")
    people, appends, reads, compactions = (4, 100, 1000, 3) if long else (2, 15, 100, 2)
    path = two_layers().save(tmp_path / "model.cmf")
    crowd = {f"a{i}": start("append", path, f"a{i}", appends) for i in range(people)}
    crowd |= {f"r{i}": start("read", path, f"r{i}", reads) for i in range(people)}
    crowd |= {"c": start("compact", path, "c", compactions)}
    said = {}
    for who, process in crowd.items():
        out, err = process.communicate()
        assert process.returncode == 0, err
        said[who] = json.loads(out)
    with open_single(path) as file:
        final = list(file)
        assert verify(file, require_hashes=True).ok
        registry = [skill["id"] for skill in file.header["skills"]]
    before = [str(t.name) for t in two_layers().tensors]
    added = [name for who in said if who.startswith("a") for name in said[who]]
    assert final[: len(before)] == before
    assert sorted(final[len(before) :]) == sorted(added)
    assert registry == final[len(before) :]  # no registry record was lost, and both are in the order of the commits
    for who, names in said.items():
        if who.startswith("r"):
            assert final[: len(names)] == names
        elif who.startswith("a"):
            assert [name for name in final if name.startswith(f"{who}-")] == names


def test_threads_that_open_touch_and_close(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """While another one lets the file grow, each file object is a whole version of its own, also once it is closed."""
    threads, rounds = (8, 500) if request.config.getoption("--long") else (8, 100)
    path = two_layers().save(tmp_path / "model.cmf")

    def open_touch_close(seed: int) -> int:
        names: list[str] = []
        for i in range(rounds):
            with open_single(path) as file:
                assert list(file)[: len(names)] == names
                names = list(file)
                kept = file[names[(seed + i) % len(names)]]
                touch(file, names[(seed * 7 + i) % len(names)])
            assert hash64(kept.raw) == kept.entry.hash
        return len(names)

    def touch(file: File, name: str) -> None:
        assert hash64(file[name].raw) == file.tensors[name].hash
        file[name].numpy()

    before = len(list(Path("/proc/self/fd").iterdir()))
    with ThreadPoolExecutor(threads + 1) as pool:
        found = [pool.submit(open_touch_close, seed) for seed in range(threads)]
        pool.submit(lambda: [grow(path, add=[tensor(f"t{i}", 500 + i)]) for i in range(rounds // 4)]).result()
        seen = [future.result() for future in found]
    assert max(seen) > len(two_layers().tensors)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
