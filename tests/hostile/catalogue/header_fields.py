"""B10 to B23: what the fields of the header say (SPEC 2, 6.1, 10)."""

from __future__ import annotations

from builders.cmf import ARCH, F32, Cmf, T, header
from builders.tiny import Tiny, arch_of, weights_of
from cortiq.container.strict_json import MAX_VALUES
from hostile.damage import arch, fields, raw_header, with_field
from hostile.row import HEADER_HASH, Case, Row

COUNTS = (
    "hidden_size",
    "intermediate_size",
    "num_layers",
    "num_attention_heads",
    "num_kv_heads",
    "head_dim",
    "vocab_size",
    "max_position_embeddings",
)
NULLABLE = ("moe", "mtp", "mla", "yarn", "linear_core", "sliding_window", "linear_num_key_heads")
MOE = {"num_experts": 4, "top_k": 2, "moe_intermediate_size": 32}
YARN = {"factor": 4.0, "original_max_position_embeddings": 64}
CONTROLS = "\0\x1b[31m\n\u202e"


def runnable() -> Cmf:
    """A file with all a tiny model needs."""
    tiny = Tiny(hidden=32, width=32, layers=1, heads=2, kv_heads=1, vocab=8)
    tensors = [T(name, F32, values.shape, values.tobytes()) for name, values in weights_of(tiny).items()]
    return Cmf(header(arch=arch_of(tiny)), tensors).build()


