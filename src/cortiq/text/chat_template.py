"""Chat templates (SPEC 6.1): messages to the prompt text, as Hugging Face renders them.

The file defines the chat; a template that fails is an error, never a replacement. A file without a template gets
ChatML, and ``ChatTemplate.source`` says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from cortiq.errors import Template as TemplateError
from cortiq.errors import UsageError
from cortiq.text.template_environment import Renderer
from cortiq.text.tokenizer import Tokenizer

CHATML_DEFAULT = "chatml-default"
FROM_FILE = "file"

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)

RESERVED = frozenset({"chat_template", "tokenize", "messages", "raise_exception", "strftime_now"})


class ChatTemplate:
    """A compiled chat template.

    ``template`` is the Jinja text of ``header.tokenizer_config.chat_template``, or None for ChatML; ``source`` is
    ``"file"`` or ``"chatml-default"`` accordingly. Token strings that are None stay undefined in the template.
    Raises errors.Template when the template does not compile.
    """

    def __init__(
        self,
        template: str | None,
        bos_token: str | None = None,
        eos_token: str | None = None,
        *,
        extra_tokens: Mapping[str, str] | None = None,
        now: datetime | None = None,
    ) -> None:
        self.source = CHATML_DEFAULT if template is None else FROM_FILE
        self.text = CHATML if template is None else template
        tokens = {"bos_token": bos_token, "eos_token": eos_token, **(extra_tokens or {})}
        self._tokens = {name: value for name, value in tokens.items() if value is not None}
        self._renderer = Renderer(self.text, now)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **variables: Any,
    ) -> str:
        """The prompt text of a chat; encode it with ``add_special_tokens=False``.

        ``messages`` are mappings with at least ``role``; further ``variables`` reach the template as they are
        (``enable_thinking``, ``documents`` ...). Raises UsageError for malformed messages or a reserved variable,
        errors.Template when the template fails or refuses the chat.
        """
        if taken := RESERVED & variables.keys():
            raise UsageError(f"{', '.join(sorted(taken))} cannot be given to a template", code="template_variable")
        given = {"documents": None, **variables}
        return self._renderer.render(
            {
                **self._tokens,
                "messages": [_message(index, message) for index, message in enumerate(messages)],
                "tools": None if tools is None else [dict(tool) for tool in tools],
                "add_generation_prompt": add_generation_prompt,
                **given,
            }
        )


def _message(index: int, message: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise UsageError(f"message {index} must be a mapping with a role", code="messages")
    return dict(message)


def end_of_turn_tokens(template: ChatTemplate, tokenizer: Tokenizer) -> tuple[int, ...]:
    """Ids that end the assistant's turn, found by rendering one and looking at what follows its text.

    Empty when the turn does not end in a token of its own (plain-text templates), or when the template refuses every
    probe. Add the result to the stop ids of the file.
    """
    mark = "Zq7wKx"
    answer = {"role": "assistant", "content": mark}
    probes: list[list[dict[str, str]]] = [
        [{"role": "user", "content": "Hi"}, answer],
        [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "Hi"}, answer],
    ]
    for messages in probes:
        try:
            text = template.render(messages, add_generation_prompt=False)
        except TemplateError as error:
            if error.code == "raised":
                continue
            raise
        if mark in text:
            tail = text.rpartition(mark)[2].lstrip()
            ids = tokenizer.encode(tail, add_special_tokens=False) if tail else []
            return tuple(i for i in ids[:1] if i in tokenizer.added_ids)
    return ()
