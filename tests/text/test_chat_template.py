"""Chat templates render as Hugging Face renders them, fail loudly, and say which token ends a turn."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from builders.gguf_vocab import byte_level_metadata
from builders.real_models import real_gguf_file
from cortiq.convert.gguf_tokenizer import TokenType, gguf_tokenizer
from cortiq.errors import Template, UsageError
from cortiq.text.chat_template import ChatTemplate, end_of_turn_tokens
from cortiq.text.tokenizer import Tokenizer

NOW = datetime(2024, 2, 29, 12, 0)
CALLED = {"name": "f", "arguments": {"z": 1, "a": "é"}}
CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "Be <brief> & kind."},
    {"role": "user", "content": "Hi\n  there \t"},
    {
        "role": "assistant",
        "content": "Größe 👍",
        "tool_calls": [{"function": {"name": "f", "arguments": {"z": 1, "a": "é"}}}],
    },
    {"role": "tool", "content": [{"type": "text", "text": "42"}]},
]
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"zeta": 1, "alpha": ["<", "&"]}}}]
TEMPLATES = {
    "plain": "{% for m in messages %}{{ m.role }}: {{ m['content'] }}\n{% endfor %}",
    "whitespace": """
    {%- for m in messages %}
        {% if loop.first %}
            [first {{ loop.index0 }} of {{ loop.length }}]
        {% elif loop.last -%}
            last
        {% endif %}
        {# a comment #}
    {% endfor %}
""",
    "tokens": "{{ bos_token }}{% if unk_token is defined %}!{% endif %}{% if not add_generation_prompt %}x"
    "{% endif %}{{ eos_token }}",
    "tools": "{% if tools %}{% for t in tools %}{{ t | tojson }}|{{ t | tojson(indent=2) }}{% endfor %}{% endif %}"
    "{{ messages[2].tool_calls[0].function.arguments | tojson }}",
    "json options": "{{ "
    "{'b': 'é<', 'a': [1, none, true]} | tojson(ensure_ascii=true, separators=(',', ':'), sort_keys=true) }}",
    "control": "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i > 4 %}{% break %}"
    "{% endif %}{{ i }}{% endfor %}",
    "namespace": "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + m.content | length %}"
    "{% endfor %}{{ ns.n }}",
    "macros": "{% macro say(m, n=2) %}<{{ m.role * n }}>{{ caller() if caller else '' }}{% endmacro %}"
    "{% for m in messages %}{{ say(m) }}{% endfor %}{% call say(messages[0], n=1) %}inner{% endcall %}",
    "methods": "{% for m in messages if m.content is string %}{{ m.content.strip().upper().split(' ') | join('/') }}"
    "{{ '%s=%5.2f' | format(m.role, 1) }}{{ '{:>6}|'.format(m.role[:2]) }}{{ m.content.replace('i', 'ii') }}"
    "{% endfor %}",
    "filters": "{{ messages | map(attribute='role') | list | join(', ') }}"
    "{{ messages | selectattr('role', 'equalto', 'user') "
    "| list | length }}{{ [3, 1] | sort }}{{ 'a b' | title | indent(2) }}{{ messages[0] | items | list | length }}"
    "{{ 'x' ~ 1 ~ none ~ [1] }}{{ messages[::-1] | map(attribute='content') | first | string }}"
    "{{ ['a','b'] | batch(1) | list }}",
    "blocks": "{% set body %}  {{ messages[1].content | trim }}{% endset %}[{{ body }}]{% filter upper %}"
    "{{ body }}{% endfilter %}",
    "generation": "{% for m in messages %}{% generation %}{{ m.role }}{% endgeneration %}{%- endfor %}",
    "nested loops": "{% for m in messages %}{% for c in m.role recursive %}{{ c }}{{ loop.depth }}{% endfor %}"
    "{{ loop.cycle('x', 'y') }}{% endfor %}",
    "date": "{{ strftime_now('%d %b %Y') }}",
    "undefined": "{{ missing }}{{ messages[0].name or 'anon' }}{{ documents is none }}{{ tools is defined }}",
    "numbers": "{{ 7 // 2 }} {{ 7 % 4 }} {{ 2 ** 10 }} {{ 3 * 'ab' }} {{ [1] + [2] }} {{ 'a' + 'b' }} {{ '%d%%' % 5 }}",
}  # fmt: skip


def hugging_face(template: str, **variables: Any) -> str:
    """The environment of transformers' ``apply_chat_template``, built from what its documentation says."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])

    def tojson(
        x: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
    ) -> str:
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    environment.filters["tojson"] = tojson
    environment.globals["strftime_now"] = NOW.strftime
    plain = template.replace("{% generation %}", "").replace("{% endgeneration %}", "")
    return environment.from_string(plain).render(**variables)


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("prompt", [True, False])
def test_renders_as_hugging_face(name: str, prompt: bool) -> None:
    template = ChatTemplate(TEMPLATES[name], bos_token="<s>", eos_token="</s>", now=NOW)
    expected = hugging_face(
        TEMPLATES[name], messages=CHAT, tools=TOOLS, documents=None, add_generation_prompt=prompt, bos_token="<s>",
        eos_token="</s>",
    )  # fmt: skip
    assert template.render(CHAT, add_generation_prompt=prompt, tools=TOOLS) == expected
    assert template.source == "file"


def test_extra_variables_reach_the_template() -> None:
    template = ChatTemplate(
        "{{ enable_thinking }}{{ documents[0] }}{{ unk_token }}", extra_tokens={"unk_token": "<unk>"}
    )
    assert template.render([], enable_thinking=False, documents=["d"]) == "Falsed<unk>"


def test_without_a_template_it_is_chatml_and_says_so() -> None:
    template = ChatTemplate(None)
    assert template.source == "chatml-default"
    chat = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]
    rendered = "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n"
    assert template.render(chat, add_generation_prompt=False) == rendered
    assert template.render(chat) == rendered + "<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("{% for %}", "syntax", "line 1"),
        ("\n\n{% if x %}", "syntax", "line 3"),
        ("{{ x | nosuchfilter }}", "syntax", "nosuchfilter"),
        ("a\n{{ raise_exception('roles must <alternate>') }}", "raised", "roles must <alternate>"),
        ("a\n{{ messages[0].x.y }}", "render", "line 2"),
        ("{{ 1 // 0 }}", "render", "ZeroDivision"),
        ("{{ messages[0] + 1 }}", "render", "Type"),
        ("{% include 'other' %}", "render", "loader"),
        ("{{ messages.append(1) }}", "sandbox", "line 1"),
        ("{{ ''.__class__.__mro__ }}", "sandbox", "__class__"),
        ("{{ cycler.__init__.__globals__ }}", "sandbox", "__init__"),
    ],
)  # fmt: skip
def test_errors_are_errors(text: str, code: str, said: str) -> None:
    with pytest.raises(Template, match=said) as failed:
        ChatTemplate(text).render(CHAT)
    assert failed.value.code == code


