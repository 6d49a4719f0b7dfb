"""Number lists of ``bench``."""

from __future__ import annotations

import click
import pytest

from cortiq.cli.ranges import NumberList, PromptAndGeneration


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("512", (512,)),
        ("0", (0,)),
        ("1,2", (1, 2)),
        ("1-4", (1, 2, 3, 4)),
        ("128-512+128", (128, 256, 384, 512)),
        ("1-16*2", (1, 2, 4, 8, 16)),
        ("1-10*3,7", (1, 3, 9, 7)),
    ],
)
def test_lists_and_ranges(text: str, numbers: tuple[int, ...]) -> None:
    assert NumberList().convert(text, None, None) == numbers


@pytest.mark.parametrize("text", ["", "a", "1,", "-1", "4-1", "1-4+0", "1-4*1", "0-4*2", "1-99999999", "1.5"])
def test_what_is_no_list(text: str) -> None:
    with pytest.raises(click.BadParameter):
        NumberList().convert(text, None, None)


def test_least() -> None:
    with pytest.raises(click.BadParameter, match="less than 1"):
        NumberList(1).convert("0,1", None, None)


def test_pairs() -> None:
    assert PromptAndGeneration().convert("512,128", None, None) == (512, 128)
    for text in ("512", "0,1", "1,2,3", "a,b"):
        with pytest.raises(click.BadParameter):
            PromptAndGeneration().convert(text, None, None)
