"""Every refusal of the header JSON (SPEC 2, 6.1, 8.1, 10), by the ids of the hostile-file catalogue."""

from __future__ import annotations

import json

import pytest

from builders.cmf import ARCH, Cmf, header
from cortiq.errors import Parse

REQUIRED_COUNTS = (
    "hidden_size",
    "intermediate_size",
    "num_layers",
    "num_attention_heads",
    "num_kv_heads",
    "head_dim",
    "vocab_size",
    "max_position_embeddings",
)
REQUIRED = (*REQUIRED_COUNTS, "arch_name", "rms_norm_eps")


def text(**changes: object) -> str:
    return json.dumps(header(**changes))


def with_field(fragment: str) -> bytes:
    """The header with one more field, written as it is."""
    return (text()[:-1] + ", " + fragment + "}").encode()


def in_arch(fragment: str) -> bytes:
    return text().replace('"arch": {', '"arch": {' + fragment + ", ").encode()


@pytest.mark.parametrize("bad", [b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80"])
def test_b1_utf8_in_a_string(cmf, refuse, bad):
    refuse(cmf.with_header(with_field('"x": "@"').replace(b"@", bad)), "Parse.utf8")


def test_b1_utf8_truncated(cmf, refuse):
    refuse(cmf.with_header(text().encode() + b"\xe2\x82"), "Parse.utf8")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-8-sig"])
def test_b2_utf8_only(cmf, refuse, encoding):
    refuse(cmf.with_header(text().encode(encoding)), "Parse.utf8")


@pytest.mark.parametrize("levels", [65, 1_100, 1_000_000])
def test_b3_depth(cmf, refuse, levels):
    refuse(cmf.with_header(with_field('"ignored": ' + "[" * levels + "]" * levels)), "Parse.depth")
    refuse(cmf.with_header(("[" * levels).encode()), "Parse.depth")


def test_b3_depth_of_64_and_brackets_in_strings_are_fine(cmf, opened):
    deep = "[" * 62 + "]" * 62
    assert "ignored" in opened(cmf.with_header(with_field('"ignored": ' + deep))).header
    assert "ignored" in opened(cmf.with_header(with_field(r'"ignored": "\"' + "[{" * 200 + r'\\"'))).header


@pytest.mark.parametrize(
    "raw",
    [
        with_field('"version": 2'),
        with_field('"unknown": 1, "unknown": 2'),
        in_arch('"hidden_size": 64'),
        with_field('"arch": {}'),
        with_field('"skills": [{"id": "a", "id": "b"}]'),
        with_field(r'"unknown": 1, "\u0075nknown": 2'),
    ],
)
def test_b4_dup_key(cmf, refuse, raw):
    refuse(cmf.with_header(raw), "Parse.dup_key")


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400", "-1e400"])
def test_b5_nonfinite(cmf, refuse, number):
    refuse(cmf.with_header(with_field(f'"x": {number}')), "Parse.nonfinite")
    refuse(cmf.with_header(in_arch(f'"sliding_window": {number}')), "Parse.nonfinite")


def test_b6_int_range_of_digits(cmf, refuse):
    refuse(cmf.with_header(with_field('"x": ' + "1" * 5000)), "Parse.int_range")


@pytest.mark.parametrize("number", ["1" * 4000, str(2**64), str(2**53 + 1)])
def test_b6_int_range_of_a_field_we_read(cmf, refuse, number):
    refuse(cmf.with_header(in_arch(f'"sliding_window": {number}')), "Parse.int_range")
    refuse(cmf.with_header(with_field(f'"shard": {{"no": 1, "count": {number}}}')), "Parse.int_range")


def test_b6_int_range_of_num_layers(cmf, refuse):
    refuse(cmf.with_arch(num_layers=2**64), "Parse.int_range")


def test_b6_long_integer_in_an_ignored_field_is_fine(cmf, opened):
    assert opened(cmf.with_header(with_field('"x": ' + "1" * 4000))).header["x"] > 2**64


@pytest.mark.parametrize(
    "raw",
    [
        text().encode() + b"\0\0",
        text().encode() + b"{}",
        text()[:-1].encode() + b",}",
        text().encode() + b"// comment",
        with_field('"x": "\n"'),
        with_field("'x': 1"),
        with_field('"x": 01'),
        text()[:-1].encode(),
        b" ",
    ],
)
def test_b7_json(cmf, refuse, raw):
    refuse(cmf.with_header(raw), "Parse.json")


def test_b7_white_space_around_is_fine(cmf, opened):
    assert opened(cmf.with_header(b" \n" + text().encode() + b"\t\r\n ")).arch.num_layers == 2


@pytest.mark.parametrize("raw", [b"[]", b'"x"', b"null", b"42"])
def test_b8_header_type(cmf, refuse, raw):
    refuse(cmf.with_header(raw), "Parse.header_type")


@pytest.mark.parametrize("value", ["xyz", "CMF", 1, None])
def test_b9_header_field_format(cmf, refuse, value):
    refuse(cmf.with_header(format=value), "Parse.header_field")


@pytest.mark.parametrize("value", [3, 1, "2", 2.0, True, None, ...])
def test_b9_header_field_version(cmf, refuse, value):
    refuse(cmf.with_header(version=value), "Parse.header_field")


def test_b9_header_field_quant_type(cmf, refuse):
    refuse(cmf.with_header(quant_type=7), "Parse.header_field")


def test_b9_format_may_be_missing(cmf, opened):
    assert opened(cmf.with_header(format=...)).arch.num_layers == 2


@pytest.mark.parametrize("value", [..., None, [], "x", 1])
def test_b10_arch_is_no_object(cmf, refuse, value):
    refuse(cmf.with_header(arch=value), "Parse.arch")


@pytest.mark.parametrize("value", [-1, 0, 2**31, 2**63, 1.5, 64.0, "64", True, None, ...], ids=str)
@pytest.mark.parametrize("name", REQUIRED_COUNTS)
def test_b10_arch_count(cmf, refuse, name, value):
    error = refuse(cmf.with_arch(**{name: value}), "Parse.arch")
    assert name in error.message


@pytest.mark.parametrize("name", REQUIRED)
def test_b10_arch_missing(cmf, refuse, name):
    refuse(cmf.with_arch(**{name: ...}), "Parse.arch")


@pytest.mark.parametrize("name", ["rope_theta", "tie_word_embeddings", "hidden_act", "num_loops"])
def test_b10_arch_null_where_a_default_is_no_null(cmf, refuse, name):
    refuse(cmf.with_arch(**{name: None}), "Parse.arch")


@pytest.mark.parametrize("name", ["moe", "mtp", "mla", "yarn", "linear_core", "sliding_window", "linear_num_key_heads"])
def test_b10_arch_null_where_absent_is_meant(cmf, opened, name):
    assert getattr(opened(cmf.with_arch(**{name: None})).arch, name) is None


@pytest.mark.parametrize("value", [..., None, "FullAttention", 3])
def test_b11_layer_types_is_no_array(cmf, refuse, value):
    refuse(cmf.with_arch(layer_types=value), "Parse.layer_types")


@pytest.mark.parametrize("value", [[], ["FullAttention"], ["FullAttention"] * 3, ["FullAttention", 7]])
def test_b11_layer_types_of_another_length(cmf, refuse, value):
    refuse(cmf.with_arch(layer_types=value), "Parse.layer_types")


def test_b11_layer_types_of_a_billion_layers(cmf, refuse):
    refuse(cmf.with_arch(num_layers=10**9), "Parse.layer_types")


def test_b12_layer_type_unknown_opens(cmf, opened):
    assert opened(cmf.with_arch(layer_types=["Warp", "FullAttention"])).arch.layer_types[0] == "Warp"


def test_b12_limit_layer_types(cmf, refuse):
    refuse(cmf.with_arch(layer_types=["FullAttention"] * 100_001), "Limit.layer_types")


@pytest.mark.parametrize(("heads", "kv_heads"), [(7, 3), (4, 0), (2, 4)])
def test_b13_arch_heads(cmf, refuse, heads, kv_heads):
    refuse(cmf.with_arch(num_attention_heads=heads, num_kv_heads=kv_heads), "Parse.arch")


def test_b13_arch_head_dim(cmf, refuse):
    refuse(cmf.with_arch(head_dim=0), "Parse.arch")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rms_norm_eps", -1),
        ("rms_norm_eps", 0),
        ("rms_norm_eps", 1e308),
        ("rms_norm_eps", "1e-6"),
        ("rms_norm_eps", True),
        ("rope_theta", 0),
        ("rope_theta", -1),
        ("rope_theta", 1e-300),
        ("partial_rotary_factor", 0),
        ("partial_rotary_factor", 1.5),
        ("rope_local_base_freq", 0),
        ("final_logit_softcapping", 0),
        ("rope_freq_factors", [1.0, 0]),
        ("rope_freq_factors", 2.0),
    ],
)
def test_b14_arch_number(cmf, refuse, name, value):
    refuse(cmf.with_arch(**{name: value}), "Parse.arch")


