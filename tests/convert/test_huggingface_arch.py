"""config.json to ``arch``: configurations as they are published, what an absent key means, what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest

from cortiq.container.arch import read_arch
from cortiq.convert.families import family_of_model_type
from cortiq.convert.huggingface_arch import arch_of_config
from cortiq.errors import SourceError, UnsupportedArch

SMOLLM2 = {
    "architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 1,
    "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 576, "initializer_range": 0.04, "intermediate_size": 1536,
    "is_llama_config": True, "max_position_embeddings": 8192, "mlp_bias": False, "model_type": "llama",
    "num_attention_heads": 9, "num_hidden_layers": 30, "num_key_value_heads": 3, "pad_token_id": 2,
    "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_interleaved": False, "rope_scaling": None, "rope_theta": 100000,
    "tie_word_embeddings": True, "torch_dtype": "bfloat16", "transformers.js_config": {"dtype": "q4"},
    "transformers_version": "4.42.3", "use_cache": True, "vocab_size": 49152,
}  # fmt: skip
LLAMA32 = {
    "architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 128000,
    "eos_token_id": [128001, 128008, 128009], "head_dim": 64, "hidden_act": "silu", "hidden_size": 2048,
    "initializer_range": 0.02, "intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": False,
    "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8,
    "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0,
    "low_freq_factor": 1.0, "original_max_position_embeddings": 8192, "rope_type": "llama3"}, "rope_theta": 500000.0,
    "tie_word_embeddings": True, "torch_dtype": "bfloat16", "transformers_version": "4.45.0", "use_cache": True,
    "vocab_size": 128256,
}  # fmt: skip
MISTRAL = {
    "architectures": ["MistralForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
    "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336, "max_position_embeddings": 32768,
    "model_type": "mistral", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "sliding_window": 4096, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16", "transformers_version": "4.34.0", "use_cache": True, "vocab_size": 32000,
}  # fmt: skip
QWEN25 = {
    "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643, "eos_token_id": 151645,
    "hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02, "intermediate_size": 4864,
    "max_position_embeddings": 32768, "max_window_layers": 21, "model_type": "qwen2", "num_attention_heads": 14,
    "num_hidden_layers": 24, "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
    "sliding_window": 32768, "tie_word_embeddings": True, "torch_dtype": "bfloat16", "transformers_version": "4.43.1",
    "use_cache": True, "use_mrope": False, "use_sliding_window": False, "vocab_size": 151936,
}  # fmt: skip
GEMMA3 = {
    "architectures": ["Gemma3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
    "attn_logit_softcapping": None, "bos_token_id": 2, "cache_implementation": "hybrid", "eos_token_id": [1, 106],
    "final_logit_softcapping": None, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1152,
    "initializer_range": 0.02, "intermediate_size": 6912, "max_position_embeddings": 32768,
    "model_type": "gemma3_text", "num_attention_heads": 4, "num_hidden_layers": 26, "num_key_value_heads": 1,
    "pad_token_id": 0, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000,
    "rope_scaling": None, "rope_theta": 1000000, "sliding_window": 512, "sliding_window_pattern": 6,
    "torch_dtype": "bfloat16", "transformers_version": "4.50.0.dev0", "use_cache": True, "vocab_size": 262144,
}  # fmt: skip
GEMMA3_VISION = {
    "architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255999, "eoi_token_index": 256000,
    "eos_token_id": [1, 106], "image_token_index": 262144, "initializer_range": 0.02, "mm_tokens_per_image": 256,
    "model_type": "gemma3", "text_config": {"hidden_size": 2560, "intermediate_size": 10240,
    "model_type": "gemma3_text", "num_hidden_layers": 34, "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
    "sliding_window": 1024}, "torch_dtype": "bfloat16", "transformers_version": "4.50.0.dev0",
    "vision_config": {"hidden_size": 1152, "model_type": "siglip_vision_model"},
}  # fmt: skip
PUBLISHED = {"smollm2": SMOLLM2, "llama 3.2": LLAMA32, "mistral": MISTRAL, "qwen2.5": QWEN25, "gemma3": GEMMA3}
FULL, SLIDING = "FullAttention", "SlidingAttention"


def arch(config: dict[str, Any], **changes: Any) -> dict[str, Any]:
    changed = {key: value for key, value in (config | changes).items() if value != "absent"}
    found = arch_of_config(changed, family_of_model_type(changed["model_type"]))
    read_arch(found, 0)
    return found


@pytest.mark.parametrize("config", [*PUBLISHED.values(), GEMMA3_VISION], ids=[*PUBLISHED, "gemma3 with vision"])
def test_published_configurations_are_understood(config: dict[str, Any]) -> None:
    assert arch(config)["arch_name"] == config["model_type"]


def test_plain_numbers() -> None:
    found = arch(SMOLLM2)
    assert found == {
        "arch_name": "llama", "hidden_size": 576, "intermediate_size": 1536, "num_layers": 30,
        "num_attention_heads": 9, "num_kv_heads": 3, "head_dim": 64, "vocab_size": 49152, "rms_norm_eps": 1e-05,
        "norm_style": "qwen", "tie_word_embeddings": True, "max_position_embeddings": 8192,
        "layer_types": [FULL] * 30, "rope_theta": 100000.0,
    }  # fmt: skip


def test_what_an_absent_key_means() -> None:
    found = arch(SMOLLM2, num_key_value_heads="absent", rope_theta="absent", tie_word_embeddings="absent")
    assert (found["num_kv_heads"], found["rope_theta"], found["tie_word_embeddings"]) == (9, 10000.0, False)
    assert arch(GEMMA3)["tie_word_embeddings"] is True
    assert arch(GEMMA3, tie_word_embeddings=False)["tie_word_embeddings"] is False
    assert arch(MISTRAL, num_key_value_heads="absent")["num_kv_heads"] == 8
    assert arch(LLAMA32, head_dim=None)["head_dim"] == 64


def test_windows_of_mistral() -> None:
    assert arch(MISTRAL)["layer_types"] == [SLIDING] * 32
    assert arch(MISTRAL)["sliding_window"] == 4096
    assert arch(MISTRAL, sliding_window="absent")["sliding_window"] == 4096
    unlimited = arch(MISTRAL, sliding_window=None)
    assert unlimited["layer_types"] == [FULL] * 32
    assert "sliding_window" not in unlimited


def test_windows_of_qwen2() -> None:
    assert arch(QWEN25)["layer_types"] == [FULL] * 24
    windowed = arch(QWEN25, use_sliding_window=True, sliding_window=1024)
    assert windowed["layer_types"] == [FULL] * 21 + [SLIDING] * 3
    assert windowed["sliding_window"] == 1024
    assert arch(QWEN25, use_sliding_window=True, sliding_window=None)["layer_types"] == [FULL] * 24
    given = arch(QWEN25, use_sliding_window=True, layer_types=["sliding_attention"] * 2 + ["full_attention"] * 22)
    assert given["layer_types"] == [SLIDING] * 2 + [FULL] * 22
    with pytest.raises(SourceError, match="sliding_window"):
        arch(QWEN25, layer_types=["sliding_attention"] * 24)


@pytest.mark.parametrize("key", ["sliding_window_pattern", "_sliding_window_pattern"])
def test_gemma3_in_the_old_style(key: str) -> None:
    config = {name: value for name, value in GEMMA3.items() if name != "sliding_window_pattern"} | {key: 6}
    found = arch(config)
    assert found["layer_types"] == ([SLIDING] * 5 + [FULL]) * 4 + [SLIDING] * 2
    assert (found["sliding_window"], found["rope_theta"], found["rope_local_base_freq"]) == (512, 1e6, 1e4)
    assert found["embed_multiplier"] == math.sqrt(1152)
    assert (found["hidden_act"], found["norm_style"], found["query_pre_attn_scalar"]) == ("gelu_tanh", "gemma", 256.0)


def test_gemma3_with_one_rotary_object_a_type() -> None:
    rope = {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 2e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 5e3},
    }
    found = arch(GEMMA3, rope_parameters=rope, rope_theta="absent", rope_local_base_freq="absent")
    assert (found["rope_theta"], found["rope_local_base_freq"]) == (2e6, 5e3)
    assert found["rope_freq_factors"] == [8.0] * 128
    rope["sliding_attention"] = {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}
    with pytest.raises(UnsupportedArch, match="sliding_attention"):
        arch(GEMMA3, rope_parameters=rope)


def test_the_language_model_of_a_larger_one() -> None:
    found = arch(GEMMA3_VISION)
    assert (found["hidden_size"], found["num_attention_heads"], found["vocab_size"]) == (2560, 8, 262208)
    assert found["rope_freq_factors"] == [8.0] * 128
    assert found["rope_local_base_freq"] == 10000.0
    with pytest.raises(UnsupportedArch, match="audio_config"):
        arch(GEMMA3_VISION, audio_config={})


def test_scaling_under_the_old_key() -> None:
    assert len(arch(LLAMA32)["rope_freq_factors"]) == 32
    yarn = {"factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn"}
    found = arch(QWEN25, rope_scaling=yarn)
    assert found["yarn"]["factor"] == 4.0
    assert found["max_position_embeddings"] == 131072


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (SMOLLM2, {"quantization_config": {"bits": 4}, "auto_map": {}}, "auto_map, quantization_config"),
    (SMOLLM2, {"mlp_bias": True}, "mlp_bias=True"),
    (SMOLLM2, {"rope_interleaved": True}, "rope_interleaved"),
    (SMOLLM2, {"hidden_act": "gelu"}, "gelu"),
    (SMOLLM2, {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
    (SMOLLM2, {"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}, "partial"),
    (SMOLLM2, {"sliding_window": 64}, "sliding_window"),
    (QWEN25, {"layer_types": ["full_attention"] * 23 + ["chunked_attention"]}, "chunked_attention"),
    (QWEN25, {"use_mrope": True}, "use_mrope"),
    (GEMMA3, {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
    (GEMMA3, {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
]


@pytest.mark.parametrize(("config", "changes", "named"), REFUSED, ids=[row[2] for row in REFUSED])
def test_refused_by_name(config: dict[str, Any], changes: dict[str, Any], named: str) -> None:
    with pytest.raises(UnsupportedArch, match=named) as caught:
        arch(config, **changes)
    assert caught.value.exit_code == 7


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", "absent"),
        ("hidden_size", 0),
        ("hidden_size", 576.0),
        ("num_hidden_layers", True),
        ("rms_norm_eps", "1e-5"),
        ("rms_norm_eps", -1e-5),
        ("tie_word_embeddings", 1),
        ("rope_scaling", "linear"),
        ("rope_theta", float("nan")),
    ],
)
def test_values_that_cannot_be_meant(key: str, value: object) -> None:
    with pytest.raises(SourceError, match=key):
        arch(SMOLLM2, **{key: value})


def test_layer_types_of_the_wrong_number() -> None:
    with pytest.raises(SourceError, match="layer_types"):
        arch(QWEN25, layer_types=["full_attention"] * 23)
