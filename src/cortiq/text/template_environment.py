"""The Jinja environment chat templates run in: transformers' globals, filters and tags in an immutable sandbox."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from threading import Lock
from typing import Any, NoReturn

from jinja2 import TemplateError as JinjaError
from jinja2 import TemplateSyntaxError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from cortiq.errors import Template as TemplateError

MAX_TEMPLATE = 1 << 20


class Renderer:
    """One compiled template. Raises errors.Template with the line when it does not compile or fails."""

    def __init__(self, text: str, now: datetime | None = None) -> None:
        if not isinstance(text, str):
            raise TemplateError("a chat template must be a string", code="type", found=type(text).__name__)
        if len(text) > MAX_TEMPLATE:
            raise TemplateError("the chat template is too long", code="limit", expected=MAX_TEMPLATE, found=len(text))
        self._lock = Lock()
        self._environment = _environment(now)
        try:
            self._template = self._environment.from_string(text)
        except TemplateSyntaxError as error:
            raise TemplateError(f"line {error.lineno}: {error.message}", code="syntax") from error
        except (RecursionError, MemoryError) as error:
            raise TemplateError("the chat template is nested too deeply", code="limit") from error

    def render(self, variables: Mapping[str, Any]) -> str:
        """The text of the template for these variables."""
        try:
            with self._lock:
                return self._template.render(variables)
        except RaisedByTemplate as error:
            raise TemplateError(str(error), code="raised") from error
        except SecurityError as error:
            raise TemplateError(f"not allowed in a template: {error}", code="sandbox") from error
        except (JinjaError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise TemplateError(f"{type(error).__name__}: {error}", code="render") from error
        except (RecursionError, MemoryError, NotImplementedError) as error:
            raise TemplateError("the chat template needs too much", code="limit") from error


class RaisedByTemplate(JinjaError):
    """The template called ``raise_exception``."""


class _Generation(Extension):
    """``{% generation %} ... {% endgeneration %}`` marks the assistant's text for training; it renders its body."""

    tags = {"generation"}  # noqa: RUF012 - the type Jinja declares

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def _environment(now: datetime | None) -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda form: (now or datetime.now()).strftime(form)
    return environment


def _raise(message: object) -> NoReturn:
    raise RaisedByTemplate(str(message))


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as transformers writes it: insertion order, no HTML escapes, no ASCII escapes unless asked for."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
