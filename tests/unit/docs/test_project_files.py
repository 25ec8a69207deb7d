# SPDX-License-Identifier: Apache-2.0
"""CONTRIBUTING and CHANGELOG say what is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import vllm_eagle3_quarot

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/zh/contributing.md", ".ci/run"])
def test_commands_are_targets_of_the_makefile(page: str) -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    named = re.findall(
        r"(?:`|^)make ([a-z][\w-]*)", (ROOT / page).read_text(encoding="utf-8"), re.M
    )
    assert len(named) > 5
    assert set(named) <= set(targets)


@pytest.mark.parametrize("page", ["CHANGELOG.md", "docs/zh/changelog.md"])
def test_the_newest_entry_is_this_version(page: str) -> None:
    entries = re.findall(r"^## ([\w.]+)", (ROOT / page).read_text(encoding="utf-8"), re.M)
    assert entries[0] == vllm_eagle3_quarot.__version__
