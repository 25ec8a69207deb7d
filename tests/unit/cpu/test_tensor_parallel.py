# SPDX-License-Identifier: Apache-2.0
"""Two tensor-parallel ranks: the parts that each loads must add up to the whole layer."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.multiprocessing

from tests.unit.cpu.two_ranks import (
    EXPERTS,
    TOP_K,
    inputs,
    layers_of_case,
    router_logits,
    run_rank,
    shared_memory_name,
)

#: fp32 sums of two ranks' parts, relative to the largest output.
TOLERANCE = 1e-6


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, torch.Tensor]]:
    folder: Path = tmp_path_factory.mktemp("ranks")
    try:
        torch.multiprocessing.spawn(run_rank, args=(str(folder / "store"), str(folder)), nprocs=2)
    finally:
        for left_over in Path("/dev/shm").glob(f"{shared_memory_name(os.getpid())}-*"):
            left_over.unlink()  # vLLM leaves its ranks' shared memory behind
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


def assert_close(output: torch.Tensor, expected: np.ndarray) -> None:
    error = np.abs(output.to(torch.float64).numpy() - expected).max()
    assert error <= TOLERANCE * np.abs(expected).max()


@pytest.mark.parametrize("case", ["row_static", "row_static_without_bias"])
def test_row_parallel_static(outputs: list[dict[str, torch.Tensor]], case: str) -> None:
    (stored,) = layers_of_case(case).values()
    assert_close(outputs[0][case] + outputs[1][case], stored.expected(inputs(192)))


def test_row_parallel_dynamic(outputs: list[dict[str, torch.Tensor]]) -> None:
    """Each rank scales the tokens of its own slice, as vLLM does for other formats, so the sum
    differs from the whole layer by the quantisation itself: two steps of 1/127 per operand."""
    (stored,) = layers_of_case("row_dynamic").values()
    expected = stored.expected(inputs(192))
    total = outputs[0]["row_dynamic"] + outputs[1]["row_dynamic"]
    error = np.abs(total.to(torch.float64).numpy() - expected)
    assert np.linalg.norm(error) <= 2 / 127 * np.linalg.norm(expected)


def test_merged_column_parallel(outputs: list[dict[str, torch.Tensor]]) -> None:
    whole = [layer.expected(inputs(192)) for layer in layers_of_case("gate_up_dynamic").values()]
    for rank in range(2):
        rows = slice(rank * 32, (rank + 1) * 32)
        expected = np.concatenate([part[:, rows] for part in whole], axis=1)
        got = outputs[rank]["gate_up_dynamic"].to(torch.float64).numpy()
        assert np.median(np.abs(got - expected)) <= TOLERANCE * np.abs(expected).max()


def test_qkv_parallel_with_a_shared_kv_head(outputs: list[dict[str, torch.Tensor]]) -> None:
    q, k, v = (layer.expected(inputs(192)) for layer in layers_of_case("qkv_static").values())
    for rank in range(2):
        expected = np.concatenate([q[:, rank * 96 : (rank + 1) * 96], k, v], axis=1)
        assert_close(outputs[rank]["qkv_static"], expected)


def test_experts_split_over_ranks(outputs: list[dict[str, torch.Tensor]]) -> None:
    """The layer adds the ranks up itself; as for a row-parallel layer, each rank scales the inner
    activations of its own half."""
    expected = EXPERTS.expected(inputs(48), router_logits(6), TOP_K)
    assert torch.equal(outputs[0]["experts_split"], outputs[1]["experts_split"])
    error = np.abs(outputs[0]["experts_split"].to(torch.float64).numpy() - expected)
    assert np.linalg.norm(error) <= 2 / 127 * np.linalg.norm(expected)


def test_experts_on_one_rank_each(outputs: list[dict[str, torch.Tensor]]) -> None:
    """``--enable-expert-parallel``: whole experts, so the sum is exact."""
    expected = EXPERTS.expected(inputs(48), router_logits(6), TOP_K)
    assert torch.equal(outputs[0]["experts_by_rank"], outputs[1]["experts_by_rank"])
    assert_close(outputs[0]["experts_by_rank"], expected)