@pytest.mark.parametrize(
    "yarn",
    [
        {"factor": 0, "original_max_position_embeddings": 64},
        {"factor": 4.0},
        {"factor": 4.0, "original_max_position_embeddings": 0},
        {"factor": 4.0, "original_max_position_embeddings": 64, "attention_factor": -1},
        [],
    ],
)
def test_b14_arch_yarn(cmf, refuse, yarn):
    assert "yarn" in refuse(cmf.with_arch(yarn=yarn), "Parse.arch").message


@pytest.mark.parametrize("value", [..., "Qwen", 3])
def test_b15_norm_style_opens_but_does_not_run(cmf, opened, value):
    arch = opened(cmf.with_arch(norm_style=value)).arch
    with pytest.raises(Parse, match="norm_style"):
        arch.required_norm_style()


@pytest.mark.parametrize("value", [[4], [4, 0], [4, -4], [4, 10**6], [4] * 3, [4, 3], "4", [4, 4.0]])
def test_b16_arch_attention_heads_per_layer(cmf, refuse, value):
    refuse(cmf.with_arch(attention_heads_per_layer=value), "Parse.arch")


@pytest.mark.parametrize(
    "change", [{"num_experts": 0}, {"num_experts": 10**9}, {"top_k": 0}, {"top_k": None}, {"router_sigmoid": 1}]
)
def test_b17_arch_moe(cmf, refuse, change):
    moe = {"num_experts": 4, "top_k": 2, "moe_intermediate_size": 32, **change}
    assert "moe" in refuse(cmf.with_arch(moe=moe), "Parse.arch").message


