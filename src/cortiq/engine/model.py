"""The public model: an open file, its plan, its tokenizer and chat template behind a few methods."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import NDArray

import cortiq.container
from cortiq.container import File
from cortiq.container.location import check_local
from cortiq.engine.generate import Job, collect, stream
from cortiq.engine.options import GenerateOptions, file_defaults, resolve
from cortiq.engine.results import Chunk, Generation
from cortiq.engine.sampler import SamplingParams
from cortiq.engine.sequence import Runner
from cortiq.errors import Template as TemplateError
from cortiq.errors import Tokenizer as TokenizerError
from cortiq.model.loader import PlanInfo, PlanOptions, build_plan
from cortiq.settings import Settings
from cortiq.text.chat_template import ChatTemplate, end_of_turn_tokens
from cortiq.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from cortiq._native import PlanStats

# Names of the end-of-text token, for files that state no stop ids.
_END_OF_TEXT = ("<|endoftext|>", "</s>", "[EOS]")
Prompt = str | Sequence[int]
Message = Mapping[str, Any]


def load(
    path: str | os.PathLike[str] | File,
    *,
    mode: str | None = None,
    threads: int | None = None,
    isa: str | None = None,
    context: int | None = None,
    max_sequences: int = 1,
) -> Model:
    """Open a CMF file and make it ready to run.

    ``mode`` is fast (int8 activations) or exact (f32), ``threads`` the number of threads, ``isa`` scalar, avx2 or
    avx512; None leaves each to the ``CORTIQ_*`` settings and then to the machine. ``context`` is the number of
    positions of a sequence; None means what the model was made for, at most 8192. ``max_sequences`` generations can
    be under way at once. A File that is given stays open when the model is closed.

    Raises FormatError for a file that is not valid, UnsupportedArch, MissingTensor or ShapeMismatch for a model that
    cannot be run, UsageError for a setting that cannot be meant and for a URL, NativeMissing without the native core.
    """
    settings = Settings.load()
    options = PlanOptions(
        isa=isa or settings.isa,
        mode=mode or settings.mode,
        threads=settings.threads if threads is None else threads,
        context=context,
        max_sequences=max_sequences,
    )
    check_local(path.path if isinstance(path, File) else path, "running a model")
    if isinstance(path, File):
        return Model(path, options)
    file = cortiq.container.open(path)
    try:
        model = Model(file, options)
    except BaseException:
        file.close()
        raise
    model._owns_file = True
    return model


class Model:
    """A model that is ready to run; made by :func:`load`. A context manager.

    All methods may be called from several threads. Steps of the model run one after the other; up to
    ``max_sequences`` generations share it, further ones wait.
    """

    def __init__(self, file: File, options: PlanOptions) -> None:
        self.file = file
        self._owns_file = False
        self._runner = Runner(build_plan(file, options))
        self._defaults = file_defaults(file.generation)

    @property
    def info(self) -> PlanInfo:
        """What is computed and how: model facts, isa, mode, threads, context."""
        return self._runner.info

    @property
    def vocab_size(self) -> int:
        """Number of logits of a position."""
        return self.info.facts.vocab

    @property
    def context(self) -> int:
        """Positions a sequence can have."""
        return self.info.context

    @property
    def path(self) -> Path:
        """The file."""
        return Path(self.file.path)

    @property
    def runner(self) -> Runner:
        """Access to sequences, for measuring tools of this package."""
        return self._runner

    def stats(self) -> PlanStats:
        """Counters of the native plan: steps, cache memory, bytes of weights a token reads, time of the last step."""
        return self._runner.plan.stats()

    @property
    def sampling_defaults(self) -> SamplingParams:
        """What holds for options that are not given."""
        return self._defaults

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The file's tokenizer.

        Raises errors.Tokenizer when there is none, and when its own vocabulary (added tokens aside, which a model may
        not know) has ids that the embedding has no row for.
        """
        data = self.file.tokenizer_json
        if data is None:
            raise TokenizerError("the file has no tokenizer", code="absent", path=str(self.path), section="vocab")
        tokenizer = Tokenizer(data)
        if tokenizer.max_id not in tokenizer.added_ids:
            tokenizer.check_ids(self.vocab_size)
        return tokenizer

    @cached_property
    def template(self) -> ChatTemplate:
        """The file's chat template, ChatML when it has none. Raises errors.Template when it does not compile."""
        chat = self.file.header.chat
        ends = () if chat is None else chat.eos_token_ids
        template = ChatTemplate(
            None if chat is None else chat.chat_template,
            bos_token=self._token("bos_token", None if chat is None else chat.bos_token_id),
            eos_token=self._token("eos_token", ends[0] if ends else None),
        )
        if template.source != "file":
            warnings.warn("the file has no chat template; using ChatML", UserWarning, stacklevel=3)
        return template

    @cached_property
    def stop_ids(self) -> frozenset[int]:
        """Ids that end a generation: those the file states and the end-of-turn token of its chat template. Where the
        file states none, the vocabulary's end-of-text token.
        """
        chat = self.file.header.chat
        ids = set(() if chat is None else chat.eos_token_ids)
        if self.file.tokenizer_json is None:
            return frozenset(ids)
        if not ids:
            found = (self.tokenizer.token_to_id(name) for name in _END_OF_TEXT)
            ids.update(token for token in found if token is not None)
        if chat is None or chat.chat_template is None:
            return frozenset(ids)
        try:
            ids.update(end_of_turn_tokens(self.template, self.tokenizer))
        except TemplateError as error:
            warnings.warn(f"the chat template fails, its end of turn is not known: {error}", UserWarning, stacklevel=2)
        return frozenset(ids)

    def tokenize(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Ids of ``text``, with the BOS and the like that the file's tokenizer adds unless told not to.

        Raises errors.Tokenizer for a token the model has no row for.
        """
        ids = self.tokenizer.encode(text, add_special_tokens)
        if ids and max(ids) >= self.vocab_size:
            raise TokenizerError(
                "a token of the text is unknown to the model",
                code="ids",
                expected=f"< {self.vocab_size}",
                found=max(ids),
            )
        return ids

    def detokenize(self, tokens: Sequence[int], *, skip_special: bool = True) -> str:
        """Text of ``tokens``."""
        return self.tokenizer.decode(tokens, skip_special)

    def forward(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """Logits f32 [n, vocab] of every position of a sequence of n ``tokens``, from an empty context.

        Raises UsageError (``tokens``, ``context``) for ids outside the vocabulary and for more than the context holds,
        Changed for a file that was rewritten or shrank.
        """
        self._check_ready()
        with self._runner.sequence() as sequence:
            sequence.reset()
            wanted = np.ones(len(tokens), np.uint8)
            out = np.empty((len(tokens), self.vocab_size), np.float32)
            sequence.score(tokens, wanted, out)
            return out

    def generate(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> Generation:
        """Continue ``prompt``, text or ids; see :class:`GenerateOptions` for what may be given.

        Raises UsageError for an option that cannot be meant and for a prompt that is empty or does not fit, Changed for
        a file that was rewritten or shrank.
        """
        return collect(self.stream(prompt, **options))

    def stream(self, prompt: Prompt, **options: Unpack[GenerateOptions]) -> Iterator[Chunk]:
        """The same, chunk by chunk as the text comes. Close the iterator to stop early."""
        ids = self.tokenize(prompt) if isinstance(prompt, str) else [int(token) for token in prompt]
        return self._stream(ids, options)

    def chat(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Message] | None = None,
        template: Mapping[str, Any] | None = None,
        **options: Unpack[GenerateOptions],
    ) -> Generation:
        """The assistant's answer to ``messages`` (mappings with role and content).

        ``tools`` and the variables in ``template`` (such as ``enable_thinking``) go to the file's chat template.
        Raises errors.Template when that fails, and as :meth:`generate`.
        """
        return collect(self.chat_stream(messages, tools=tools, template=template, **options))

    def chat_stream(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Message] | None = None,
        template: Mapping[str, Any] | None = None,
        **options: Unpack[GenerateOptions],
    ) -> Iterator[Chunk]:
        """The same, chunk by chunk."""
        text = self.template.render(messages, tools=tools, **(template or {}))
        return self._stream(self.tokenize(text, add_special_tokens=False), options)

    def close(self) -> None:
        """Release the plan, and the file if :func:`load` opened it. Later use raises UsageError (``closed``)."""
        self._runner.close()
        if self._owns_file:
            self.file.close()

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        info = self.info
        return f"Model({str(self.path)!r}, {info.mode}, {info.isa}, {info.threads} threads, context {info.context})"

    def _stream(self, ids: list[int], options: GenerateOptions) -> Iterator[Chunk]:
        request = resolve(options, self._defaults)
        self._check_ready()
        tokenizer = None if self.file.tokenizer_json is None else self.tokenizer
        return stream(Job(self._runner, tokenizer, self.stop_ids, ids, request))

    def _check_ready(self) -> None:
        """A file that was closed by its owner keeps its bytes for the plan, and can no longer be looked at."""
        self._runner.check_open()
        if not self.file.closed:
            self.file.check_usable()

    def _token(self, key: str, token_id: int | None) -> str | None:
        """Text of a special token: as ``tokenizer_config`` spells it, else that of the id it names."""
        text = (self.file.tokenizer_config or {}).get(key)
        if isinstance(text, str):
            return text
        return None if token_id is None else self.tokenizer.id_to_token(token_id)
