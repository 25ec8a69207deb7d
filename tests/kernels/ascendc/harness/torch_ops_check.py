# SPDX-License-Identifier: Apache-2.0
"""Runs inside its own process: the torch ops served by the emulated NPU kernels.

Usage: python -m tests.kernels.ascendc.harness.torch_ops_check LIBRARY. Prints one line of JSON per
check: name, passed, detail. The emulator ends the process when a rule is broken, which the caller
sees as missing lines.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable

import torch

from tests.kernels.ascendc.harness import reference as exact
from vllm_eagle3_quarot.ops import reference, schemas

OPS = torch.ops.eagle3_quarot
VECTOR = [(1024, 1024, 1), (1024, 256, 1), (768, 768, 12), (1792, 1792, 28)]
MATMUL = [(1280, 640, 40), (640, 640, 160), (512, 512, 512)]
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
# Both sides do fp32 arithmetic and round once, except where matmuls run in the rows' type.
TOLERANCE = {torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11, torch.float32: 2.0**-20}


def plan(structure: tuple[int, int, int]) -> tuple[torch.Tensor, torch.Tensor, int]:
    """signs, factor and power of a random rotation; a large factor needs only to be +-1."""
    hidden, block, order = structure
    torch.manual_seed(hidden + order)
    if order in (12, 28):
        rotation = exact.make_rotation(hidden, block, order)
        factor = torch.tensor(rotation.factor, dtype=torch.float32)
    else:
        factor = torch.randint(0, 2, (order, order)).float() * 2 - 1
        factor = factor if order > 1 else torch.ones(1, 1)
    signs = (torch.randint(0, 2, (block,)).float() * 2 - 1) / block**0.5
    return signs, factor, block // order


class Launches:
    """How many launches reached the emulated kernel."""

    def __init__(self, library: str) -> None:
        self._count = ctypes.c_uint64.in_dll(
            ctypes.CDLL(library), "eagle3_quarot_emulated_launches"
        )

    def during(self, call: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, int]:
        before = self._count.value
        result = call()
        return result, self._count.value - before


def close(got: torch.Tensor, want: torch.Tensor, factor: float = 1.0) -> None:
    """Within a rounding of the result, relative to the row's norm per channel."""
    assert got.shape == want.shape and got.dtype == want.dtype, (got.shape, want.shape)
    scale = want.float().square().mean(-1, keepdim=True).sqrt() + want.float().abs()
    error = (got.float() - want.float()).abs() / (scale + 1e-30)
    worst = float(error.max()) if error.numel() else 0.0
    assert worst <= factor * TOLERANCE[want.dtype], worst


