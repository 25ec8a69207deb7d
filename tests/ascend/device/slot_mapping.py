# SPDX-License-Identifier: Apache-2.0
"""Stands in for the one Triton kernel that vllm-ascend's runner calls without a torch fallback."""

from __future__ import annotations

from typing import Any

import torch

from tests.kernels.npu_runtime.host_memory import memory_of


class SlotMappingKernel:
    """``kernel[(requests + 1,)](...)``: the cache slot of every token, as the kernel defines it."""

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def launch(
            tokens: int,
            max_tokens: int,
            starts: torch.Tensor,
            positions: torch.Tensor,
            block_table: torch.Tensor,
            _stride: int,
            block_size: int,
            slots: torch.Tensor,
            *,
            TOTAL_CP_WORLD_SIZE: int,
            PAD_ID: int,
            **_: int,
        ) -> None:
            if TOTAL_CP_WORLD_SIZE != 1:
                raise NotImplementedError("slot mapping with context parallelism")
            starts, positions, block_table, slots = map(
                memory_of, (starts, positions, block_table, slots)
            )
            slots[tokens:max_tokens] = PAD_ID
            for request in range(grid[0] - 1):
                span = slice(int(starts[request]), int(starts[request + 1]))
                position = positions[span].long()
                blocks = block_table[request][position // block_size].long()
                slots[span] = (blocks * block_size + position % block_size).to(slots.dtype)

        return launch


def replace_slot_mapping_kernel() -> None:
    """Put :class:`SlotMappingKernel` where vllm-ascend calls the kernel."""
    import vllm_ascend.worker.worker  # noqa: F401  # first, as in production: others are circular
    from vllm_ascend.worker import block_table

    block_table._compute_slot_mapping_kernel = SlotMappingKernel()
