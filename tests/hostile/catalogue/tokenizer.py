"""F: tokenizer and chat template (SPEC 6, 6.1). Both are judged when a model is loaded or serves, not at opening."""

from __future__ import annotations

from hostile.row import Row

LOADING = "loading a tokenizer in a limited child process"
SERVER = "the server"

ROWS = (
    Row("F1", "a tokenizer section that is no tokenizer", later=LOADING),
    Row("F2", "ids with gaps, repeated, negative, beyond the embedding", later=LOADING),
    Row("F3", "merges of unknown tokens, too many merges", later=LOADING),
    Row("F4", "a regular expression that does not end", later=LOADING),
    Row("F5", "a normalizer that grows its text", later=LOADING),
    Row("F6", "absurd padding and truncation", later=LOADING),
    Row("F7", "parts that make the library panic", later=LOADING),
    Row("F8", "added tokens: empty, repeated, too many", later=LOADING),
    Row("F9", "a tokenizer nested 2,000 levels deep", later=LOADING),
    Row("F10", "control tokens in a user's text", later=SERVER),
    Row("F11", "a template that reaches for Python objects", later="held by tests/text/test_template_guard.py so far"),
    Row("F12", "a template that does not end or fills the memory", later="rendering in a limited child process"),
    Row("F13", "a template nested too deeply", later="rendering in a limited child process"),
    Row("F14", "a template of 10 MB, or one that raises", later="rendering in a limited child process; " + SERVER),
    Row("F15", "a template in a request", later=SERVER),
    Row("F16", "stop ids: none, null, two, one that never comes", later="a row for generation"),
)
