"""Gemma 3, the language model: four norms a layer, query and key norms, windows with their own base (SPEC 2)."""

from types import MappingProxyType

from cortiq.convert.families.base import SANDWICH_LAYER, Family

GEMMA3 = Family(
    name="gemma3",
    model_types=("gemma3_text", "gemma3"),
    gguf_architectures=("gemma3",),
    layer_rules=SANDWICH_LAYER,
    norm_style="gemma",
    gguf_norm_offset=1.0,
    windows="pattern",
    embed_scaled=True,
    defaults=MappingProxyType(
        {
            "vocab_size": 262208,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "max_position_embeddings": 131072,
            "rms_norm_eps": 1e-6,
            "rope_theta": 1_000_000.0,
            "rope_local_base_freq": 10000.0,
            "query_pre_attn_scalar": 256,
            "sliding_window": 4096,
            "sliding_window_pattern": 6,
            "tie_word_embeddings": True,
            "hidden_act": "gelu_pytorch_tanh",
        }
    ),
    harmless=frozenset(["cache_implementation"]),
    neutral=MappingProxyType(
        {
            "attention_bias": (False,),
            "attn_logit_softcapping": (None,),
            "use_bidirectional_attention": (False, None),
        }
    ),
    outer=frozenset(
        ["vision_config", "boi_token_index", "eoi_token_index", "image_token_index", "mm_tokens_per_image"]
    ),
    left_out=("vision_tower.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector."),
)
