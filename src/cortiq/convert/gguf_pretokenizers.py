"""How byte-level GGUF tokenizers cut a text before merging: ``tokenizer.ggml.pre`` to the patterns it stands for.

The names are llama.cpp's. Each list is applied in order, every pattern to the pieces the one before left; matches and
what lies between them both become pieces. Case-insensitive contractions are spelled as in the models' own files.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from cortiq.errors import UnsupportedArch

__all__ = ["PreTokenizer", "pre_tokenizer", "pre_tokenizer_names"]


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """``patterns`` in order; ``ignore_merges``: a piece that is a token is taken whole; ``add_bos``: the default."""

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    add_bos: bool = False


_SUFFIXES = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LEAD = r"[^\r\n\p{L}\p{N}]?"
_CASED = f"{_LEAD}{_UPPER}*{_LOWER}+", f"{_LEAD}{_UPPER}+{_LOWER}*"
_HAN_KANA = "[一-龥぀-ゟ゠-ヿ]+"
_PUNCTUATED = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|" + _SPACES
)

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def _modern(numbers: str, words: str = rf"{_LEAD}\p{{L}}+", symbols: str = r" ?[^\s\p{L}\p{N}]+[\r\n]*") -> str:
    return f"{_SUFFIXES}|{words}|{numbers}|{symbols}|{_SPACES}"


_LLAMA3 = PreTokenizer((_modern(r"\p{N}{1,3}"),))
_QWEN2 = PreTokenizer((_modern(r"\p{N}"),))
_DIGITS_GPT2 = PreTokenizer((r"\p{N}", _GPT2))
_PLAIN_GPT2 = PreTokenizer((_GPT2,))
_GPT4O = PreTokenizer(
    (f"{_CASED[0]}{_SUFFIXES}?|{_CASED[1]}{_SUFFIXES}?" + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _SPACES,)
)
_DEEPSEEK3 = PreTokenizer((r"\p{N}{1,3}", _HAN_KANA, _PUNCTUATED))
_BLOOM = PreTokenizer((r" ?[^(\s|.,!?…。，、।۔،)]+",))
_BAILING = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"

_FAMILIES: tuple[tuple[str, PreTokenizer], ...] = (
    (
        "default",
        PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2.removesuffix(r"|\s+"), r"\p{N}+", r"[0-9][0-9][0-9]")),
    ),
    ("gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert", _PLAIN_GPT2),
    ("mpt olmo jais trillion granite-docling exaone4 jina-v1-en jina-v2-code roberta-bpe", _PLAIN_GPT2),
    ("smollm starcoder refact command-r codeshell exaone minerva-7b mellum2", _DIGITS_GPT2),
    ("qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2", _QWEN2),
    ("qwen35", PreTokenizer((_modern(r"\p{N}", rf"{_LEAD}[\p{{L}}\p{{M}}]+", r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"),))),
    ("laguna", PreTokenizer((r"[^\n]+|[\n]+", *_QWEN2.patterns))),
    ("ufakzeka", PreTokenizer((_QWEN2.patterns[0].removeprefix(f"{_SUFFIXES}|"),))),
    ("seed-coder", PreTokenizer((_modern(r"\p{N}{1}", symbols=r" ?[^\s\p{L}\p{N}\r\n]+"),))),
    ("llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
     replace(_LLAMA3, ignore_merges=True, add_bos=True)),
    ("dbrx smaug-bpe chatglm-bpe", _LLAMA3),
    ("glm4 glm5", replace(_LLAMA3, ignore_merges=True)),
    ("minicpm5", PreTokenizer((r"\p{N}{1,3}", _modern(r"\p{N}+")), ignore_merges=True)),
    ("gpt-4o llama4 kanana2 talkie minimax-m2", _GPT4O),
    ("tiny_aya cohere2moe", PreTokenizer((r"\d{1,3}(?=(?:\d{3})*\b)", *_GPT4O.patterns))),
    ("tekken", PreTokenizer(
        (f"{_CASED[0]}|{_CASED[1]}" + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _SPACES,),
        ignore_merges=True, add_bos=True)),
    ("deepseek-v3 hunyuan-dense joyai-llm hy_v4", _DEEPSEEK3),
    ("deepseek-coder", PreTokenizer((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}"))),
    ("falcon", PreTokenizer((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2.removesuffix(r"|\s+"), r"[0-9][0-9][0-9]"))),
    ("bailingmoe bailingmoe2 llada-moe", PreTokenizer((_BAILING,))),
    ("poro-chat bloom gpt3-finnish", _BLOOM),
    ("viking", PreTokenizer((*_BLOOM.patterns, r"\p{N}"))),
    ("superbpe", PreTokenizer((r"\p{N}+", r"(?=(\d{3})+(?!\d))"))),
)  # fmt: skip


def pre_tokenizer(name: str) -> PreTokenizer:
    """The pre-tokenizer ``tokenizer.ggml.pre`` names. Raises UnsupportedArch naming an unknown one."""
    for names, entry in _FAMILIES:
        if name in names.split():
            return entry
    raise UnsupportedArch(
        f"the GGUF's pre-tokenizer {name!r} is not known, so its text would be cut wrongly",
        code="pre_tokenizer",
        found=name,
    )


def pre_tokenizer_names() -> Iterator[str]:
    """Every name ``pre_tokenizer`` knows."""
    for names, _ in _FAMILIES:
        yield from names.split()
