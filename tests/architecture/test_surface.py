"""What a package offers is what its ``__all__`` says, and importing it is light."""

from __future__ import annotations

import importlib
import os
import resource
import subprocess
import sys
from pathlib import Path
from types import FunctionType

import pytest

import cortiq

SOURCE = Path(cortiq.__file__).parent
PACKAGES = sorted(
    ".".join(["cortiq", *p.parent.relative_to(SOURCE).parts]) for p in SOURCE.rglob("__init__.py") if p.parent != SOURCE
)
HEAVY = {
    "torch",
    "transformers",
    "tokenizers",
    "huggingface_hub",
    "gguf",
    "jinja2",
    "safetensors",
    "numpy",
    "ml_dtypes",
}


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_are_listed(package: str) -> None:
    module = importlib.import_module(package)
    assert hasattr(module, "__all__"), "needs an explicit __all__"
    assert len(set(module.__all__)) == len(module.__all__)
    for name in module.__all__:
        getattr(module, name)
    bound = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and isinstance(value, type | FunctionType)
    }
    lazy = hasattr(module, "__getattr__")
    public = set(module.__all__)
    extra = {name for name in bound - public if getattr(vars(module)[name], "__module__", "").startswith(package)}
    assert not extra
    assert lazy or not {n for n in public if not n.startswith("_")} - set(vars(module))


def test_the_root_offers_what_it_lists() -> None:
    assert dir(cortiq) == sorted(cortiq.__all__)
    for name in cortiq.__all__:
        assert getattr(cortiq, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = cortiq.no_such_name


def test_the_version_is_one() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert f'version = "{cortiq.__version__}"' in text


def modules_after(code: str) -> set[str]:
    """Top-level modules loaded after running ``code`` in a fresh interpreter."""
    probe = f"{code}\nimport sys\nsys.stderr.write(' '.join({{m.partition('.')[0] for m in sys.modules}}))"
    run = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True, env=environment(), timeout=60
    )
    return set(run.stderr.split())


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(SOURCE.parent)}


def test_import_is_light() -> None:
    assert not modules_after("import cortiq") & {*HEAVY, "click"}


def test_version_is_light() -> None:
    assert not modules_after("from cortiq.cli.main import main; main(['--version'])") & {*HEAVY, "click"}


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["bench", "--help"], ["completion", "bash"]])
def test_help_is_light(arguments: list[str]) -> None:
    assert not modules_after(f"from cortiq.cli.main import main; main({arguments})") & HEAVY


def test_version_answers_within_100_ms_of_processor_time() -> None:
    def once() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "cortiq", "--version"], check=True, env=environment(), timeout=60,
                       stdout=subprocess.DEVNULL)  # fmt: skip
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(once() for _ in range(5)) < 0.1
