"""What ``doctor`` and ``bench`` say about the machine: processor, choices with their reasons, memory bandwidth.

Figures come from the native core and ``/proc``; nothing is guessed: what cannot be read is left out.
"""

from __future__ import annotations

import math
import os
import platform
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from cortiq import __version__
from cortiq.native import core
from cortiq.ops.linear import slow_dtypes
from cortiq.settings import Settings

PACKAGES = ("numpy", "tokenizers", "jinja2", "safetensors", "gguf", "huggingface-hub")
PROBE_NBYTES = 256 << 20  # beyond every cache this size of machine has


@dataclass(frozen=True, slots=True)
class Machine:
    """This machine and the choices made for it, each with its reason."""

    cpu: str
    isa: str
    isas: tuple[str, ...]
    isa_reason: str
    slow_dtypes: tuple[str, ...]
    threads: int
    threads_reason: str
    mode: str
    mode_reason: str
    home: Path
    home_reason: str
    versions: dict[str, str]

    def document(self, rates: dict[int, float]) -> dict[str, Any]:
        """The same as JSON; ``rates`` maps thread counts to bytes read a second."""
        return {
            "cpu": self.cpu,
            "isa": {"chosen": self.isa, "reason": self.isa_reason, "supported": list(self.isas)},
            "decode_to_scratch": list(self.slow_dtypes),
            "threads": {"chosen": self.threads, "reason": self.threads_reason},
            "mode": {"chosen": self.mode, "reason": self.mode_reason},
            "memory": [{"threads": n, "bytes_per_second": round(rate)} for n, rate in rates.items()],
            "home": {"path": str(self.home), "reason": self.home_reason},
            "versions": self.versions,
        }


def examine() -> Machine:
    """Read the machine and the settings. Raises NativeMissing without the native core, UsageError for a bad setting."""
    settings = Settings.load()
    isas = tuple(core.supported_isas())
    if settings.isa:
        isa, isa_reason = settings.isa, "CORTIQ_ISA"
    else:
        isa, isa_reason = core.best_isa(), "the best this processor runs"
    usable = core.usable_cpus()
    return Machine(
        cpu=core.cpu_model_name(),
        isa=isa,
        isas=isas,
        isa_reason=isa_reason if isa in isas else f"{isa_reason}, but this processor lacks it",
        slow_dtypes=slow_dtypes(isa) if isa in isas else (),
        threads=settings.threads or usable,
        threads_reason="CORTIQ_THREADS" if settings.threads else threads_reason(usable),
        mode=settings.mode,
        mode_reason=_origin("CORTIQ_MODE"),
        home=settings.home,
        home_reason=_origin("CORTIQ_HOME", "XDG_CACHE_HOME"),
        versions=_versions(),
    )


def threads_reason(usable: int) -> str:
    """Why ``usable`` processors are used: what the machine has, the affinity mask allows and the cgroup pays for."""
    facts = [f"{os.cpu_count()} processors"]
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if allowed != os.cpu_count():
        facts.append(f"the affinity mask allows {allowed}")
    if allowed is not None and usable < allowed:
        facts.append(f"the cgroup quota pays for {usable}")
    return ", ".join(facts)


def read_bandwidth(threads: int, *, passes: int = 5) -> float:
    """Bytes a second that ``threads`` threads read from memory: the best of ``passes`` passes over 256 MiB."""
    import numpy as np

    block = np.ones(PROBE_NBYTES, dtype=np.uint8)
    best = math.inf
    for _ in range(passes):
        best = min(best, core.read_seconds(block, threads))
    return PROBE_NBYTES / best


def _origin(*names: str) -> str:
    return next((name for name in names if os.environ.get(name)), "default")


def _versions() -> dict[str, str]:
    found = {"cortiq": __version__, "python": platform.python_version(), "system": platform.platform()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
