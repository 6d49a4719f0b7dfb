"""The one holder of a native plan: serialises its steps and hands out sequences.

A sequence remembers the tokens it has evaluated, so a later request that begins alike only evaluates the rest. By the
determinism of the plan that gives the same logits bit for bit.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cortiq.errors import CortiqError, UsageError
from cortiq.model.loader import LoadedPlan

if TYPE_CHECKING:
    from cortiq._native import Plan

F32 = NDArray[np.float32]
I32 = NDArray[np.int32]
U8 = NDArray[np.uint8]
# From this many rows on a step is long enough to be worth a thread that Ctrl-C can interrupt.
_LONG_STEP = 32


class Runner:
    """Steps of one plan, safe to call from several threads."""

    def __init__(self, loaded: LoadedPlan) -> None:
        self.info = loaded.info
        self._plan: Plan | None = loaded.plan
        self._stepping = threading.Lock()
        self._changed = threading.Condition()
        self._idle = [PlanSequence(self) for _ in range(loaded.info.max_sequences)]
        self._busy: dict[PlanSequence, int] = {}
        self._stale_cancel = False

    @property
    def plan(self) -> Plan:
        """The native plan. Raises UsageError (``closed``) after :meth:`close`."""
        if self._plan is None:
            raise UsageError("the model is closed", code="closed")
        return self._plan

    def check_open(self) -> None:
        """Raises UsageError (``closed``) after :meth:`close`."""
        _ = self.plan

    @contextmanager
    def sequence(self, prompt: Sequence[int] = ()) -> Iterator[PlanSequence]:
        """A sequence of one's own, the idle one that shares the longest prefix with ``prompt``.

        Waits for another thread to give one back. Raises UsageError (``busy``) when this thread itself holds them
        all, as with an unfinished stream, and (``closed``). Left by an exception, the sequence forgets everything:
        how far it came is not known.
        """
        sequence = self._acquire(prompt)
        try:
            yield sequence
        except GeneratorExit:
            raise
        except BaseException:
            if self._plan is not None:
                sequence.reset()
            raise
        finally:
            self._release(sequence)

    def close(self) -> None:
        """Waits for the running step, then lets go of the plan."""
        with self._changed, self._stepping:
            self._plan = None
            self._changed.notify_all()

    def step(self, rows: Rows, out: F32) -> int:
        """One native step. Returns the number of rows written to ``out`` f32 [rows, vocab]."""
        with self._stepping:
            try:
                return self._step(rows, out)
            except CortiqError as error:
                if error.code != "cancelled" or not self._stale_cancel:
                    raise
                self._stale_cancel = False
                return self._step(rows, out)

    def _step(self, rows: Rows, out: F32) -> int:
        """Runs a long step of the main thread beside it: only the main thread sees Ctrl-C, and then cancels."""
        plan = self.plan
        if rows.tokens.size < _LONG_STEP or threading.current_thread() is not threading.main_thread():
            return plan.step(rows.handles, rows.counts, rows.tokens, rows.wanted, out)
        written: list[int] = []
        failure: list[BaseException] = []

        def work() -> None:
            try:
                written.append(plan.step(rows.handles, rows.counts, rows.tokens, rows.wanted, out))
            except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
                failure.append(error)

        worker = threading.Thread(target=work, name="cortiq-step")
        worker.start()
        try:
            worker.join()
        except BaseException:
            plan.cancel()
            worker.join()
            # A step that was through before it heard of it leaves the order to the next one.
            self._stale_cancel = bool(written)
            raise
        if failure:
            raise failure[0]
        return written[0]

    def _acquire(self, prompt: Sequence[int]) -> PlanSequence:
        me = threading.get_ident()
        with self._changed:
            while not self._idle:
                if all(owner == me for owner in self._busy.values()):
                    raise UsageError(
                        f"all {len(self._busy)} sequences are in use by this thread: finish or close a stream, "
                        "or load the model with more max_sequences",
                        code="busy",
                    )
                self._changed.wait()
            self.check_open()
            best = max(self._idle, key=lambda sequence: sequence.common_prefix(prompt))
            self._idle.remove(best)
            self._busy[best] = me
            return best

    def _release(self, sequence: PlanSequence) -> None:
        with self._changed:
            del self._busy[sequence]
            self._idle.append(sequence)
            self._changed.notify()


@dataclass(frozen=True, slots=True)
class Rows:
    """Arguments of a step: handle and count i32 [sequences], tokens i32 [sum], wanted u8 [sum]."""

    handles: I32
    counts: I32
    tokens: I32
    wanted: U8


class PlanSequence:
    """One sequence of the plan with its arrays. Only its holder may use it."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._handle: I32 = np.array([runner.plan.new_sequence(slot=0)], np.int32)
        self._logits: F32 = np.empty((1, runner.info.facts.vocab), np.float32)
        self._one = Rows(self._handle, np.ones(1, np.int32), np.zeros(1, np.int32), np.ones(1, np.uint8))
        self._tokens: list[int] = []

    @property
    def length(self) -> int:
        """Number of positions evaluated."""
        return len(self._tokens)

    def common_prefix(self, tokens: Sequence[int]) -> int:
        """How many leading ``tokens`` the sequence has evaluated already."""
        count = 0
        for mine, other in zip(self._tokens, tokens, strict=False):
            if mine != other:
                break
            count += 1
        return count

    def rewind(self, tokens: Sequence[int]) -> int:
        """Drops what is behind the common prefix with ``tokens``; returns the length left.

        The last of ``tokens`` is never kept, its logits are needed. Nothing is kept when a windowed layer has
        forgotten what the position after the prefix sees.
        """
        keep = min(self.common_prefix(tokens), len(tokens) - 1)
        if keep < self.length:
            try:
                self._runner.plan.truncate(int(self._handle[0]), keep)
            except UsageError as error:
                if error.code != "window":
                    raise
                self.reset()
                return 0
            del self._tokens[keep:]
        return keep

    def reset(self) -> None:
        """Forgets everything."""
        self._runner.plan.truncate(int(self._handle[0]), 0)
        self._tokens.clear()

    def prefill(self, tokens: Sequence[int]) -> F32:
        """Evaluates ``tokens`` behind what is there; logits f32 [vocab] of the last, valid until the next call.

        Raises UsageError (``tokens``, ``context``) for ids outside the vocabulary and when they do not fit.
        """
        wanted: U8 = np.zeros(len(tokens), np.uint8)
        wanted[-1:] = 1
        self.score(tokens, wanted, self._logits)
        logits: F32 = self._logits[0]
        return logits

    def score(self, tokens: Sequence[int] | I32, wanted: U8, out: F32) -> None:
        """Evaluates ``tokens``; logits of the rows with ``wanted`` u8 [n] non-zero go to ``out`` f32 [rows, vocab].

        Raises as :meth:`prefill`.
        """
        ids = self._checked(tokens)
        step = self._runner.info.max_tokens
        done = 0
        for start in range(0, ids.size, step):
            part = ids[start : start + step]
            rows = Rows(self._handle, np.array([part.size], np.int32), part, wanted[start : start + part.size])
            done += self._runner.step(rows, out[done:])
            self._tokens.extend(part.tolist())

    def decode(self, token: int) -> F32:
        """Evaluates one token that is known to fit; logits f32 [vocab], valid until the next call."""
        self._one.tokens[0] = token
        self._runner.step(self._one, self._logits)
        self._tokens.append(token)
        logits: F32 = self._logits[0]
        return logits

    def _checked(self, tokens: Sequence[int] | I32) -> I32:
        ids = np.asarray(tokens)
        vocab, context = self._runner.info.facts.vocab, self._runner.info.context
        if ids.ndim != 1 or ids.size == 0 or ids.dtype.kind not in "iu" or ids.min() < 0 or ids.max() >= vocab:
            raise UsageError(f"tokens must be one or more ids from 0 to {vocab - 1}", code="tokens")
        if self.length + ids.size > context:
            raise UsageError(
                "the tokens do not fit the context: load the model with a larger one",
                code="context",
                expected=f"at most {context}",
                found=self.length + ids.size,
            )
        return ids.astype(np.int32)
