# SPDX-License-Identifier: Apache-2.0
"""Texts that go in circles are told from texts that do not."""

from __future__ import annotations

import pytest

from vllm_eagle3_quarot.benchmarking.degenerate import count_degenerate, is_degenerate

PROSE = (
    "The keeper climbed the stairs every evening, lit the lamp and wrote down the ships that went "
    "by. One night the sea brought him a bottle; in it was a letter, and the letter was his own."
)
CHINESE = "守塔人每天傍晚沿着台阶上去点亮灯火并把经过的船只记在本子上有一夜海浪送来一只瓶子"


@pytest.mark.parametrize(
    "text",
    [
        "the same " * 40,
        "one two three four five six seven. " * 12,
        f"{PROSE[:40]} " + "and so on " * 60,
        "这是一个" * 20,
    ],
)
def test_circles(text: str) -> None:
    assert is_degenerate(text)


@pytest.mark.parametrize("text", ["", "yes yes yes", PROSE, CHINESE, "1, 2, 3, 4, " * 3])
def test_no_circles(text: str) -> None:
    assert not is_degenerate(text)


def test_count() -> None:
    assert count_degenerate([PROSE, "no " * 50, ""]) == 1
