"""Mistral: a Llama whose every layer attends to a sliding window when the configuration names one (SPEC 2)."""

from types import MappingProxyType

from cortiq.convert.families.base import PRE_NORM_LAYER, Family

MISTRAL = Family(
    name="mistral",
    model_types=("mistral",),
    gguf_architectures=(),
    layer_rules=PRE_NORM_LAYER,
    windows="all",
    defaults=MappingProxyType(
        {
            "max_position_embeddings": 131072,
            "num_key_value_heads": 8,
            "rms_norm_eps": 1e-6,
            "rope_theta": 10000.0,
            "sliding_window": 4096,
            "hidden_act": "silu",
        }
    ),
)
