"""From an open file to a native plan that is ready to step (SPEC 2, 3)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cortiq.container.skill_file import refuse_to_run
from cortiq.errors import Shard, UsageError
from cortiq.model.capabilities import describe
from cortiq.model.facts import ModelFacts
from cortiq.model.plan_builder import PlanBuilder
from cortiq.model.task_mask import check_default_mask
from cortiq.native import core
from cortiq.settings import MODES

if TYPE_CHECKING:
    from cortiq._native import Plan
    from cortiq.container import File

DEFAULT_CONTEXT = 8192
DEFAULT_MAX_TOKENS = 512


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """How a plan is to run.

    ``isa`` None is the best there is, ``threads`` None all processors allowed to the process. ``context`` None is
    what the model was made for, at most 8192 positions. ``max_tokens`` rows fit in one step.
    """

    isa: str | None = None
    mode: str = "fast"
    threads: int | None = None
    context: int | None = None
    max_tokens: int = DEFAULT_MAX_TOKENS
    max_sequences: int = 1


@dataclass(frozen=True, slots=True)
class PlanInfo:
    """What a plan computes and how; the options with every default filled in."""

    facts: ModelFacts
    isa: str
    mode: str
    threads: int
    context: int
    max_tokens: int
    max_sequences: int


@dataclass(frozen=True, slots=True)
class LoadedPlan:
    """A finished plan and its description. The plan keeps the file's mapping alive, not the file open."""

    plan: Plan
    info: PlanInfo


def build_plan(file: File, options: PlanOptions) -> LoadedPlan:
    """Describes, checks and builds.

    Raises UnsupportedArch (also for a skill file, and for a default mask that restricts the model), Shard.part for one
    file of a set opened alone, MissingTensor and ShapeMismatch by name, UsageError for options that cannot be meant,
    NativeMissing without the native core, UnsupportedFeature for a dtype without a kernel.
    """
    refuse_to_run(file)
    _refuse_part(file)
    check_default_mask(file)
    info = _resolve(describe(file.arch, file.tensors), options)
    plan = core.Plan(
        isa=info.isa,
        mode=info.mode,
        threads=info.threads,
        max_tokens=info.max_tokens,
        max_outputs=info.max_tokens,
        context=info.context,
        max_sequences=info.max_sequences,
        kv_dtype="f32" if info.mode == "exact" else "f16",
    )
    PlanBuilder(plan, file, info.facts).build()
    return LoadedPlan(plan, info)


def _refuse_part(file: File) -> None:
    shard = file.header.shard
    if shard is not None and shard.count > 1 and not file.parts:
        raise Shard(
            "one file of a set is not a model",
            code="part",
            path=str(file.path),
            expected=f"all {shard.count} files",
            found=f"shard {shard.no} of {shard.count}",
        )


def _resolve(facts: ModelFacts, options: PlanOptions) -> PlanInfo:
    info = PlanInfo(
        facts=facts,
        isa=core.best_isa() if options.isa is None else options.isa,
        mode=options.mode,
        threads=core.usable_cpus() if options.threads is None else options.threads,
        context=min(facts.max_positions, DEFAULT_CONTEXT) if options.context is None else options.context,
        max_tokens=options.max_tokens,
        max_sequences=options.max_sequences,
    )
    if info.mode not in MODES:
        raise UsageError(f"mode must be one of {', '.join(MODES)}", code="mode", found=info.mode)
    for name in ("threads", "context", "max_tokens", "max_sequences"):
        if getattr(info, name) < 1:
            raise UsageError(f"{name} must be at least 1", code=name, found=getattr(info, name))
    if info.context > facts.max_positions:
        raise UsageError(
            "the model was not made for such a context",
            code="context",
            expected=f"at most {facts.max_positions}",
            found=info.context,
        )
    return replace(info, max_tokens=min(info.max_tokens, info.context))
