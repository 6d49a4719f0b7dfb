"""Llama: pre-norm, grouped-query attention, SwiGLU (SPEC 2). GGUFs of Mistral models name this architecture too."""

from types import MappingProxyType

from cortiq.convert.families.base import PRE_NORM_LAYER, Family, qkv_bias

LLAMA = Family(
    name="llama",
    model_types=("llama",),
    gguf_architectures=("llama",),
    layer_rules=PRE_NORM_LAYER + qkv_bias(optional=True),
    gguf_permuted_heads=True,
    defaults=MappingProxyType(
        {"max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu"}
    ),
    harmless=frozenset(["attention_bias", "is_llama_config", "pretraining_tp"]),
    neutral=MappingProxyType({"mlp_bias": (False, None), "rope_interleaved": (False, None)}),
)