def many(one: str) -> str:
    """A field of more values than there may be."""
    return '"k": [' + ",".join([one] * (MAX_VALUES // max(one.count("[") + one.count("{"), 1) + 1)) + "]"


def opens(damage, **more) -> Case:
    return Case(damage, expected="O ok", **more)


def null(name: str) -> Case:
    return opens(arch(**{name: None}), holds=lambda file: getattr(file.arch, name) is None)


ROWS = (
    Row(
        "B10",
        "arch is missing, or one of its numbers is none",
        [
            *(fields(arch=value) for value in (..., None, [], "x", 1)),
            *(
                Case(arch(**{name: value}), says=name)
                for name in COUNTS
                for value in (-1, 0, 2**31, 2**63, 1.5, 64.0, "64", True, None, ...)
            ),
            *(Case(arch(**{name: ...}), says=name) for name in ("arch_name", "rms_norm_eps")),
            *(arch(**{name: None}) for name in ("rope_theta", "tie_word_embeddings", "hidden_act", "num_loops")),
            *(null(name) for name in NULLABLE),
            opens(
                fields(arch={**ARCH, "new_key": [1, {"a": None}]}, another="x"),
                holds=lambda file: file.arch.extra["new_key"] == (1, {"a": None}) and file.header["another"] == "x",
            ),
        ],
        expected="O Parse.arch",
        raw=HEADER_HASH,
    ),
    Row(
        "B11",
        "layer_types of another length or kind",
        [
            *(arch(layer_types=value) for value in (..., None, "FullAttention", 3, [], ["FullAttention"])),
            *(arch(layer_types=value) for value in (["FullAttention"] * 3, ["FullAttention", 7])),
            arch(num_layers=10**9),
        ],
        expected="O Parse.layer_types",
        raw=HEADER_HASH,
    ),
    Row(
        "B12",
        "an unknown layer type opens but does not run; too many are refused",
        [
            Case(
                arch(layer_types=["Warp"]),
                holds=lambda file: file.arch.layer_types == ("Warp",),
                expected=("O ok", "R UnsupportedArch.layer_type"),
            ),
            arch(layer_types=["FullAttention"] * 100_001),
            Case(arch(layer_types=["FullAttention"] * 100_000), expected="O Parse.layer_types"),
        ],
        expected="O Limit.layer_types",
        raw=HEADER_HASH,
        base=runnable,
    ),
    Row(
        "B13",
        "heads that do not divide, or are none",
        [
            *(arch(num_attention_heads=heads, num_kv_heads=kv) for heads, kv in ((7, 3), (4, 0), (2, 4))),
            arch(head_dim=0),
        ],
        expected="O Parse.arch",
        raw=HEADER_HASH,
    ),
    Row(
        "B14",
        "numbers no model can have",
        [
            *(arch(rms_norm_eps=value) for value in (-1, 0, 1e308, "1e-6", True)),
            *(arch(rope_theta=value) for value in (0, -1, 1e-300)),
            *(arch(partial_rotary_factor=value) for value in (0, 1.5)),
            arch(rope_local_base_freq=0),
            arch(final_logit_softcapping=0),
            *(arch(rope_freq_factors=value) for value in ([1.0, 0], 2.0)),
            Case(arch(yarn=[]), says="yarn"),
            Case(arch(yarn={"factor": 4.0}), says="yarn"),
            *(
                Case(arch(yarn={**YARN, name: value}), says="yarn")
                for name, value in (
                    ("factor", 0),
                    ("original_max_position_embeddings", 0),
                    ("attention_factor", -1),
                )
            ),
        ],
        expected="O Parse.arch",
        raw=HEADER_HASH,
    ),
    Row(
        "B15",
        "no norm_style, or one that does not exist: opens, does not run",
        [arch(norm_style=value) for value in (..., None, "Qwen", 3)],
        expected=("O ok", "R Parse.norm_style"),
        raw=HEADER_HASH,
        base=runnable,
    ),
    Row(
        "B16",
        "attention_heads_per_layer",
        [
            arch(attention_heads_per_layer=value)
            for value in ([4], [4, 0], [4, -4], [4, 10**6], [4] * 3, [4, 3], "4", [4, 4.0])
        ],
        expected="O Parse.arch",
        raw=HEADER_HASH,
    ),
    Row(
        "B17",
        "experts; a top_k beyond them is clamped when the model runs",
        [
            *(
                Case(arch(moe={**MOE, name: value}), says="moe")
                for name, value in (
                    ("num_experts", 0),
                    ("num_experts", 10**9),
                    ("top_k", 0),
                    ("top_k", None),
                    ("router_sigmoid", 1),
                )
            ),
            opens(arch(moe={**MOE, "top_k": 8}), holds=lambda file: file.arch.moe.top_k == 8),
        ],
        expected="O Parse.arch",
        raw=HEADER_HASH,
        later="the clamp, with mixtures of experts",
    ),
    Row(
        "B18",
        "half of a surrogate pair",
        [
            raw_header(with_field(r'"x": "\ud800"')),
            raw_header(with_field(r'"tokenizer_config": {"chat_template": "a\uDFFFb"}')),
            raw_header(with_field(r'"skills": [{"id": "\ud83d"}]')),
            raw_header(with_field(r'"\udc00": 1')),
            opens(raw_header(with_field(r'"x": "\ud83d\ude00"')), holds=lambda file: file.header["x"] == "\U0001f600"),
        ],
        expected="O Parse.surrogate",
        raw=HEADER_HASH,
    ),
    Row(
        "B19",
        "what a terminal obeys, in text of the header",
        [
            opens(
                fields(provenance={"tool": CONTROLS}),
                holds=lambda file: file.header["provenance"]["tool"] == CONTROLS,
            ),
            arch(arch_name="\x1b[31m", rms_norm_eps=CONTROLS),
        ],
        expected="O Parse.arch",
        raw=HEADER_HASH,
    ),
    Row(
        "B20",
        "a big header",
        [
            Case(
                raw_header(lambda: with_field(",".join(f'"k{i}":{i}' for i in range(200_000)))),
                holds=lambda file: len(file.header) == 200_004,
            ),
            Case(
                raw_header(lambda: with_field('"provenance": "' + r"\\[" * 2_000_000 + '"')),
                holds=lambda file: len(file.header["provenance"]) == 4_000_000,
            ),
            *(
                Case(raw_header(lambda one=one: with_field(many(one))), expected="O Limit.json_values")
                for one in ("0", "[]", '{"a":1}', "[" * 8 + "]" * 8)
            ),
            Case(raw_header(lambda: with_field('"k": "' + ",[{" * 400_000 + '"'))),
        ],
        expected="O ok",
        raw=HEADER_HASH,
        later="4 times its memory also where characters are wide or keys are long: 6 to 9 times",
    ),
    Row(
        "B21",
        "a shard that cannot be",
        [
            opens(fields(shard={"no": 2, "count": 2}), holds=lambda file: file.header.shard.no == 2),
            *(
                fields(shard=value)
                for value in (
                    {"no": 0, "count": 0},
                    {"no": 6, "count": 5},
                    {"no": 1, "count": 100_001},
                    {"no": 1.0, "count": 2},
                    {"no": 1, "count": True},
                    {"no": 1},
                    [1, 2],
                    "1/2",
                )
            ),
        ],
        expected="O Parse.shard",
        raw=HEADER_HASH,
    ),
    Row(
        "B22",
        "special tokens the model cannot have",
        [
            *(
                fields(tokenizer_config={"eos_token_ids": ids})
                for ids in ([-1], [40], 17, "x", [1] * 1025, [0] * 100_000, [2.0], [True], None)
            ),
            fields(tokenizer_config={"eos_token_ids": [2**40]}),
            opens(fields(tokenizer_config={"eos_token_ids": [39] * 1024})),
            *(
                fields(tokenizer_config=value)
                for value in (
                    {"bos_token_id": 40},
                    {"pad_token_id": -1},
                    {"bos_token_id": "1"},
                    {"chat_template": 3},
                    [],
                    "x",
                )
            ),
        ],
        expected="O Parse.chat",
        raw=HEADER_HASH,
    ),
    Row(
        "B23",
        "quant_type against the directory: it is only information",
        [Case(fields(quant_type="F32"), holds=lambda file: file.header.quant_type == "F32")],
        expected="O ok",
        raw=HEADER_HASH,
    ),
)
