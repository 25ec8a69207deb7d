# SPDX-License-Identifier: Apache-2.0
"""Rotations that the kernel does not take go through torch's own operators, on the device.

The fake runtime has none, so the CPU computes them (``host_operators``); an operand that the
product left on the host would be refused.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.kernels.npu_runtime.on_npu.launches import Launches
from tests.kernels.npu_runtime.on_npu.tensors import DTYPES, Plan
from vllm_eagle3_quarot.ops import reference

OPS = torch.ops.eagle3_quarot
# (k, m): a factor above the kernel's, and a dense block.
STRUCTURES = {"40x16": (40, 16), "dense": (512, 1)}
# Matmuls round each product to the rows' type, the reference rounds once: up to three roundings
# (two factors and the output) of a value that a block's norm bounds.
ROUNDINGS = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float32: 2.0**-21}


def plan(structure: tuple[int, int], *, dense: bool) -> Plan:
    order, power = structure
    generator = torch.Generator().manual_seed(order)
    factor = torch.randn(order, order, generator=generator).sign()
    if dense:
        factor = torch.linalg.qr(torch.randn(order, order, generator=generator)).Q.contiguous()
    assert not torch.equal(factor, factor.T)
    signs = torch.randn(order * power, generator=generator).sign()
    return signs if dense else signs / (order * power) ** 0.5, factor, power


def calls(hidden: int, dtype: torch.dtype) -> dict[str, tuple[object, ...]]:
    """Arguments of each op, on the host, without the rotation."""
    generator = torch.Generator().manual_seed(1)

    def states(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(dtype)

    gammas = [torch.rand(hidden, generator=generator) + 0.5 for _ in range(3)]
    return {
        "unrotate": (states(5, 3 * hidden),),
        "unrotate_concat": ([states(5, hidden) for _ in range(3)],),
        "unrotate_norm": ([states(5, hidden) for _ in range(3)], gammas, 1e-6),
        "embedding_unrotate": (torch.tensor([7, 3, 12, 15]), states(8, hidden), 5, 13),
        "rotate": (states(5, 2 * hidden), gammas[0]),
    }


def to_npu(value: object) -> object:
    if isinstance(value, list):
        return [to_npu(item) for item in value]
    return value.to("npu") if isinstance(value, torch.Tensor) else value


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("structure", STRUCTURES)
@pytest.mark.parametrize("op", calls(8, torch.float32))
def test_values(launches: Launches, on_host: None, op: str, structure: str, dtype: str) -> None:
    rotation = plan(STRUCTURES[structure], dense=structure == "dense")
    arguments = calls(rotation[0].numel(), DTYPES[dtype])[op]
    leading = 2 if op == "embedding_unrotate" else 1
    on_device = [to_npu(value) for value in arguments]
    plan_on_device = [to_npu(value) for value in rotation]
    call: Callable[..., torch.Tensor] = getattr(OPS, op)
    made = launches.during(
        lambda: call(*on_device[:leading], *plan_on_device, *on_device[leading:])
    )
    assert made.count == 0
    want = reference.IMPLEMENTATIONS[op](*arguments[:leading], *rotation, *arguments[leading:])
    got = made.result.cpu()
    assert got.dtype == want.dtype and got.shape == want.shape
    rms = want.float().square().mean(-1, keepdim=True).sqrt()
    error = (got.float() - want.float()).abs()
    bound = 3 * ROUNDINGS[got.dtype] * (rms + want.float().abs())
    # Two of three rounding errors are of values spread like the row's, not of the output itself.
    assert (error <= 2 * bound).all(), float((error / (bound + 1e-30)).max())


def test_without_them_it_fails(launches: Launches, task_queue: bool) -> None:
    """The matmul path really asks the device."""
    if task_queue:
        pytest.skip("an operator that fails on torch_npu's launch thread ends that thread")
    rotation = [to_npu(value) for value in plan(STRUCTURES["dense"], dense=True)]
    x = torch.ones(2, 512).to("npu")
    with pytest.raises(RuntimeError):
        OPS.unrotate(x, *rotation)
