"""Limits for chat templates. Jinja's sandbox keeps a template from reaching out, not from looping or growing without
end; here every loop, call and text it makes is charged to a budget before it happens.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from functools import wraps
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import TemplateRuntimeError
from jinja2.runtime import Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

MAX_STEPS = 2_000_000
CALL_STEPS = 10
MAX_TEXT = 1 << 23
MAX_SECONDS = 10.0
MAX_BITS = 4096
MAX_WIDTH = 100_000

_LOOP, _JOINED = "loop of a template", "concatenation of a template"
_WIDE_PRINTF, _GIVEN_PRINTF = re.compile(r"%[^%a-zA-Z]*\d{6}"), re.compile(r"%[^%a-zA-Z]*\*")
_WIDE_FORMAT, _GIVEN_FORMAT = re.compile(r"\{[^{}]*:[^{}]*\d{6}"), re.compile(r"\{[^{}]*:[^{}]*\{")
_SIZED_BY_NUMBER = frozenset(
    ("batch", "center", "filesizeformat", "indent", "pprint", "round", "slice", "tojson", "truncate",
     "wordwrap")
)  # fmt: skip
_SIZING_METHODS = frozenset(("center", "expandtabs", "ljust", "rjust", "zfill"))
_TURNED_TO_TEXT = frozenset(
    ("escape", "e", "forceescape", "format", "join", "pprint", "replace", "safe", "string", "tojson", "urlencode",
     "xmlattr")
)  # fmt: skip


class LimitExceeded(TemplateRuntimeError):
    """The template wants more than a chat prompt can need."""


class Budget:
    """What one rendering may still use: steps (loop rounds and calls), characters, time."""

    def __init__(self) -> None:
        self._steps = MAX_STEPS
        self._text = 4 * MAX_TEXT
        self._deadline = time.monotonic() + MAX_SECONDS
        self._next_look = MAX_STEPS

    def step(self, count: int) -> None:
        self._steps -= count
        if self._steps < 0:
            raise LimitExceeded("it loops or calls too often")
        if self._steps < self._next_look:
            self._next_look = self._steps - 500
            if time.monotonic() > self._deadline:
                raise LimitExceeded(f"it takes longer than {MAX_SECONDS:.0f} seconds")

    def text(self, length: int) -> None:
        self._text -= length
        if self._text < 0:
            raise LimitExceeded("it makes too much text")


def check_size(length: int) -> None:
    if length > MAX_TEXT:
        raise LimitExceeded("it makes a value that is too large")


def check_width(*values: object) -> None:
    for value in values:
        if isinstance(value, int) and abs(value) > MAX_WIDTH:
            raise LimitExceeded("it asks for a width or count that is too large")


def text_size(value: object) -> int:
    """Characters ``value`` has as text, roughly. Nested lists that repeat one another are counted as often as they
    would be written, and counting stops at the limit."""
    total, stack = 0, [value]
    while stack:
        check_size(total)
        item = stack.pop()
        if isinstance(item, str):
            total += len(item)
        elif isinstance(item, Mapping):
            stack += [*item, *item.values()]
            total += 2
        elif isinstance(item, (list, tuple, set, frozenset)):
            stack += item
            total += 2
        else:
            total += 8
    check_size(total)
    return total


class GuardedEnvironment(ImmutableSandboxedEnvironment):
    """The immutable sandbox with a budget. ``budget`` is None outside a rendering; one rendering at a time."""

    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self, **options: Any) -> None:
        super().__init__(finalize=self._finish, **options)
        self.budget: Budget | None = None
        self.macro_steps: dict[str | None, int] = {}
        self.most_steps = 1
        del self.globals["lipsum"]
        self.globals["range"] = self._range
        for name, function in self.filters.items():
            self.filters[name] = self.guarded(name, function)
        self.filters[_LOOP] = self._loop
        self.filters[_JOINED] = _joined

    def limited(self, template: nodes.Template) -> nodes.Template:
        """The parsed template with its loops and concatenations charged."""
        limits = _Limits(self)
        limits.visit(template)
        return template

    def guarded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A filter that refuses arguments which would make its result too large."""

        first = 1 if hasattr(function, "jinja_pass_arg") else 0

        @wraps(function)
        def limited(*args: Any, **kwargs: Any) -> Any:
            head, given = args[:first], args[first:]
            if name in _SIZED_BY_NUMBER:
                check_width(*given[1:], *kwargs.values())
            if name == "join" and given and isinstance(given[0], Iterator):
                given = (list(given[0]), *given[1:])
            if name in _TURNED_TO_TEXT:
                text_size([*given, *kwargs.values()])
            if name == "format":
                _check_format(str(given[0]), (*given[1:], *kwargs.values()), _WIDE_PRINTF, _GIVEN_PRINTF)
            elif name == "replace":
                _check_replace(given)
            elif name == "join":
                _check_join(*given[:2])
            return function(*head, *given, **kwargs)

        return limited

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        _check_operation(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805 - Jinja's own
        self = __self
        if self.budget is not None:
            count = CALL_STEPS
            if isinstance(__obj, Macro):
                count += self.macro_steps.get(__obj.name, 0)
            elif isinstance(__obj, LoopContext) and args and isinstance(args[0], Sized):
                count += self.most_steps * len(args[0])
            self.budget.step(count)
        _check_method(__obj, args, kwargs)
        return super().call(__context, __obj, *args, **kwargs)

    def _finish(self, value: Any) -> Any:
        size = len(value) if isinstance(value, str) else text_size(value)
        if self.budget is not None:
            self.budget.text(size)
        return value

    def _range(self, *args: int) -> range:
        numbers = range(*args)
        if self.budget is not None:
            self.budget.step(len(numbers))
        return numbers

    def _loop(self, items: Any, steps: int) -> Any:
        budget = self.budget
        if budget is None or items is None:
            return items
        if isinstance(items, Sized):
            budget.step(steps * len(items))
            return items
        return _counted(items, budget, steps) if isinstance(items, Iterable) else items


def _counted(items: Iterable[Any], budget: Budget, steps: int) -> Iterator[Any]:
    for item in items:
        budget.step(steps)
        yield item


class _Limits(NodeTransformer):
    """Rewrites loops and concatenations. A step stands for up to 64 characters of the template's own text."""

    def __init__(self, environment: GuardedEnvironment) -> None:
        self._environment = environment

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 - named after the node
        steps = _steps(node)
        self._environment.most_steps = max(self._environment.most_steps, steps)
        self.generic_visit(node)
        node.iter = nodes.Filter(node.iter, _LOOP, [nodes.Const(steps)], [], None, None, lineno=node.lineno)
        return node

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:  # noqa: N802 - named after the node
        self._environment.macro_steps[node.name] = _steps(node)
        self.generic_visit(node)
        return node

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:  # noqa: N802 - named after the node
        nameless = self._environment.macro_steps.get(None, 0)
        self._environment.macro_steps[None] = max(nameless, _steps(node))
        self.generic_visit(node)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802 - named after the node
        self.generic_visit(node)
        parts = nodes.List(node.nodes, lineno=node.lineno)
        return nodes.Filter(parts, _JOINED, [], [], None, None, lineno=node.lineno)


def _steps(node: nodes.Node) -> int:
    return 1 + sum(len(data.data) for data in node.find_all(nodes.TemplateData)) // 64


def _joined(parts: list[Any]) -> str:
    text_size(parts)
    return "".join(map(str, parts))


def _check_operation(operator: str, left: Any, right: Any) -> None:
    if operator == "%" and isinstance(left, str):
        values = right if isinstance(right, tuple) else (right,)
        _check_format(left, values, _WIDE_PRINTF, _GIVEN_PRINTF)
    elif operator == "+" and isinstance(left, (str, list, tuple)) and isinstance(right, Sized):
        check_size(len(left) + len(right))
    elif operator == "*":
        for value, times in ((left, right), (right, left)):
            if isinstance(value, (str, bytes, list, tuple)) and isinstance(times, int):
                check_size(len(value) * max(times, 0))
        if isinstance(left, int) and isinstance(right, int):
            _check_bits(left.bit_length() + right.bit_length())
    elif operator == "**" and isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() * max(right, 0))


