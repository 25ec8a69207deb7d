# SPDX-License-Identifier: Apache-2.0
"""Texts that go in circles.

A model that repeats itself is easy to draft for, so an acceptance rate that was measured on such
texts says little about others.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

#: A word, or one sign of a script that is written without spaces.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff]+")

#: Shorter texts are not judged.
FEWEST_PAIRS = 16

#: Share of different ones among the pairs of neighbouring words below which a text goes in circles:
#: prose of some hundred words has 0.8 and more, tables and code about 0.5.
LOWEST_SHARE = 0.25

#: Share of such texts from which a measurement is flagged.
FLAGGED_SHARE = 0.1


def is_degenerate(text: str) -> bool:
    """True when pairs of neighbouring words keep coming back."""
    words = _WORD.findall(text.lower())
    pairs = list(itertools.pairwise(words))
    return len(pairs) >= FEWEST_PAIRS and len(set(pairs)) < LOWEST_SHARE * len(pairs)


def count_degenerate(texts: Sequence[str]) -> int:
    """How many of ``texts`` go in circles."""
    return sum(map(is_degenerate, texts))
