"""From what a user calls a model to a file: a path, a known name, a Hugging Face repository, folder or GGUF.

What is no .cmf file yet is converted once and kept below CORTIQ_HOME; the name of a kept file says what it was made
from, so that a changed source is converted again.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cortiq.cli.console import Console, human_bytes
from cortiq.errors import UsageError
from cortiq.settings import Settings

if TYPE_CHECKING:
    from cortiq.engine.model import Model


def resolve(model: str, quant: str, console: Console) -> Path:
    """The .cmf file that ``model`` means, made if it has to be, with a line about each thing done.

    Raises UsageError.model for a name that means nothing, UsageError.remote for a URL, and what downloading and
    converting raise.
    """
    from cortiq.container.location import check_local

    check_local(model, "running a model")
    path = Path(model).expanduser()
    if path.is_file() and not is_gguf(path):
        return path
    from cortiq.quantize import parse_dtype

    dtype = parse_dtype(quant)
    kept = kept_file(model, dtype)
    if kept.exists():
        console.detail(f"{model}: {kept}")
        return kept
    return make(model, dtype, kept, console)


def make(model: str, dtype: str, output: Path, console: Console, *, force: bool = False) -> Path:
    """Bring the source of ``model`` and convert it to ``output``."""
    from cortiq.convert import ConvertOptions, convert
    from cortiq.native import core

    source, origin = source_of(model, console)
    output.parent.mkdir(parents=True, exist_ok=True)
    threads = Settings.load().threads or core.usable_cpus()
    options = ConvertOptions(quant=dtype, threads=threads, force=force, source_model=origin)
    begun = time.perf_counter()
    with console.progress(f"converting {source.name} to {dtype}") as progress:
        receipt = convert(source, output, options, progress=progress.update)
    seconds = time.perf_counter() - begun
    console.note(f"converted {source.name} to {dtype} in {seconds:.1f} s: {output} ({human_bytes(receipt.bytes_out)})")
    for warning in receipt.warnings:
        console.note(f"note: {warning}")
    return output


def source_of(model: str, console: Console) -> tuple[Path, str]:
    """The checkpoint that ``model`` means and what a file made of it says it was made from.

    A folder or a GGUF file is what it is, without its path; a name is downloaded and says from where.

    Raises UsageError.model for a name that means nothing, NetworkError for a download that fails.
    """
    path = Path(model).expanduser()
    if path.exists():
        return path, path.resolve().name
    from cortiq.convert import known

    with console.progress(f"downloading {model}") as progress:
        source = known.resolve(model, Settings.load().home, progress.update, console.note)
    return source.path, source.origin


def readable_file(model: str) -> Path | str:
    """What to open to look at ``model``: a URL as it is, else its file. Raises UsageError.model."""
    from cortiq.container.location import is_url

    return model if is_url(model) else existing_file(model)


def existing_file(model: str) -> Path:
    """The .cmf file ``model`` means: a path, or a name whose file is kept.

    Raises UsageError.model, and UsageError.remote for a URL.
    """
    from cortiq.container.location import check_local

    check_local(model, "this command")
    path = Path(model).expanduser()
    if path.exists():
        return path
    folder = models_folder()
    kept = sorted(folder.glob("*.cmf")) if folder.is_dir() else []
    found = [p for p in kept if p.stem == model or p.stem.rpartition("-")[0] == _file_name(model)]
    if not found:
        names = ", ".join(p.stem for p in kept)
        raise UsageError(f"there is no file {model}" + (f"; kept models are {names}" if kept else ""), code="model")
    return found[0]


def kept_file(model: str, dtype: str) -> Path:
    """Where the conversion of ``model`` is kept."""
    path = Path(model).expanduser()
    if not path.exists():
        return models_folder() / f"{_file_name(model)}-{dtype}.cmf"
    return models_folder() / f"{_file_name(path.resolve().stem)}-{_fingerprint(path)}-{dtype}.cmf"


def models_folder() -> Path:
    return Settings.load().home / "models"


def is_gguf(path: Path) -> bool:
    """Whether a file starts as a GGUF does."""
    with path.open("rb") as stream:
        return stream.read(4) == b"GGUF"


def load_model(path: Path, given: Mapping[str, Any], console: Console) -> Model:
    """The engine over ``path``, with the execution options of the command line."""
    from cortiq.engine.model import load

    settings: dict[str, Any] = {name: given.get(name) for name in ("mode", "threads", "isa", "context")}
    model = load(path, **settings)
    console.detail(f"{model!r}")
    return model


def engine_facts(model: Model) -> dict[str, Any]:
    """How ``model`` computes."""
    info = model.info
    return {"isa": info.isa, "mode": info.mode, "threads": info.threads, "context": info.context}


def _file_name(model: str) -> str:
    return re.sub(r"[^\w.-]+", "--", model)


def _fingerprint(path: Path) -> str:
    """Changes when the source does: path, sizes and times of change, not the content."""
    digest = hashlib.sha256()
    for file in _files(path.resolve()):
        facts = file.stat()
        digest.update(f"{file}\0{facts.st_size}\0{facts.st_mtime_ns}\0".encode(errors="surrogateescape"))
    return digest.hexdigest()[:8]


def _files(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from sorted(p for p in path.iterdir() if p.is_file())
    else:
        yield path
