"""Opening and verifying a CMF file: milliseconds to open, blob pages touched, verify against a raw read.

    python bench/load.py [--megabytes 256] [--rounds 15] [--threads 2] [--folder DIR]

Opening is timed on files of 300 and of 20,000 tensors, headers and directories hashed. Verifying is a ratio: its
rounds alternate with rounds that only read the same mapping, with as many threads, so that a busy machine slows both.
A file with SHA-256 digests is measured against SHA-256 alone, again with as many threads.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import mmap
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

from cortiq.container import File, TensorSpec, open_single, verify, write_file
from cortiq.container.hashing import native

F16, Q8_ROW = 1, 3
_BLOCK = 1 << 24
Words = np.ndarray[tuple[int, ...], np.dtype[np.uint64]]
Reader = Callable[[Words, int], None]
_ROLES = ("gate_proj", "up_proj", "down_proj")


def main() -> None:
    options = _options()
    threads = options.threads
    print(f"threads {threads}, hash64 {'native' if native else 'NumPy'}, {os.cpu_count()} processors")
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for count, target in ((300, 5.0), (20_000, 60.0)):
            path = Path(folder) / f"{count}.cmf"
            _write_small(path, count)
            times = [_milliseconds(partial(_open, path)) for _ in range(4 * options.rounds)]
            print(f"open, {count:6} tensors   {_spread(times, 'ms')}   target <= {target:g} ms")
        path = Path(folder) / "large.cmf"
        _write_large(path, options.megabytes, digests=False)
        print(f"blob pages in memory after open: {_pages_after_open(path)}")
        with open_single(path) as file:
            _verify_ratio(file, threads, options.rounds, ("raw read", _read, 0.95))
        _write_large(path, options.megabytes, digests=True)
        with open_single(path) as file:
            _verify_ratio(file, threads, options.rounds, ("sha256", _sha256, 0.8))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--folder")
    return parser.parse_args()


def _header(layers: int, experts: int = 0) -> dict[str, object]:
    arch: dict[str, object] = {
        "arch_name": "bench",
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_layers": layers,
        "num_attention_heads": 16,
        "num_kv_heads": 8,
        "head_dim": 64,
        "vocab_size": 32_000,
        "layer_types": ["FullAttention"] * layers,
        "rms_norm_eps": 1e-6,
        "norm_style": "qwen",
        "max_position_embeddings": 4096,
    }
    if experts:
        arch["moe"] = {"num_experts": experts, "top_k": 8, "moe_intermediate_size": 64}
    return {"arch": arch, "quant_type": "Q8_ROW", "tokenizer_config": {"chat_template": "{{ messages }}" * 200}}


def _write_small(path: Path, count: int) -> None:
    layers = 28 if count < 1000 else 48
    each = -(-count // layers)

    def tensors() -> Iterator[TensorSpec]:
        for i in range(count):
            name = f"model.layers.{i // each}.mlp.experts.{i % each // 3}.{_ROLES[i % 3]}.weight"
            if i % 9 == 8:
                yield TensorSpec(name, F16, (64,), 128, [bytes(128)])
            else:
                rows = 8 if i % 3 else 16
                yield TensorSpec(name, Q8_ROW, (rows, 32), rows * 34, [bytes(rows * 34)])

    write_file(path, _header(layers, each), tensors(), vocab=b"{}")


def _write_large(path: Path, megabytes: int, *, digests: bool) -> None:
    """One embedding, then layers of matrices of 1 to 8 MB and norms."""
    block = np.random.default_rng(1).integers(0, 256, 1 << 22, np.uint8).tobytes()

    def chunks(nbytes: int) -> Iterator[bytes]:
        for at in range(0, nbytes, len(block)):
            yield block[: nbytes - at]

    def tensor(name: str, rows: int) -> TensorSpec:
        return TensorSpec(name, Q8_ROW, (rows, 1024), rows * 1026, chunks(rows * 1026))

    total = megabytes << 20
    specs = [tensor("model.embed_tokens.weight", total // 5 // 1026)]
    layers, written = 0, specs[0].nbytes
    while written < total:
        for part, rows in (("q_proj", 1024), ("k_proj", 512), ("o_proj", 1024), ("gate", 4096), ("up", 8192)):
            specs.append(tensor(f"model.layers.{layers}.{part}.weight", rows))
            written += specs[-1].nbytes
        specs.append(TensorSpec(f"model.layers.{layers}.norm.weight", F16, (1024,), 2048, chunks(2048)))
        layers += 1
    write_file(path, _header(layers), specs, vocab=b"{}", digests=digests)


def _pages_after_open(path: Path) -> str:
    """Pages of the blob in the page cache after opening a file that was dropped from it."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)
    before = _resident(path)
    with open_single(path) as file:
        after = _resident(path, file.envelope.data.offset)
    return f"{after} (before opening {before} of the whole file), target 0"


def _resident(path: Path, start: int = 0) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        address = np.frombuffer(mapped, np.uint8).__array_interface__["data"][0]
        pages = np.zeros(-(-len(mapped) // mmap.PAGESIZE), np.uint8)
        vector = ctypes.c_void_p(pages.ctypes.data)
        if libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(len(mapped)), vector):
            raise OSError(ctypes.get_errno(), "mincore")
    return int((pages[start // mmap.PAGESIZE :] & 1).sum())


def _verify_ratio(file: File, threads: int, rounds: int, against: tuple[str, Reader, float]) -> None:
    """``against`` is what the rounds alternate with: its name, how it goes over the words, the ratio aimed at."""
    name, run, target = against
    nbytes = file.envelope.data.nbytes
    words = np.frombuffer(file.section("data"), np.uint8)[: nbytes // 8 * 8].view(np.uint64)
    run(words, threads)
    verify(file, threads=threads)
    base = [_seconds(lambda: run(words, threads))]
    verified: list[float] = []
    for _ in range(rounds):
        verified.append(_seconds(lambda: _checked(file, threads)))
        base.append(_seconds(lambda: run(words, threads)))
    ratios = [(before + after) / 2 / took for before, after, took in zip(base, base[1:], verified, strict=False)]
    print(f"{name + f', {nbytes >> 20} MB':24} {_spread([nbytes / took / 1e9 for took in base], 'GB/s')}")
    print(f"{'verify':24} {_spread([nbytes / took / 1e9 for took in verified], 'GB/s')}")
    print(f"{'verify / ' + name:24} {_spread(ratios, '')}   target >= {target:g}")


def _open(path: Path) -> None:
    open_single(path).close()


def _checked(file: File, threads: int) -> None:
    report = verify(file, threads=threads)
    if not report.ok:
        raise SystemExit(f"the file written here does not verify: {report.problems[0]}")


def _read(words: Words, threads: int) -> None:
    """Read every word once, in blocks shared by the threads."""
    step = _BLOCK // 8
    blocks = [words[at : at + step] for at in range(0, len(words), step)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(np.bitwise_xor.reduce, blocks))


def _sha256(words: Words, threads: int) -> None:
    """SHA-256 of as many equal parts as there are threads."""
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(hashlib.sha256, np.array_split(words, threads)))


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _milliseconds(run: Callable[[], object]) -> float:
    return 1000 * _seconds(run)


def _spread(values: list[float], unit: str) -> str:
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"median {middle:8.3f} {unit}  (min {low:.3f}, max {high:.3f}, n {len(values)})"


if __name__ == "__main__":
    main()
