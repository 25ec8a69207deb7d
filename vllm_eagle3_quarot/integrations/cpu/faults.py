# SPDX-License-Identifier: Apache-2.0
"""Repairs of vLLM's CPU platform without which speculative decoding fails there.

This file and ``detection.py`` are the only places where something of vLLM's CPU platform is
replaced. Both faults below are in vLLM 0.23.0 (``vllm/utils/cpu_triton_utils.py``, the stand-ins
for Triton kernels that the CPU model runner reads when it is built):

* ``sample_recovered_tokens``: the caller passes ``USE_FP64_GUMBEL``, which the stand-in does not
  take, so the warm-up of every speculative server ends in a ``TypeError`` (repaired upstream by
  vllm-project/vllm#46069).
* ``expand``: the stand-in writes into an int64 *copy* of its output unless the output is int64
  itself, so temperature, top-p and top-k of a batch with any non-greedy request are uninitialised
  memory (vllm-project/vllm#55005).

A repair replaces nothing that works: the first fault is seen from the signature, the second from
what the stock function does to small tensors when it is first launched.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any

import torch

logger = logging.getLogger("vllm.eagle3_quarot")

Launch = Callable[..., None]

_FP64_ARGUMENT = "USE_FP64_GUMBEL"


class _Kernel:
    """A function behind Triton's launch syntax, ``kernel[grid](...)``; the grid is ignored."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch

    def __getitem__(self, grid: object) -> Launch:
        return self._launch


def repair_faults() -> None:
    """Replace the faulty stand-ins of the running vLLM; idempotent.

    Must run before the CPU model runner is built, as a general plugin does.
    """
    try:
        from vllm.utils import cpu_triton_utils as stand_ins
    except ImportError:
        return  # this vLLM has no such stand-ins, so neither has it their faults

    recovered = getattr(stand_ins, "sample_recovered_tokens_kernel", None)
    if recovered is not None and not _accepts(recovered[(1,)], _FP64_ARGUMENT):
        stand_ins.sample_recovered_tokens_kernel = _Kernel(_without_fp64_argument(recovered[(1,)]))
        logger.debug("eagle3_quarot: CPU sample_recovered_tokens now takes %s", _FP64_ARGUMENT)

    expand = getattr(stand_ins, "expand_kernel", None)
    if expand is not None and not isinstance(expand, CheckedExpand):
        stand_ins.expand_kernel = CheckedExpand(expand[(1,)])


def _accepts(function: Launch, argument: str) -> bool:
    parameters = inspect.signature(function).parameters
    return argument in parameters or any(
        parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()
    )


def _without_fp64_argument(stock: Launch) -> Launch:
    """Return ``stock`` taking ``USE_FP64_GUMBEL``.

    The C++ kernel behind it reads the noise ``inv_q`` as fp32, so fp64 noise is rounded first.
    """

    def sample_recovered_tokens(
        output_token_ids: torch.Tensor,
        cu_num_draft_tokens: torch.Tensor,
        draft_token_ids: torch.Tensor,
        draft_probs: torch.Tensor | None,
        target_probs: torch.Tensor,
        inv_q: torch.Tensor,
        *arguments: Any,
        USE_FP64_GUMBEL: bool = False,
        **options: Any,
    ) -> None:
        stock(
            output_token_ids,
            cu_num_draft_tokens,
            draft_token_ids,
            draft_probs,
            target_probs,
            inv_q.to(torch.float32),
            *arguments,
            **options,
        )

    return sample_recovered_tokens


class CheckedExpand(_Kernel):
    """``expand_kernel`` that uses the stock function unless that one proves faulty.

    The stock function needs vLLM's compiled library, which most processes never load; so it is
    tried at the first launch, in the process that samples.
    """

    def __init__(self, stock: Launch) -> None:
        super().__init__(self._decide_and_launch)
        self._stock = stock

    def _decide_and_launch(self, *arguments: Any, **options: Any) -> None:
        if leaves_output_unwritten(self._stock):
            self._launch = expand
            logger.debug("eagle3_quarot: CPU expand leaves its output unwritten; replaced")
        else:
            self._launch = self._stock
        self._launch(*arguments, **options)


def leaves_output_unwritten(launch: Launch) -> bool:
    """Tell whether an ``expand`` fails to fill outputs of the dtypes of sampling parameters."""
    ends = torch.tensor([1, 3], dtype=torch.int32)
    for dtype in (torch.float32, torch.int32):
        values = torch.tensor([0, 5], dtype=dtype)
        output = torch.full((3,), -1, dtype=dtype)
        try:
            launch(output, values, ends, 0, 1, MAX_NUM_TOKENS=4)
        except TypeError:
            return False  # another signature than this fault's: not ours to judge
        if output.tolist() != [1, 5, 5]:
            return True
    return False


def expand(
    output: torch.Tensor,
    input_val: torch.Tensor,
    cu_num_tokens: torch.Tensor,
    replace_from: float,
    replace_to: float,
    MAX_NUM_TOKENS: int | None = None,
) -> None:
    """Repeat one value per request for each of its tokens, in place.

    Args:
        output: ``[T]``, written.
        input_val: ``[R]``, one value per request, of the same dtype.
        cu_num_tokens: ``[R]`` integer, inclusive running sum of the tokens per request; its last
            entry is T. A request without tokens is skipped.
        replace_from: a value of ``input_val`` that is written as ``replace_to`` instead (a greedy
            request's temperature 0 as 1).
        replace_to: see ``replace_from``.
        MAX_NUM_TOKENS: a bound that only Triton needs.
    """
    counts = torch.diff(cu_num_tokens, prepend=cu_num_tokens.new_zeros(1))
    values = input_val.masked_fill(input_val == replace_from, replace_to)
    output.copy_(torch.repeat_interleave(values, counts, output_size=output.numel()))
