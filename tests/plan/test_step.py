"""Sequences, limits and refusals of a finished plan; no heap memory per step; cancelling; forking."""

from __future__ import annotations

import os
import threading
import time

import numpy as np
import pytest

from builders.tiny_plan import Shape, TinyModel, run
from cortiq import _native
from cortiq.errors import CortiqError, Limit, ShapeMismatch, UnsupportedFeature, UsageError

MODEL = TinyModel(Shape(dtypes=("q8_row", "f16")))
VOCAB = MODEL.shape.vocab
TOKENS = [int(t) for t in np.random.default_rng(3).integers(0, VOCAB, 100)]


@pytest.fixture
def plan() -> _native.Plan:
    return MODEL.plan(isa=_native.best_isa(), mode="fast", threads=2, context=120, max_tokens=64)


def code(error: pytest.ExceptionInfo[CortiqError]) -> str:
    return error.value.code


def test_steps_allocate_nothing(plan: _native.Plan) -> None:
    assert plan.stats()["allocations"] > 0  # the counter counts
    s, other = plan.new_sequence(), plan.new_sequence()
    run(plan, VOCAB, [(s, TOKENS[:60])])
    assert plan.stats()["heap_allocations_last_step"] == 0
    for token in TOKENS[60:]:
        run(plan, VOCAB, [(s, [token]), (other, [token])])
        assert plan.stats()["heap_allocations_last_step"] == 0


def test_sequences_are_counted_and_reused(plan: _native.Plan) -> None:
    handles = [plan.new_sequence() for _ in range(4)]
    with pytest.raises(Limit) as error:
        plan.new_sequence()
    assert code(error) == "sequences"
    run(plan, VOCAB, [(handles[2], TOKENS[:5])])
    assert plan.length(handles[2]) == 5
    plan.free_sequence(handles[2])
    again = plan.new_sequence()
    assert plan.length(again) == 0
    for handle in (-1, 4):
        with pytest.raises(UsageError):
            plan.length(handle)


def test_used_blocks_do_not_leak_into_a_new_sequence(plan: _native.Plan) -> None:
    first = plan.new_sequence()
    fresh = run(plan, VOCAB, [(first, TOKENS[:40])])
    plan.free_sequence(first)
    filler = plan.new_sequence()
    run(plan, VOCAB, [(filler, TOKENS[40:])])
    plan.free_sequence(filler)
    second = plan.new_sequence()
    np.testing.assert_array_equal(run(plan, VOCAB, [(second, TOKENS[:40])]), fresh)


def test_truncate_goes_back_in_time(plan: _native.Plan) -> None:
    s = plan.new_sequence()
    expected = run(plan, VOCAB, [(s, TOKENS[:50])])
    run(plan, VOCAB, [(s, TOKENS[60:90])])
    plan.truncate(s, 37)
    assert plan.length(s) == 37
    np.testing.assert_array_equal(run(plan, VOCAB, [(s, TOKENS[37:50])]), expected[37:])
    plan.truncate(s, 0)
    np.testing.assert_array_equal(run(plan, VOCAB, [(s, TOKENS[:50])]), expected)
    with pytest.raises(UsageError) as error:
        plan.truncate(s, 51)
    assert code(error) == "length"


def test_a_window_forgets() -> None:
    p = MODEL.with_shape(windows=(8,)).plan(context=4096, max_tokens=128, max_sequences=1)
    s = p.new_sequence()
    for _ in range(12):
        run(p, VOCAB, [(s, TOKENS)])
    with pytest.raises(UsageError) as error:
        p.truncate(s, 1000)
    assert code(error) == "window"
    assert p.length(s) == 1200
    p.truncate(s, 1150)
    # a window keeps a fixed number of blocks, however long the sequence
    before = p.stats()["kv_bytes"]
    for _ in range(20):
        run(p, VOCAB, [(s, TOKENS)])
    assert p.stats()["kv_bytes"] == before


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [([VOCAB], "token"), ([-1], "token"), ([0] * 65, "max_tokens"), ([], "batch")],
)
def test_refused_tokens(plan: _native.Plan, tokens: list[int], expected: str) -> None:
    s = plan.new_sequence()
    with pytest.raises(UsageError) as error:
        run(plan, VOCAB, [(s, tokens)])
    assert code(error) == expected
    assert plan.length(s) == 0


def test_refused_batches(plan: _native.Plan) -> None:
    s = plan.new_sequence()
    with pytest.raises(UsageError):
        run(plan, VOCAB, [(s, [1]), (s, [2])])
    with pytest.raises(UsageError):
        run(plan, VOCAB, [(3, [1])])
    with pytest.raises(UsageError):
        plan.step(
            *(np.array(a, np.int32) for a in ([s], [2], [1])), np.ones(1, np.uint8), np.zeros((1, VOCAB), np.float32)
        )
    with pytest.raises(ShapeMismatch):
        run(plan, VOCAB - 1, [(s, [1])])
    arrays = [np.array(a, np.int32) for a in ([s], [2], [1, 2])]
    with pytest.raises(UsageError) as error:
        plan.step(*arrays, np.ones(2, np.uint8), np.zeros((1, VOCAB), np.float32))
    assert code(error) == "max_outputs"
    assert plan.length(s) == 0


