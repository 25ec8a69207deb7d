# SPDX-License-Identifier: Apache-2.0
"""The host side of a launch: what the vector kernel refuses, how it is cut, which path is taken."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kernels.ascendc.harness import build
from tests.kernels.ascendc.harness.program import run_program

USABLE_BYTES = 192 * 1024 - 256 - 8 * 1024
CORES = 48


@dataclass
class Choice:
    verdict: str
    span: int
    buffers: int
    cores: int
    bytes: int
    vector_us: float
    two_matmuls_us: float
    one_matmul_us: float
    path: str


@pytest.fixture(scope="module")
def chooser(compiler: str) -> Path:
    return build.choices()


def choose(
    chooser: Path,
    plan: tuple[int, int, int, int],
    tokens: int = 64,
    slices: int = 3,
    *,
    element_bytes: int = 2,
    norm: int = 0,
    channel: int = 0,
    cores: int = CORES,
) -> Choice:
    request = " ".join(map(str, (*plan, tokens, slices, element_bytes, norm, channel, cores)))
    done = run_program([str(chooser)], stdin=request, timeout_s=60)
    assert done.returncode == 0, done.stderr
    fields = done.stdout.rstrip("\n").split("\t")
    return Choice(fields[0], *map(int, fields[1:5]), *map(float, fields[5:8]), fields[8])


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        ((4096, 4096, 1, 4000), "not a power of two"),
        ((4096, 2048, 1, 4096), "not factor times power of two"),
        ((5120, 4096, 1, 4096), "does not divide"),
        ((0, 0, 0, 0), "a size is zero"),
        ((5120, 5120, 160, 32), "factor 160"),
        ((2560, 2560, 40, 64), "factor 40"),
        ((4096, 4096, 2, 2048), "factor 2"),
        ((4096, 4096, 4096, 1), "below 16"),
        ((1024, 8, 1, 8), "below 16"),
        ((896, 896, 28, 32), "multiple of 256"),
        ((16384, 16384, 1, 16384), "does not fit"),
    ],
)
def test_refusals_say_why(chooser: Path, plan: tuple[int, int, int, int], reason: str) -> None:
    choice = choose(chooser, plan)
    assert reason in choice.verdict
    assert choice.path != "vector"


def test_more_hidden_states_than_the_kernel_has_pointers(chooser: Path) -> None:
    assert "9 hidden states" in choose(chooser, (4096, 4096, 1, 4096), slices=9).verdict


@pytest.mark.parametrize("norm", (0, 1, 2))
@pytest.mark.parametrize("element_bytes", (2, 4))
@pytest.mark.parametrize(
    "plan",
    [
        (2048, 2048, 1, 2048),
        (4096, 4096, 1, 4096),
        (5120, 1024, 1, 1024),
        (6144, 6144, 12, 512),
        (7168, 7168, 28, 256),
        (8192, 8192, 1, 8192),
        (16384, 1024, 1, 1024),
        (12288, 512, 1, 512),
    ],
)
def test_cuts_fit_the_unified_buffer(
    chooser: Path, plan: tuple[int, int, int, int], element_bytes: int, norm: int
) -> None:
    choice = choose(chooser, plan, element_bytes=element_bytes, norm=norm)
    if norm and plan[0] > 8192:
        # A norm needs the whole row at once.
        assert "does not fit" in choice.verdict
        return
    assert choice.verdict == "takes it"
    assert choice.bytes <= USABLE_BYTES
    assert plan[0] % choice.span == 0
    assert choice.span % plan[1] == 0
    if norm:
        assert choice.span == plan[0]


def test_idle_cores_get_blocks_of_a_row(chooser: Path) -> None:
    plan = (7168, 1024, 1, 1024)
    assert choose(chooser, plan, tokens=1).cores == 21
    assert choose(chooser, plan, tokens=16).span == 7168
    assert choose(chooser, plan, tokens=1, norm=1, channel=1).cores == 3
    assert choose(chooser, plan, tokens=0).cores == 0


@pytest.mark.parametrize("tokens", (1, 16, 64, 256, 1024, 4096))
@pytest.mark.parametrize(
    ("plan", "path"),
    [
        ((2048, 2048, 1, 2048), "vector"),
        ((4096, 4096, 1, 4096), "vector"),
        ((8192, 8192, 1, 8192), "vector"),
        ((5120, 1024, 1, 1024), "vector"),
        ((6144, 6144, 12, 512), "vector"),
        ((7168, 7168, 28, 256), "vector"),
        ((5120, 5120, 160, 32), "two"),
        ((2560, 2560, 160, 16), "two"),
        ((4096, 4096, 4096, 1), "one"),
    ],
)
def test_path(chooser: Path, plan: tuple[int, int, int, int], path: str, tokens: int) -> None:
    """What the kernel takes goes to it at every T, large factors and dense Q to matmuls."""
    assert choose(chooser, plan, tokens).path == path