def test_escapes_that_find_nothing() -> None:
    for text in (
        "{{ '{0.__class__}'.format(1) }}",
        "{{ messages | attr('__class__') }}",
        "{{ namespace().__class__ }}",
    ):
        assert ChatTemplate(text).render(CHAT) == ""


def test_what_a_caller_may_not_do() -> None:
    template = ChatTemplate("x")
    with pytest.raises(UsageError):
        template.render([{"content": "no role"}])
    with pytest.raises(UsageError):
        template.render(["text"])  # type: ignore[list-item]
    for name in ("chat_template", "tokenize", "raise_exception"):
        with pytest.raises(UsageError, match=name):
            template.render([], **{name: 1})
    with pytest.raises(Template):
        ChatTemplate(["list"])  # type: ignore[arg-type]


def test_messages_are_not_changed() -> None:
    chat = [{"role": "user", "content": "x"}]
    ChatTemplate("{% for m in messages %}{{ m.pop('role') if false }}{% endfor %}").render(chat)
    assert chat == [{"role": "user", "content": "x"}]


SPECIALS = {"<|im_start|>": TokenType.CONTROL, "<|im_end|>": TokenType.CONTROL, "<end>": TokenType.USER_DEFINED}
TOKENIZER = Tokenizer(gguf_tokenizer(byte_level_metadata(added=SPECIALS))[0])


@pytest.mark.parametrize(
    ("template", "ends"),
    [
        (None, ["<|im_end|>"]),
        ("{% for m in messages %}{{ m.content }}<end>\n{% endfor %}", ["<end>"]),
        ("{% for m in messages %}{{ m.content }}\n<|im_end|>{% endfor %}", ["<|im_end|>"]),
        ("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", []),
        ("{% for m in messages %}{{ m.content }}{% endfor %}", []),
        ("{{ raise_exception('no') if messages[0].role != 'system' }}{{ messages[-1].content }}<end>", ["<end>"]),
        ("{{ raise_exception('never') }}", []),
    ],
)  # fmt: skip
def test_end_of_turn(template: str | None, ends: list[str]) -> None:
    found = end_of_turn_tokens(ChatTemplate(template), TOKENIZER)
    assert [TOKENIZER.id_to_token(i) for i in found] == ends


def test_a_broken_template_does_not_pass_as_one_without_end() -> None:
    with pytest.raises(Template):
        end_of_turn_tokens(ChatTemplate("{{ messages[0].x.y }}"), TOKENIZER)


@pytest.mark.parametrize("file_name", ["SmolLM2-135M-Instruct.Q4_1.gguf", "Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf"])
def test_real_templates(file_name: str, request: pytest.FixtureRequest) -> None:
    from cortiq.convert.sources.gguf_file import GgufFile

    file = GgufFile(real_gguf_file(request.config, file_name))
    data, config = gguf_tokenizer(file.metadata)
    text = str(config["chat_template"])
    file.close()
    template = ChatTemplate(text, str(config["bos_token"]), str(config["eos_token"]))
    for chat in (CHAT[:2], CHAT[1:2], CHAT[:3]):
        for tools in (None, TOOLS):
            expected = hugging_face(text, messages=chat, tools=tools, add_generation_prompt=True, bos_token="<s>")
            assert template.render(chat, tools=tools) == expected
    tokenizer = Tokenizer(data)
    assert [tokenizer.id_to_token(i) for i in end_of_turn_tokens(template, tokenizer)] == ["<|im_end|>"]
