"""The one place that reads ``CORTIQ_*`` from the environment. A malformed value is an error, never ignored."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path

from cortiq.errors import UsageError

ISAS = ("scalar", "avx2", "avx512")
MODES = ("fast", "exact")


@dataclass(frozen=True, slots=True)
class Settings:
    """What the environment says.

    ``home``     CORTIQ_HOME     folder for converted models (default: ``cortiq`` in the user's cache folder)
    ``isa``      CORTIQ_ISA      instruction set of the kernels: scalar, avx2, avx512 (default: the best there is)
    ``threads``  CORTIQ_THREADS  number of worker threads, caller included (default: the processors allowed to us)
    ``mode``     CORTIQ_MODE     numeric mode: fast or exact (default: fast)
    ``timeout``  CORTIQ_TIMEOUT  seconds the server of a remote file may be silent (default: 20)
    """

    home: Path
    isa: str | None = None
    threads: int | None = None
    mode: str = "fast"
    timeout: int = 20

    @classmethod
    def load(cls, environ: dict[str, str] | None = None) -> Settings:
        """Read the environment.

        Raises UsageError for a value that cannot be meant, and for a ``CORTIQ_*`` name that does not exist.
        """
        env = dict(os.environ) if environ is None else environ
        known = {f"CORTIQ_{field.name.upper()}" for field in fields(cls)}
        for name in env:
            if name.startswith("CORTIQ_") and name not in known:
                raise UsageError(f"unknown setting {name}; known are {', '.join(sorted(known))}", code="setting")
        return cls(
            home=_home(env),
            isa=_choice(env, "CORTIQ_ISA", ISAS),
            threads=_positive(env, "CORTIQ_THREADS"),
            mode=_choice(env, "CORTIQ_MODE", MODES) or "fast",
            timeout=_positive(env, "CORTIQ_TIMEOUT") or 20,
        )


def _home(env: dict[str, str]) -> Path:
    if value := env.get("CORTIQ_HOME"):
        return Path(value).expanduser()
    cache = env.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path("~/.cache").expanduser()) / "cortiq"


def _choice(env: dict[str, str], name: str, allowed: tuple[str, ...]) -> str | None:
    value = env.get(name)
    if value and value not in allowed:
        raise UsageError(f"{name} must be one of {', '.join(allowed)}", code="setting", found=value)
    return value or None


def _positive(env: dict[str, str], name: str) -> int | None:
    value = env.get(name)
    if not value:
        return None
    if not value.isascii() or not value.isdigit() or not 1 <= int(value) <= 1024:
        raise UsageError(f"{name} must be a number from 1 to 1024", code="setting", found=value)
    return int(value)
