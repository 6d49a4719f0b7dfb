"""Turns :class:`ModelFacts` into the op list of a native plan: matrices by address, norms and biases as f32 copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cortiq.errors import CortiqError
from cortiq.layouts import layout
from cortiq.model.facts import EMBEDDING, FINAL_NORM, LayerFacts, ModelFacts, RopeFacts
from cortiq.model.ffn.dense import emit_dense
from cortiq.model.mixers.attention import emit_attention

if TYPE_CHECKING:
    from cortiq._native import Plan
    from cortiq.container import File


class PlanBuilder:
    """Handles of one plan under construction. Each tensor, vector and buffer is registered once."""

    def __init__(self, plan: Plan, file: File, facts: ModelFacts) -> None:
        self.plan = plan
        self.facts = facts
        self._file = file
        self._matrices: dict[str, int] = {}
        self._vectors: dict[str, int] = {}
        self._frequencies: dict[tuple[float, ...], int] = {}
        self._buffers: dict[tuple[str, int], int] = {}

    def matrix(self, name: str) -> int:
        """Handle of a mapped 2-D tensor, its content checked. The plan keeps the mapping alive, or a copy of a payload
        whose order kernels cannot follow.

        Raises Parse and Bounds with the name of the tensor.
        """
        if name not in self._matrices:
            tensor = self._file[name]
            entry, kind = tensor.entry, layout(tensor.entry.dtype)
            try:
                tensor.validate()
            except CortiqError as error:
                error.tensor = name
                raise
            payload = kind.canonical(tensor.raw, entry.shape)
            copied = payload if isinstance(payload, np.ndarray) else None
            address = self._file.address(entry) if copied is None else copied.ctypes.data
            rows, cols = entry.shape
            self._matrices[name] = self.plan.tensor(
                owner=payload,
                dtype=entry.dtype,
                rows=rows,
                cols=cols,
                address=address,
                nbytes=entry.nbytes,
                limit=self._file.map_end(entry) if copied is None else address + copied.nbytes,
            )
        return self._matrices[name]

    def vector(self, name: str) -> int:
        """Handle of a tensor decoded to a vector of f32."""
        if name not in self._vectors:
            values = np.ascontiguousarray(self._file[name].numpy(), np.float32).reshape(-1)
            self._vectors[name] = self.plan.vector(values)
        return self._vectors[name]

    def frequencies(self, rope: RopeFacts) -> int:
        """Handle of a table of inverse frequencies."""
        key = rope.inverse_frequencies
        if key not in self._frequencies:
            self._frequencies[key] = self.plan.vector(np.asarray(key, np.float32))
        return self._frequencies[key]

    def buffer(self, role: str, width: int) -> int:
        """Handle of the activation buffer for ``role``; layers share it when their widths agree."""
        key = role, width
        if key not in self._buffers:
            self._buffers[key] = self.plan.buffer(width)
        return self._buffers[key]

    def norm(self, name: str, inp: int, out: int, *, accumulate: bool = False) -> None:
        """RMS norm with the model's eps and style; ``accumulate`` adds to ``out``."""
        self.plan.rmsnorm(
            inp=inp,
            out=out,
            weight=self.vector(name),
            eps=self.facts.norm_eps,
            plus_one=self.facts.norm_plus_one,
            accumulate=accumulate,
        )

    def build(self) -> None:
        """Emits the whole decoder and freezes the plan."""
        facts = self.facts
        h, x = self.buffer("residual", facts.hidden), self.buffer("normed", facts.hidden)
        self.plan.embed(out=h, weight=self.matrix(EMBEDDING), scale=facts.embed_scale)
        for layer in facts.layers:
            self._layer(layer, h, x)
        self.norm(FINAL_NORM, h, x)
        self.plan.logits(inp=x, weight=self.matrix(facts.head), softcap=facts.logit_softcap, scale=facts.logit_scale)
        self.plan.finish()

    def _layer(self, layer: LayerFacts, h: int, x: int) -> None:
        """Adds mixer and feed-forward network to the residual ``h``, a sandwich layer through a norm each."""
        part = self.buffer("part", self.facts.hidden) if layer.sandwich else h
        self.norm(f"{layer.prefix}input_layernorm.weight", h, x)
        emit_attention(self, layer.mixer, x, part, accumulate=not layer.sandwich, last=layer is self.facts.layers[-1])
        if layer.sandwich:
            self.norm(f"{layer.prefix}post_attention_layernorm.weight", part, h, accumulate=True)
        self.norm(layer.ffn_norm, h, x)
        emit_dense(self, layer.ffn, x, part, accumulate=not layer.sandwich)
        if layer.sandwich:
            self.norm(f"{layer.prefix}post_feedforward_layernorm.weight", part, h, accumulate=True)
