"""Chat settings: where the template comes from, which tokens end a text, sampling defaults."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cortiq.convert.chat import chat_of_huggingface, generation_defaults, generation_of_gguf
from cortiq.errors import SourceError

TOKENIZER = json.dumps(
    {
        "added_tokens": [
            {"id": 0, "content": "<s>"},
            {"id": 2, "content": "</s>"},
            {"id": 7, "content": "<|im_end|>"},
            {"id": 9, "content": "<|eot_id|>"},
        ]
    }
).encode()
CHATML = "{{ messages[0].content }}<|im_end|>"


def chat(folder: Path, config: dict[str, Any] | None = None, **files: Any) -> tuple[dict[str, object], list[str]]:
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        (folder / (name if name.endswith(".jinja") else f"{name}.json")).write_text(text)
    return chat_of_huggingface(folder, config or {}, TOKENIZER)


def test_stop_ids_are_the_union_of_all_places(tmp_path: Path) -> None:
    found, _ = chat(
        tmp_path,
        {"eos_token_id": 3, "text_config": {"eos_token_id": [11]}},
        generation_config={"eos_token_id": [5, 3]},
        tokenizer_config={"eos_token": {"content": "</s>"}, "chat_template": CHATML},
    )
    assert found["eos_token_ids"] == [2, 3, 5, 7, 11]


def test_only_turn_ends_that_the_template_names_stop(tmp_path: Path) -> None:
    found, _ = chat(tmp_path, tokenizer_config={"chat_template": "{{ messages }}<|eot_id|>"})
    assert found["eos_token_ids"] == [9]
    found, _ = chat(tmp_path, tokenizer_config={"chat_template": "{{ messages }}<|end|>"})
    assert found["eos_token_ids"] == []


def test_special_tokens(tmp_path: Path) -> None:
    found, _ = chat(
        tmp_path, {"pad_token_id": 4, "bos_token_id": 1}, tokenizer_config={"bos_token": "<s>", "eos_token": "</s>"}
    )
    assert (found["bos_token"], found["eos_token"]) == ("<s>", "</s>")
    assert (found["bos_token_id"], found["pad_token_id"]) == (0, 4)


def test_a_folder_without_chat_settings(tmp_path: Path) -> None:
    assert chat(tmp_path) == ({"eos_token_ids": []}, [])


def test_where_the_template_comes_from(tmp_path: Path) -> None:
    settings = {"chat_template": "from tokenizer_config"}
    assert chat(tmp_path, tokenizer_config=settings)[0]["chat_template"] == "from tokenizer_config"
    assert chat(tmp_path, chat_template={"chat_template": "from json"})[0]["chat_template"] == "from json"
    (tmp_path / "chat_template.jinja").write_text("from jinja\n")
    assert chat(tmp_path)[0]["chat_template"] == "from jinja\n"
    (tmp_path / "chat_template.jinja").write_text(" \n")
    assert chat(tmp_path)[0]["chat_template"] == "from json"


def test_named_templates(tmp_path: Path) -> None:
    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]
    found, notes = chat(tmp_path, tokenizer_config={"chat_template": named})
    assert found["chat_template"] == "plain"
    assert len(notes) == 1
    assert "tool_use" in notes[0]


def test_a_template_that_is_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="template"):
        chat(tmp_path, tokenizer_config={"chat_template": 3})


@pytest.mark.parametrize("tokenizer", [b"{", b"[]", b'{"added_tokens": [3]}', b'{"added_tokens": [{"id": 1}]}'])
def test_a_tokenizer_that_is_none_is_refused(tokenizer: bytes, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="tokenizer"):
        chat_of_huggingface(tmp_path, {}, tokenizer)


@pytest.mark.parametrize("text", ["{", "[]", "\x00"])
def test_broken_side_files_are_named(text: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="generation_config"):
        chat(tmp_path, generation_config=text)


def test_sampling_defaults(tmp_path: Path) -> None:
    assert generation_defaults(tmp_path) is None
    settings = {"temperature": 0.6, "top_k": 20, "do_sample": True, "eos_token_id": 2, "min_p": None}
    (tmp_path / "generation_config.json").write_text(json.dumps(settings))
    assert generation_defaults(tmp_path) == {"do_sample": True, "temperature": 0.6, "top_k": 20}


def test_sampling_keys_of_a_gguf() -> None:
    keys = {"general.sampling.temp": 0.6, "general.sampling.top_k": 20, "general.sampling.penalty_repeat": 1.1}
    assert generation_of_gguf({"general.name": "x", **keys}) == {
        "do_sample": True,
        "temperature": 0.6,
        "top_k": 20,
        "repetition_penalty": 1.1,
    }
    assert generation_of_gguf({"general.name": "x"}) is None
