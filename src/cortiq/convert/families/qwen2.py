"""Qwen2 and Qwen2.5: a Llama with biases on query, key and value (SPEC 2)."""

from types import MappingProxyType

from cortiq.convert.families.base import PRE_NORM_LAYER, Family, qkv_bias

QWEN2 = Family(
    name="qwen2",
    model_types=("qwen2",),
    gguf_architectures=("qwen2",),
    layer_rules=PRE_NORM_LAYER + qkv_bias(optional=False),
    windows="upper",
    defaults=MappingProxyType(
        {
            "max_position_embeddings": 32768,
            "num_key_value_heads": 32,
            "rms_norm_eps": 1e-6,
            "rope_theta": 10000.0,
            "sliding_window": 4096,
            "use_sliding_window": False,
            "max_window_layers": 28,
            "hidden_act": "silu",
        }
    ),
    neutral=MappingProxyType({"use_mrope": (False, None)}),
)