def main() -> None:
    library = sys.argv[1]
    schemas.register_ops()
    torch.ops.load_library(library)
    launches = Launches(library)

    def unrotate(structure: tuple[int, int, int], dtype: torch.dtype, matmul: bool) -> None:
        rotation = plan(structure)
        x = torch.randn(2, 3, 3 * structure[0]).to(dtype)
        got, count = launches.during(lambda: OPS.unrotate(x, *rotation))
        assert count == (0 if matmul else 1)
        close(got, reference.unrotate(x, *rotation), 4.0 if matmul else 1.0)
        padded = torch.randn(5, 3 * structure[0] + 24).to(dtype)[:, : 3 * structure[0]]
        close(OPS.unrotate(padded, *rotation), reference.unrotate(padded, *rotation), 4.0)
        copy = x.clone()
        assert OPS.unrotate_(copy, *rotation) is None
        assert torch.equal(copy, got)
        strided = torch.randn(3 * structure[0], 4).to(dtype).t()
        want = reference.unrotate(strided, *rotation)
        OPS.unrotate_(strided, *rotation)
        close(strided.contiguous(), want, 4.0)
        assert OPS.unrotate(x[:0], *rotation).shape == (0, 3, 3 * structure[0])

    def concat(structure: tuple[int, int, int], dtype: torch.dtype, matmul: bool) -> None:
        rotation = plan(structure)
        hidden = structure[0]
        for slices in (1, 2, 5):
            aux = [torch.randn(4, hidden + 7 * a).to(dtype)[:, :hidden] for a in range(slices)]
            got, count = launches.during(lambda aux=aux: OPS.unrotate_concat(aux, *rotation))
            assert count == (0 if matmul else 1)
            close(got, reference.unrotate_concat(aux, *rotation), 4.0)
        uneven = [torch.randn(2, hidden).to(dtype), torch.randn(2, 2 * hidden).to(dtype)]
        close(
            OPS.unrotate_concat(uneven, *rotation),
            reference.unrotate_concat(uneven, *rotation),
            4.0,
        )

    def norm(structure: tuple[int, int, int], dtype: torch.dtype, matmul: bool) -> None:
        rotation = plan(structure)
        hidden = structure[0]
        states = [(torch.randn(3, hidden) * (1 + a)).to(dtype) for a in range(3)]
        whole = [torch.rand(3 * hidden) + 0.5]
        each = [(torch.rand(hidden) + 0.5).to(dtype) for _ in range(3)]
        groups = [torch.rand(hidden) + 0.5, torch.rand(2 * hidden) + 0.5]
        for gammas, on_kernel in ((whole, True), (each, True), (groups, False)):
            got, count = launches.during(
                lambda gammas=gammas: OPS.unrotate_norm(states, *rotation, gammas, 1e-6)
            )
            assert count == (1 if on_kernel and not matmul else 0)
            # The reference rounds before gamma too.
            close(got, reference.unrotate_norm(states, *rotation, gammas, 1e-6), 6.0)

    def embedding(structure: tuple[int, int, int], dtype: torch.dtype, matmul: bool) -> None:
        rotation = plan(structure)
        table = torch.randn(9, structure[0]).to(dtype)
        for ids in (
            torch.tensor([[10, 3, 18], [12, 19, 11]]),
            torch.tensor([9, 18], dtype=torch.int32),
        ):
            arguments = (ids, table, *rotation, 10, 19)
            got, count = launches.during(
                lambda arguments=arguments: OPS.embedding_unrotate(*arguments)
            )
            assert count == (0 if matmul else 1)
            close(got, reference.embedding_unrotate(*arguments), 4.0)
        empty = OPS.embedding_unrotate(torch.tensor([1, 2]), table, *rotation, 5, 5)
        assert not empty.any()

    def rotate(structure: tuple[int, int, int], dtype: torch.dtype, matmul: bool) -> None:
        rotation = plan(structure)
        x = torch.randn(5, 2 * structure[0]).to(dtype)
        multiplier = torch.rand(structure[0]) + 0.5
        for given in (None, multiplier):
            got, count = launches.during(lambda given=given: OPS.rotate(x, *rotation, given))
            assert count == (0 if matmul else 1)
            close(got, reference.rotate(x, *rotation, given), 4.0)

    def changed_factor(structure: tuple[int, int, int], dtype: torch.dtype, matmul: bool) -> None:
        """The codes cached for a factor follow in-place changes and do not outlive the tensor."""
        if structure[2] not in (12, 28):
            return
        signs, factor, power = plan(structure)
        x = torch.randn(2, structure[0]).to(dtype)
        for change in (lambda f: f, lambda f: f.neg_(), lambda f: f.t().contiguous()):
            factor = change(factor)
            close(
                OPS.unrotate(x, signs, factor, power), reference.unrotate(x, signs, factor, power)
            )

    def refusals(structure: tuple[int, int, int], dtype: torch.dtype, matmul: bool) -> None:
        signs, factor, power = plan(structure)
        x = torch.randn(2, structure[0]).to(dtype)
        bad: list[tuple[Callable[[], object], str]] = [
            (lambda: OPS.unrotate(x[:, :-1], signs, factor, power), "no multiple"),
            (lambda: OPS.unrotate(x, signs, factor, power * 2), "power of two m"),
            (lambda: OPS.unrotate(x.double(), signs, factor, power), "expected"),
            (lambda: OPS.unrotate(x, signs.double(), factor, power), "float expected"),
            (lambda: OPS.unrotate_concat([], signs, factor, power), "empty list"),
            (lambda: OPS.rotate(x, signs, factor, power, torch.ones(3)), "multiplier"),
            (lambda: OPS.unrotate_norm([x], signs, factor, power, [x[0, 1:]], 0.0), "cover"),
        ]
        for call, words in bad:
            try:
                call()
            except ValueError as error:
                assert "eagle3_quarot::" in str(error) and words in str(error), error
            else:
                raise AssertionError(f"accepted, should say '{words}'")

    checks = (unrotate, concat, norm, embedding, rotate, changed_factor, refusals)
    for check in checks:
        for structures, matmul in ((VECTOR, False), (MATMUL, True)):
            for structure in structures:
                for dtype in DTYPES:
                    name = f"{check.__name__} {structure} {str(dtype).removeprefix('torch.')}"
                    detail = ""
                    try:
                        check(structure, dtype, matmul)
                    except (AssertionError, RuntimeError, ValueError) as error:
                        detail = f"{type(error).__name__}: {error}"[:500] or "failed"
                    print(
                        json.dumps({"name": name, "passed": not detail, "detail": detail}),
                        flush=True,
                    )


if __name__ == "__main__":
    main()
