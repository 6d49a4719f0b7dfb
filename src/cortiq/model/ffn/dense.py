"""The gated feed-forward network, down(act(gate x) * (up x)): facts from header and directory (SPEC 2), plan ops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cortiq.errors import ShapeMismatch, UnsupportedArch
from cortiq.model.facts import Activation, DenseFacts
from cortiq.model.weights import NO_VECTOR, Weights

if TYPE_CHECKING:
    from cortiq.container import Arch
    from cortiq.model.plan_builder import PlanBuilder

TENSORS = frozenset(f"mlp.{part}_proj.weight" for part in ("gate", "up", "down"))


def read_dense(arch: Arch, weights: Weights, layer: int) -> DenseFacts:
    """Facts of layer ``layer``. The width is that of ``gate_proj``: a defragmented file (SPEC 11) may have fewer
    neurons than ``arch.intermediate_size`` in some layers.

    Raises MissingTensor and ShapeMismatch by tensor, UnsupportedArch for an activation.
    """
    prefix = f"model.layers.{layer}.mlp."
    gate = f"{prefix}gate_proj.weight"
    shape = weights.shape(gate)
    if len(shape) != 2:
        raise ShapeMismatch(
            "must be a matrix",
            code="shape",
            tensor=gate,
            expected=str([arch.intermediate_size, arch.hidden_size]),
            found=str(list(shape)),
        )
    width = shape[0]
    weights.matrix(gate, width, arch.hidden_size)
    weights.matrix(f"{prefix}up_proj.weight", width, arch.hidden_size)
    weights.matrix(f"{prefix}down_proj.weight", arch.hidden_size, width)
    return DenseFacts(prefix=prefix, width=width, activation=activation(arch))


def activation(arch: Arch) -> Activation:
    """``arch.hidden_act``. Raises UnsupportedArch when it is neither silu nor gelu_tanh."""
    match arch.hidden_act:
        case "silu":
            return "silu"
        case "gelu_tanh":
            return "gelu_tanh"
    raise UnsupportedArch(
        "unknown activation",
        code="hidden_act",
        section="header.arch.hidden_act",
        expected="silu or gelu_tanh",
        found=arch.hidden_act,
    )


def emit_dense(builder: PlanBuilder, facts: DenseFacts, inp: int, out: int, *, accumulate: bool) -> None:
    """Ops from the normed input buffer to ``out``; ``accumulate`` adds to it instead of replacing it."""
    hidden = builder.buffer("ffn", facts.width)
    builder.plan.glu(
        inp=inp,
        gate=builder.matrix(f"{facts.prefix}gate_proj.weight"),
        up=builder.matrix(f"{facts.prefix}up_proj.weight"),
        out=hidden,
        act=facts.activation,
    )
    down = builder.matrix(f"{facts.prefix}down_proj.weight")
    builder.plan.linear(inp=hidden, segments=[(down, NO_VECTOR, out, 0)], accumulate=accumulate)
