from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from cortiq.errors import UsageError
from cortiq.quantize import VbitBudget, read_route_stats
from cortiq.quantize.vbit_budget import RouteCounts

EXPERT = "model.layers.{}.mlp.experts.{}.{}_proj.weight"


def levels(*values: float) -> NDArray[np.float32]:
    return np.float32(values)


def family(*amplitudes: NDArray[np.float32], layer: int = 0, part: str = "up") -> dict[str, NDArray[np.float32]]:
    return {EXPERT.format(layer, expert, part): rows for expert, rows in enumerate(amplitudes)}


def widths(budget: VbitBudget, amplitudes: dict[str, NDArray[np.float32]]) -> list[list[int]]:
    return [bits.tolist() for bits in budget.allocate(amplitudes).values()]


def test_a_tensor_has_its_own_budget() -> None:
    rows = levels(-4, -5, -6, -3, -2)
    assert widths(VbitBudget(), {"a": rows, "b": rows + 7}) == [[4, 3, 3, 5, 6]] * 2
    assert widths(VbitBudget(6.0), {"a": rows}) == [[6, 5, 4, 6, 8]]


def test_bits_are_cut_to_thousandths() -> None:
    assert VbitBudget(4.4999).target == 4.499
    assert widths(VbitBudget(4.5006), {"a": levels(-1, -1)}) == [[4, 4]]
    assert widths(VbitBudget(4.501), {"a": levels(-1, -1)}) == [[5, 5]]


def test_a_loud_expert_gets_more_bits_than_a_quiet_one() -> None:
    # Means -1 and -3, shifts +1 and -1: 5 and 3 bits.
    loud, quiet = levels(-1, -1, -1, -1), levels(-3, -3, -3, -3)
    assert widths(VbitBudget(4.0), family(loud, quiet)) == [[5] * 4, [3] * 4]


def test_the_mean_over_a_family_is_the_budget() -> None:
    rng = np.random.default_rng(0)
    experts = family(*(rng.normal(mean, 0.7, 500).astype(np.float32) for mean in (-6, -5, -4.5, -3)))
    for mean_bits in (3.5, 4.25, 5.5, 6.0):
        allocated = VbitBudget(mean_bits).allocate(experts)
        bits = np.concatenate(list(allocated.values()))
        assert abs(bits.mean() - mean_bits) < 0.01
        assert list(allocated) == list(experts)
        assert allocated[EXPERT.format(0, 0, "up")].mean() < allocated[EXPERT.format(0, 3, "up")].mean()


def test_shifts_are_limited() -> None:
    near = family(levels(*[-1] * 8), levels(*[-6] * 8))
    far = family(levels(*[-1] * 8), levels(*[-60] * 8))
    assert widths(VbitBudget(5.0), near) == widths(VbitBudget(5.0), far)


def test_layers_and_projections_are_families_of_their_own() -> None:
    one = family(levels(-1, -1), levels(-3, -3))
    other = family(levels(-9, -9), levels(-9, -9), layer=1)
    third = family(levels(-3, -3), levels(-1, -1), part="down")
    together = VbitBudget().allocate({**one, **other, **third})
    for alone in (one, other, third):
        for name, bits in VbitBudget().allocate(alone).items():
            np.testing.assert_array_equal(together[name], bits)


def test_the_order_of_experts_does_not_matter() -> None:
    rng = np.random.default_rng(1)
    experts = family(*(rng.normal(mean, 1, 300).astype(np.float32) for mean in rng.normal(-5, 1, 12)))
    backwards = dict(reversed(experts.items()))
    forwards = VbitBudget().allocate(experts)
    for name, bits in VbitBudget().allocate(backwards).items():
        np.testing.assert_array_equal(forwards[name], bits)


def counted(counts: RouteCounts) -> list[list[int]]:
    even = family(*(levels(-4, -4) for _ in range(4)), layer=2)
    return widths(VbitBudget(5.0, counts), even)


def test_experts_that_are_selected_often_get_more_bits() -> None:
    # log2(count + 1) is 3, 3, 1, 1, the mean 2: shifts +1, +1, -1, -1.
    assert counted({2: (7, 7, 1, 1)}) == [[6, 6], [6, 6], [4, 4], [4, 4]]
    assert counted({2: (5, 5, 5, 5)}) == counted({0: (7, 7, 1, 1)}) == [[5, 5]] * 4


def test_statistics_must_cover_the_experts() -> None:
    with pytest.raises(UsageError, match="layer 2") as raised:
        counted({2: (7, 7, 1)})
    assert raised.value.kind == "UsageError.route_stats"
    assert raised.value.tensor == EXPERT.format(2, 3, "up")


@pytest.mark.parametrize("mean_bits", [2.99, 8.01, float("nan")])
def test_budgets_no_width_can_meet_are_refused(mean_bits: float) -> None:
    with pytest.raises(UsageError) as raised:
        VbitBudget(mean_bits)
    assert raised.value.kind == "UsageError.mean_bits"


def test_statistics_are_read(tmp_path: Path) -> None:
    path = tmp_path / "stats.json"
    path.write_text('{"0":[3,37,47,3],"2":[127,0]}')
    assert read_route_stats(path) == {0: (3, 37, 47, 3), 2: (127, 0)}


@pytest.mark.parametrize(
    "document",
    [
        None,
        "{",
        "[1]",
        '{"x": [1]}',
        '{"0": []}',
        '{"0": [1, -1]}',
        '{"0": [1.5]}',
        '{"0": [true]}',
        '{"0": 3}',
        '{"0": ' + "[" * 100_000,
    ],
)
def test_other_statistics_are_refused(document: str | None, tmp_path: Path) -> None:
    path = tmp_path / "stats.json"
    if document is not None:
        path.write_text(document)
    with pytest.raises(UsageError) as raised:
        read_route_stats(path)
    assert raised.value.kind == "UsageError.route_stats"
    assert raised.value.path == str(path)
