"""Text: tokenizer, chat template, streaming detokenizer, stop strings (SPEC 6). Knows only ``cortiq.errors``."""

from __future__ import annotations

from cortiq.text.chat_template import ChatTemplate, end_of_turn_tokens
from cortiq.text.detokenizer import Detokenizer
from cortiq.text.stop import StopStrings
from cortiq.text.tokenizer import Tokenizer

__all__ = ["ChatTemplate", "Detokenizer", "StopStrings", "Tokenizer", "end_of_turn_tokens"]
