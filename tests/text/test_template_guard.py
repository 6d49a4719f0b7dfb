"""Templates that would loop, grow or nest without end are stopped within a second or so, with one clear error."""

from __future__ import annotations

import time

import pytest

from cortiq.errors import Template
from cortiq.text.chat_template import ChatTemplate

CHAT = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "x" * 1000}]
DOUBLED = "{% set a = 'x' * 1000 %}" + "{% set a = a ~ a %}" * 40 + "{{ a }}"
BOMBS = {
    "nested loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "loops over text": "{% set t = 'x' * 5000 %}{% for a in t %}{% for b in t %}{% for c in t %}{% endfor %}"
    "{% endfor %}{% endfor %}",
    "loops over a filter": "{% for a in range(9999) %}{% for b in messages | map('upper') %}"
    "{% for c in range(9999) %}{% endfor %}{% endfor %}{% endfor %}",
    "recursive loop": "{% for a in [1, 2] recursive %}{{ loop([1, 2]) }}{% endfor %}",
    "recursive macro": "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
    "branching macro": "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
    "times": "{{ 'a' * 10**10 }}",
    "times swapped": "{{ 10**10 * [1] }}",
    "power": "{{ 10 ** 10000000 }}",
    "power of power": "{{ 9 ** 9 ** 9 ** 9 ** 9 }}",
    "growing number": "{% set ns = namespace(n=3) %}{% for i in range(60) %}{% set ns.n = ns.n * ns.n %}{% endfor %}",
    "printf": "{{ '%0999999999d' | format(1) }}",
    "printf operator": "{{ '%0999999999d' % 1 }}",
    "printf star": "{{ '%*d' % (999999999, 1) }}",
    "format": "{{ '{:>2000000000}'.format('a') }}",
    "format nested": "{{ '{:>{}}'.format('a', 2000000000) }}",
    "format map": "{{ '{a:>2000000000}'.format_map({'a': 1}) }}",
    "doubling": DOUBLED,
    "doubling plus": DOUBLED.replace("a ~ a", "a + a"),
    "doubling block": "{% set a = 'x' * 1000 %}" + "{% set a %}{{ a }}{{ a }}{% endset %}" * 40,
    "doubling list": "{% set a = [1] %}" + "{% set a = a + a %}" * 40,
    "doubling join": "{% set a = 'x' * 1000 %}" + "{% set a = [a, a] | join %}" * 40,
    "doubling join method": "{% set a = 'x' * 1000 %}" + "{% set a = a.join([a, a, a]) %}" * 40,
    "doubling replace": "{% set a = 'xx' %}" + "{% set a = a.replace('x', a) %}" * 10,
    "doubling replace filter": "{% set a = 'xx' %}" + "{% set a = a | replace('x', a) %}" * 10,
    "laughs": "{% set a = ['x' * 99] %}" + "{% set a = [a, a] %}" * 40 + "{{ a }}",
    "laughs as JSON": "{% set a = ['x' * 99] %}" + "{% set a = [a, a] %}" * 40 + "{{ a | tojson }}",
    "laughs as text": "{% set a = {'k': 1} %}" + "{% set a = {'a': a, 'b': a} %}" * 40 + "{{ (a | string) | length }}",
    "laughs printf": "{% set a = ['x' * 99] %}" + "{% set a = [a, a] %}" * 40 + "{{ '%s' % a }}",
    "laughs format": "{% set a = ['x' * 99] %}" + "{% set a = [a, a] %}" * 40 + "{{ '{}'.format(a) }}",
    "laughs joined": "{% set a = ['x' * 99] %}" + "{% set a = [a, a] %}" * 40 + "{{ 'x' ~ a }}",
    "wide": "{{ 'a'.ljust(10**9) }}",
    "centered": "{{ 'a' | center(10**9) }}",
    "indented": "{{ 'a\\nb' | indent(10**9) }}",
    "indented JSON": "{{ [1] | tojson(indent=10**9) }}",
    "tabs": "{{ ('\\t' * 10000).expandtabs(9999) }}",
    "batches": "{{ [1] | batch(10**9, 'x') | list }}",
    "slices": "{{ [1] | slice(10**9) | list }}",
    "much output": "{% for a in range(99999) %}{{ messages[1].content }}{{ messages[1].content }}{% endfor %}",
    "much text": "{% for a in range(99999) %}" + "text " * 2000 + "{% endfor %}",
    "much text in macros": "{% macro m() %}" + "text " * 2000 + "{% endmacro %}{% for a in range(99999) %}"
    "{{ m() }}{% endfor %}",
    "much text in calls": "{% macro m() %}{% for a in range(9999) %}{{ caller() }}{% endfor %}{% endmacro %}"
    "{% call m() %}" + "text " * 2000 + "{% endcall %}",
    "lipsum": "{{ lipsum(n=100000) }}",
    "nested parentheses": "{{ " + "(" * 6000 + "1" + ")" * 6000 + " }}",
    "nested conditions": "{% if true %}" * 3000 + "{% endif %}" * 3000,
    "nested for": "{% for a in [1] %}" * 60 + "{% endfor %}" * 60,
    "long": "x" * (1 << 21),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_defused(name: str) -> None:
    begun = time.perf_counter()
    with pytest.raises(Template):
        ChatTemplate(BOMBS[name]).render(CHAT)
    assert time.perf_counter() - begun < 15


def test_a_stopped_template_works_again() -> None:
    template = ChatTemplate("{% for a in range(n) %}{% for b in range(n) %}{% endfor %}{% endfor %}done")
    with pytest.raises(Template) as stopped:
        template.render(CHAT, n=90_000)
    assert stopped.value.code == "limit"
    assert template.render(CHAT, n=3) == "done"


def test_long_chats_have_room() -> None:
    template = ChatTemplate(
        "{% macro say(m) %}<|{{ m.role }}|>{{ m.content | trim }}{% endmacro %}"
        "{% for m in messages %}{% for part in [m, m] %}{{ say(part) ~ '\n' }}{% endfor %}{% endfor %}"
    )
    chat = [{"role": "user", "content": "word " * 200}] * 2000
    assert len(template.render(chat)) > 3_500_000


def test_digits_in_text_are_not_widths() -> None:
    template = ChatTemplate(
        "{{ 'order 123456789: %s' % 'a' }}{{ 'id {} 20240229'.format(1) }}{{ '%s' | format(123456789) }}"
    )
    assert template.render([]) == "order 123456789: aid 1 20240229123456789"