def test_results_never_go_into_a_copy(plan: _native.Plan) -> None:
    s = plan.new_sequence()
    arrays = [np.array(a, np.int32) for a in ([s], [1], [1])]
    wide = np.zeros((1, 2 * VOCAB), np.float32)
    for out in (np.zeros((1, VOCAB)), wide[:, ::2]):
        with pytest.raises(TypeError):
            plan.step(*arrays, np.ones(1, np.uint8), out)
    with pytest.raises(TypeError):
        plan.step(arrays[0].astype(np.int64), arrays[1], arrays[2], np.ones(1, np.uint8), wide[:, :VOCAB].copy())
    assert plan.length(s) == 0


def test_context_is_a_limit(plan: _native.Plan) -> None:
    s = plan.new_sequence()
    run(plan, VOCAB, [(s, TOKENS[:60])])
    run(plan, VOCAB, [(s, TOKENS[:60])])
    with pytest.raises(UsageError) as error:
        run(plan, VOCAB, [(s, [1])])
    assert code(error) == "context"


def test_only_slot_zero(plan: _native.Plan) -> None:
    with pytest.raises(UnsupportedFeature):
        plan.new_sequence(slot=1)


def test_cancel_ends_the_next_step_and_changes_nothing(plan: _native.Plan) -> None:
    s = plan.new_sequence()
    run(plan, VOCAB, [(s, TOKENS[:40])])
    plan.cancel()
    with pytest.raises(CortiqError) as error:
        run(plan, VOCAB, [(s, TOKENS[40:80])])
    assert code(error) == "cancelled"
    assert plan.length(s) == 40
    rest = run(plan, VOCAB, [(s, TOKENS[40:80])])
    other = plan.new_sequence()
    run(plan, VOCAB, [(other, TOKENS[:60])])
    np.testing.assert_array_equal(run(plan, VOCAB, [(other, TOKENS[60:80])]), rest[20:])


def test_cancel_from_another_thread() -> None:
    p = MODEL.with_shape(windows=(0,) * 12).plan(isa="scalar", threads=2, max_tokens=128)
    s = p.new_sequence()
    start = time.monotonic()
    run(p, VOCAB, [(s, TOKENS)])
    whole = time.monotonic() - start
    timer = threading.Timer(whole / 8, p.cancel)
    timer.start()

    def again_and_again() -> None:
        for _ in range(50):
            p.truncate(s, 0)
            run(p, VOCAB, [(s, TOKENS)])

    with pytest.raises(CortiqError) as error:
        again_and_again()
    timer.join()
    assert code(error) == "cancelled"


@pytest.mark.parametrize("threads", [2, 3])
def test_thousands_of_steps(threads: int) -> None:
    """Short phases, more threads than processors: hand-overs in every order, sleeping and awake."""
    small = MODEL.with_shape(windows=(0,), hidden=32, ffn=32)
    p, expected = small.plan(isa=_native.best_isa(), threads=threads), small.plan(isa=_native.best_isa())
    a, b = p.new_sequence(), expected.new_sequence()
    for i in range(1500):
        if i % 100 == 0:
            p.truncate(a, 0)
            expected.truncate(b, 0)
        if i % 40 == 0:
            time.sleep(0.0015)  # long enough for workers to fall asleep
        token = [TOKENS[i % 100]]
        np.testing.assert_array_equal(run(p, VOCAB, [(a, token)]), run(expected, VOCAB, [(b, token)]))


def test_plan_works_after_fork(plan: _native.Plan) -> None:
    s = plan.new_sequence()
    run(plan, VOCAB, [(s, TOKENS[:30])])
    child = os.fork()
    if child == 0:
        status = 1
        try:
            logits = run(plan, VOCAB, [(s, TOKENS[30:40])])
            status = 0 if np.isfinite(logits).all() else 2
        finally:
            os._exit(status)
    deadline = time.monotonic() + 20
    pid, status = os.waitpid(child, os.WNOHANG)
    while pid == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
        pid, status = os.waitpid(child, os.WNOHANG)
    if pid == 0:
        os.kill(child, 9)
        os.waitpid(child, 0)
    assert (pid, status) == (child, 0)
    assert np.isfinite(run(plan, VOCAB, [(s, TOKENS[30:40])])).all()


def test_owner_of_a_tensor_stays_alive() -> None:
    class Owner:
        alive = True

        def __del__(self) -> None:
            type(self).alive = False

    values = np.ones((4, 8), np.float32)
    p = _native.Plan("scalar", "fast", 1, 1, 1, 32, 1, "f16")
    owner = Owner()
    p.tensor(owner, 0, 4, 8, values.ctypes.data, values.nbytes, values.ctypes.data + values.nbytes)
    del owner
    assert Owner.alive
    del p
    assert not Owner.alive