def _check_bits(bits: int) -> None:
    if bits > MAX_BITS:
        raise LimitExceeded("it makes a number that is too large")


def _check_method(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Methods of str, which may be wrapped by the sandbox, with arguments that make a large result."""
    method = getattr(function, "__wrapped__", function)
    owner, name = getattr(method, "__self__", None), getattr(method, "__name__", "")
    if not isinstance(owner, (str, bytes)):
        return
    if name in _SIZING_METHODS:
        check_width(*args, *kwargs.values())
    if name in ("format", "format_map"):
        _check_format(str(owner), (*args, *kwargs.values()), _WIDE_FORMAT, _GIVEN_FORMAT)
    elif name == "replace":
        _check_replace((owner, *args))
    elif name == "join" and args:
        _check_join(args[0], owner)
    elif name == "expandtabs":
        check_size(len(owner) * max([8, *(a for a in args if isinstance(a, int))]))


def _check_format(text: str, values: tuple[Any, ...], wide: re.Pattern[str], given: re.Pattern[str]) -> None:
    """A format with a width of six digits, written out or ``given`` as a value, and values that are long as text."""
    if wide.search(text):
        raise LimitExceeded("it formats with a width that is too large")
    if given.search(text):
        check_width(*values)
    text_size(values)


def _check_replace(args: tuple[Any, ...]) -> None:
    if len(args) >= 3 and all(isinstance(a, str) for a in args[:3]):
        text, old, new = args[:3]
        found = text.count(old) if old else len(text) + 1
        check_size(len(text) + found * len(new))


def _check_join(items: Any, between: Any = "") -> None:
    if isinstance(items, Sized):
        check_size(text_size(items) + len(str(between)) * len(items))