def test_b17_top_k_beyond_the_experts_opens(cmf, opened):
    moe = {"num_experts": 4, "top_k": 8, "moe_intermediate_size": 32}
    assert opened(cmf.with_arch(moe=moe)).arch.moe.top_k == 8


@pytest.mark.parametrize(
    "fragment",
    [
        r'"x": "\ud800"',
        r'"tokenizer_config": {"chat_template": "a\uDFFFb"}',
        r'"skills": [{"id": "\ud83d"}]',
        r'"\udc00": 1',
    ],
)
def test_b18_surrogate(cmf, refuse, fragment):
    refuse(cmf.with_header(with_field(fragment)), "Parse.surrogate")


def test_b18_surrogate_pairs_are_fine(cmf, opened):
    assert opened(cmf.with_header(with_field(r'"x": "\ud83d\ude00"'))).header["x"] == "\U0001f600"


def test_b19_terminal_controls_open(cmf, opened):
    provenance = {"tool": "\0\x1b[31m\n\u202e"}
    assert opened(cmf.with_header(provenance=provenance)).header["provenance"]["tool"] == "\0\x1b[31m\n\u202e"


def test_b20_many_unknown_keys_open(cmf, opened):
    fields = ",".join(f'"k{i}":{i}' for i in range(200_000))
    assert len(opened(cmf.with_header(with_field(fields))).header) == 200_004


def test_b20_a_long_string_opens(cmf, opened):
    made = cmf.with_header(with_field('"provenance": "' + r"\\[" * 2_000_000 + '"'))
    assert len(opened(made).header["provenance"]) == 4_000_000


@pytest.mark.parametrize(
    "value",
    [
        {"no": 0, "count": 0},
        {"no": 6, "count": 5},
        {"no": 1, "count": 100_001},
        {"no": 1.0, "count": 2},
        {"no": 1, "count": True},
        {"no": 1},
        [1, 2],
        "1/2",
    ],
)
def test_b21_shard(cmf, refuse, value):
    refuse(cmf.with_header(shard=value), "Parse.shard")


@pytest.mark.parametrize("ids", [[-1], [40], [2**40], 17, "x", [1] * 1025, [2.0], [True], None])
def test_b22_chat_eos_token_ids(cmf, refuse, ids):
    refuse(cmf.with_header(tokenizer_config={"eos_token_ids": ids}), "Parse.chat")


@pytest.mark.parametrize(
    "value", [{"bos_token_id": 40}, {"pad_token_id": -1}, {"bos_token_id": "1"}, {"chat_template": 3}, [], "x"]
)
def test_b22_chat(cmf, refuse, value):
    refuse(cmf.with_header(tokenizer_config=value), "Parse.chat")


def test_b23_quant_type_against_the_directory_opens(cmf, opened):
    assert opened(cmf.with_header(quant_type="F32")).header.quant_type == "F32"


@pytest.mark.parametrize("value", ["", "0x12", "0" * 17, "xyz", 5, None, [], "12 "])
def test_h1_section_hash(cmf, refuse, value):
    refuse(cmf.with_header(section_hashes={"vocab": value}), "Parse.section_hash")


@pytest.mark.parametrize("value", [[], "x", 3])
def test_h1_section_hash_is_no_object(cmf, refuse, value):
    refuse(cmf.with_header(section_hashes=value), "Parse.section_hash")


@pytest.mark.parametrize("value", ["A1", "a1", "00000000000000A1"])
def test_h1_section_hash_in_other_spellings(cmf, opened, value):
    assert opened(cmf.with_header(section_hashes={"vocab": value})).header.section_hashes["vocab"] == 0xA1


@pytest.mark.parametrize("value", [{}, "x", [1], None])
def test_i5_skill(cmf, refuse, value):
    refuse(cmf.with_header(skills=value), "Parse.skill")


def test_i5_skill_file_without_the_bit(cmf, refuse):
    refuse(cmf.with_header(skills=[{"id": "a", "base_dir_hash": "00"}]), "Parse.skill_file")


def test_i5_skill_file_with_the_bit(opened):
    made = Cmf(header(skills=[{"id": "a", "base_dir_hash": "00"}]), [], features=0b1000001).build()
    assert opened(made).header.is_skill_file


def test_unknown_fields_are_kept(cmf, opened):
    file = opened(cmf.with_header(arch={**ARCH, "new_key": [1, {"a": None}]}, another="x"))
    assert file.header["another"] == "x"
    assert file.arch.extra["new_key"] == (1, {"a": None})
