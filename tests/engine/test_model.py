"""The public model: logits and greedy ids of transformers, chat, limits, closing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import cortiq
from builders.golden import DATA, FAMILIES, golden, max_relative_error
from builders.tiny import Tiny, tokenizer_json, write_tiny
from cortiq.convert.options import ConvertOptions
from cortiq.convert.pipeline import convert
from cortiq.errors import Tokenizer as TokenizerError
from cortiq.errors import UnsupportedArch, UsageError

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }} {{ m.content }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant {% endif %}"
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    header = {"tokenizer_config": {"chat_template": TEMPLATE, "bos_token_id": 1}}
    return write_tiny(tmp_path_factory.mktemp("model") / "tiny.cmf", header=header, tokenizer=tokenizer_json())


@pytest.fixture
def model(path: Path) -> Iterator[cortiq.Model]:
    with cortiq.load(path, mode="exact", threads=1) as model:
        yield model


def converted(folder: Path, family: str) -> Path:
    """The checkpoint as ``cortiq convert`` writes it, lossless."""
    path = folder / f"{family}.cmf"
    convert(DATA / family, path, ConvertOptions(quant="bf16"))
    return path


@pytest.mark.parametrize("family", FAMILIES)
def test_exact_logits_and_greedy_ids_of_transformers(tmp_path: Path, family: str) -> None:
    source = golden(family)
    with cortiq.load(converted(tmp_path, family), mode="exact") as model:
        logits = model.forward(source.input_ids)
        assert max_relative_error(logits, source.logits) < 1e-5
        prompt = source.input_ids[: source.prompt_len]
        got = model.generate(prompt, temperature=0, max_tokens=len(source.greedy), ignore_eos=True)
        assert list(got.tokens) == source.greedy


@pytest.mark.parametrize("family", ["llama", "gemma3"])
def test_fast_logits_of_unquantized_weights_are_close(tmp_path: Path, family: str) -> None:
    source = golden(family)
    with cortiq.load(converted(tmp_path, family), mode="fast") as model:
        assert max_relative_error(model.forward(source.input_ids), source.logits) < 1e-3


def test_forward_refuses_what_it_cannot_evaluate(model: cortiq.Model) -> None:
    assert model.forward([1, 2, 3]).shape == (3, 512)
    for tokens in ([], [-1], [512]):
        with pytest.raises(UsageError) as caught:
            model.forward(tokens)
        assert caught.value.code == "tokens"
    with pytest.raises(UsageError) as caught:
        model.forward([1] * 257)
    assert (caught.value.code, caught.value.found) == ("context", 257)


def test_forward_starts_from_nothing(model: cortiq.Model) -> None:
    before = model.forward([5, 6, 7])
    model.generate([9, 9, 9], max_tokens=4)
    assert np.array_equal(model.forward([5, 6, 7]), before)


def test_text_and_back(model: cortiq.Model) -> None:
    ids = model.tokenize("Hello world")
    assert ids
    assert model.detokenize(ids) == "Hello world"


def test_chat_renders_the_template_of_the_file(model: cortiq.Model) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    text = "<|im_start|>user Hi<|im_end|><|im_start|>assistant "
    ids = model.tokenize(text, add_special_tokens=False)
    chat = model.chat(messages, temperature=0, max_tokens=5)
    assert chat.prompt_tokens == len(ids)
    assert chat.tokens == model.generate(ids, temperature=0, max_tokens=5).tokens
    streamed = "".join(chunk.text for chunk in model.chat_stream(messages, temperature=0, max_tokens=5))
    assert streamed == chat.text


def test_the_templates_end_of_turn_stops(model: cortiq.Model) -> None:
    end = model.tokenizer.token_to_id("<|im_end|>")
    assert end in model.stop_ids


def test_a_file_without_a_template_says_so(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "m.cmf", tokenizer=tokenizer_json())
    with cortiq.load(path) as model, pytest.warns(UserWarning, match="ChatML"):
        model.chat([{"role": "user", "content": "Hi"}], max_tokens=2)


def test_a_template_that_fails_is_an_error_for_chats_only(tmp_path: Path) -> None:
    header = {"tokenizer_config": {"chat_template": "{{ 1 / 0 }}", "eos_token_ids": [2]}}
    with cortiq.load(write_tiny(tmp_path / "m.cmf", header=header, tokenizer=tokenizer_json())) as model:
        with pytest.warns(UserWarning, match="end of turn"):
            model.generate("a", max_tokens=1)
        with pytest.raises(cortiq.errors.Template):
            model.chat([{"role": "user", "content": "Hi"}])


def test_a_file_without_a_tokenizer_takes_ids(tmp_path: Path) -> None:
    with cortiq.load(write_tiny(tmp_path / "m.cmf")) as model:
        got = model.generate([1, 2, 3], max_tokens=3, temperature=0)
        assert (got.text, len(got.tokens)) == ("", 3)
        with pytest.raises(TokenizerError):
            model.generate("text")
        with pytest.raises(UsageError, match="stop strings"):
            model.generate([1], stop="x")


def test_a_tokenizer_with_ids_beyond_the_embedding(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "m.cmf", Tiny(vocab=480), tokenizer=tokenizer_json())
    with cortiq.load(path) as model, pytest.raises(TokenizerError) as caught:
        model.tokenize("a")
    assert caught.value.code == "ids"


def test_closing(path: Path) -> None:
    model = cortiq.load(path)
    file = model.file
    model.forward([1])
    model.close()
    model.close()
    assert file.closed
    with pytest.raises(UsageError) as caught:
        model.forward([1])
    assert caught.value.code == "closed"
    with pytest.raises(UsageError) as caught:
        model.generate([1])
    assert caught.value.code == "closed"


def test_a_file_that_was_given_stays_open(path: Path) -> None:
    with cortiq.open(path) as file:
        with cortiq.load(file) as model:
            model.forward([1])
        assert not file.closed


def test_settings_and_arguments_are_reported(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CORTIQ_THREADS", "2")
    monkeypatch.setenv("CORTIQ_ISA", "scalar")
    with cortiq.load(path, mode="exact", context=100) as model:
        assert (model.info.threads, model.info.isa, model.info.mode, model.context) == (2, "scalar", "exact", 100)
        assert "exact" in repr(model)
    with cortiq.load(path, threads=1) as model:
        assert (model.info.threads, model.info.mode, model.context) == (1, "fast", 256)


@pytest.mark.parametrize(
    ("option", "value"),
    [("mode", "quick"), ("isa", "mmx"), ("threads", 0), ("context", 0), ("context", 257), ("max_sequences", 0)],
)
def test_settings_that_cannot_be_meant(path: Path, option: str, value: object) -> None:
    with pytest.raises(UsageError):
        cortiq.load(path, **{option: value})  # type: ignore[arg-type]


def test_a_model_that_cannot_be_run_leaves_no_file_open(tmp_path: Path) -> None:
    path = write_tiny(tmp_path / "m.cmf", Tiny(arch={"num_loops": 2}))
    with pytest.raises(UnsupportedArch):
        cortiq.load(path)
