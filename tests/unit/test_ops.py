# SPDX-License-Identifier: Apache-2.0
"""torch.ops.eagle3_quarot: values, schema, tracing."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.support.rotations import dense_rotation, hadamard_rotation, real_rotation
from vllm_eagle3_quarot import ops
from vllm_eagle3_quarot.ops.schemas import SCHEMAS
from vllm_eagle3_quarot.rotation import Plan, Rotation

ROTATIONS = {
    "power of two": hadamard_rotation(64),
    "12 x 16": real_rotation(192),
    "blocks of 32": real_rotation(96, 32),
    "dense": dense_rotation(50),
}


@pytest.fixture(params=ROTATIONS)
def rotation(request: pytest.FixtureRequest) -> Rotation:
    return Rotation.from_dense(ROTATIONS[request.param])


@pytest.mark.parametrize("slices", [1, 2, 3, 5])
def test_every_slice_is_unrotated_by_itself(rotation: Rotation, slices: int) -> None:
    h = torch.randn(7, slices, rotation.size)
    x = torch.stack([rotation.rotate(part) for part in h.unbind(1)], dim=1).reshape(7, -1)
    y = ops.unrotate(x, rotation.plan)
    # fp32 round trip of unit-scale rows, see test_rotation.
    assert torch.allclose(y, h.reshape(7, -1), atol=1e-5)
    assert torch.allclose(ops.rotate(y, rotation.plan), x, atol=2e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_in_place_equals_out_of_place(rotation: Rotation, dtype: torch.dtype) -> None:
    x = torch.randn(4, 3 * rotation.size).to(dtype)
    expected = ops.unrotate(x, rotation)
    kept = x.data_ptr()
    assert ops.unrotate_(x, rotation) is x
    assert x.data_ptr() == kept
    assert torch.equal(x, expected)


def test_in_place_writes_nothing_beside_a_strided_view(rotation: Rotation) -> None:
    padded = torch.randn(4, 2 * rotation.size + 8)
    before = padded.clone()
    ops.unrotate_(padded[:, 4:-4], rotation)
    assert torch.equal(padded[:, :4], before[:, :4])
    assert torch.equal(padded[:, -4:], before[:, -4:])
    assert torch.equal(padded[:, 4:-4], ops.unrotate(before[:, 4:-4], rotation))


def test_no_rows(rotation: Rotation) -> None:
    x = torch.empty(0, 3 * rotation.size)
    assert ops.unrotate(x, rotation).shape == x.shape
    assert ops.unrotate_(x, rotation).shape == x.shape


def test_a_nan_stays_in_its_row(rotation: Rotation) -> None:
    """Padding rows of a captured graph hold garbage; they must not reach real tokens."""
    x = torch.randn(3, 2 * rotation.size)
    clean = ops.unrotate(x, rotation)
    x[1] = float("nan")
    y = ops.unrotate(x, rotation)
    assert torch.equal(y[[0, 2]], clean[[0, 2]])


def arguments(op: str, rotation: Rotation, rows: int, dtype: torch.dtype) -> tuple[Any, ...]:
    """Arguments of ``op`` for ``rows`` tokens and two slices."""
    plan, size = rotation.plan, rotation.size
    aux = [torch.randn(rows, size).to(dtype) for _ in range(2)]
    ids = torch.arange(rows) + 2
    return {
        "unrotate": (torch.cat(aux, dim=-1), *plan),
        "unrotate_": (torch.cat(aux, dim=-1), *plan),
        "unrotate_concat": (aux, *plan),
        "unrotate_norm": (aux, *plan, [torch.rand(size).to(dtype) for _ in aux], 1e-5),
        "embedding_unrotate": (ids, torch.randn(4, size).to(dtype), *plan, 1, 4),
        "rotate": (torch.cat(aux, dim=-1), *plan, torch.rand(size)),
    }[op]


OPS = list(SCHEMAS)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("rows", [0, 3])
def test_opcheck(rotation: Rotation, op: str, dtype: torch.dtype, rows: int) -> None:
    overload = getattr(torch.ops.eagle3_quarot, op).default
    torch.library.opcheck(overload, arguments(op, rotation, rows, dtype))


@pytest.mark.parametrize("op", OPS)
def test_a_gradient_is_refused(rotation: Rotation, op: str) -> None:
    """Never a gradient of zero or none: the operators serve inference."""
    function = getattr(torch.ops.eagle3_quarot, op).default
    args = arguments(op, rotation, 3, torch.float32)
    tensor = args[1] if op == "embedding_unrotate" else args[0]
    for leaf in tensor if isinstance(tensor, list) else [tensor]:
        leaf.requires_grad_()
    with pytest.raises(NotImplementedError, match=f"eagle3_quarot::{op} has no gradient"):
        function(*args).sum().backward()
    with torch.inference_mode():
        function(*arguments(op, rotation, 3, torch.float32))


@pytest.mark.parametrize("op", ["unrotate", "unrotate_concat", "unrotate_norm"])
def test_a_weight_that_requires_grad_does_not_stop_the_forward_pass(
    rotation: Rotation, op: str
) -> None:
    """A norm's scale is a parameter, and hosts do not always switch its requires_grad off."""
    args = arguments(op, rotation, 3, torch.float32)
    if op == "unrotate_norm":
        args[4][0].requires_grad_()
    else:
        args[1].requires_grad_()
    getattr(torch.ops.eagle3_quarot, op).default(*args)


def test_traces_whole_under_torch_compile(rotation: Rotation) -> None:
    plan = rotation.plan

    def step(x: torch.Tensor) -> torch.Tensor:
        return ops.unrotate(x * 2, plan) + 1

    x = torch.randn(5, 3 * rotation.size)
    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x), step(x))


def test_concat_norm_and_embedding_mean_what_they_say(rotation: Rotation) -> None:
    q, size = rotation.dense(), rotation.size
    h = torch.randn(7, 2, size)
    aux = [part @ q for part in h.unbind(1)]
    flat = h.reshape(7, -1)
    # fp32 products of unit-scale rows, twice.
    assert torch.allclose(ops.unrotate_concat(aux, rotation), flat, atol=2e-5)

    gamma = torch.rand(2 * size) + 0.5
    whole = torch.nn.functional.rms_norm(flat, (2 * size,), gamma, eps=1e-5)
    sliced = torch.nn.functional.rms_norm(h, (size,), eps=1e-5).reshape(7, -1) * gamma
    assert torch.allclose(ops.unrotate_norm(aux, rotation, gamma, 1e-5), whole, atol=4e-5)
    per_slice = gamma.view(2, size)
    assert torch.allclose(ops.unrotate_norm(aux, rotation, per_slice, 1e-5), sliced, atol=4e-5)

    table = h[:, 0] @ q
    ids = torch.tensor([10, 16, 17, 9], dtype=torch.int32)
    rows = ops.embedding_unrotate(ids, table, rotation, vocab_start=10)
    assert torch.allclose(rows[:2], h[[0, 6], 0], atol=2e-5)
    assert not rows[2:].any()

    multiplier = torch.rand(size) + 0.5
    rotated = ops.rotate(flat, rotation, multiplier)
    assert torch.allclose(rotated, ((h * multiplier) @ q).reshape(7, -1), atol=2e-5)


def test_an_empty_shard_gives_zeros(rotation: Rotation) -> None:
    table = torch.empty(0, rotation.size)
    rows = ops.embedding_unrotate(torch.tensor([0, 5]), table, rotation, vocab_start=5)
    assert rows.shape == (2, rotation.size)
    assert not rows.any()


def test_bad_arguments_are_named() -> None:
    plan = Rotation.from_dense(hadamard_rotation(64)).plan
    x = torch.zeros(2, 64)
    with pytest.raises(ValueError, match=r"unrotate: x has shape \(2, 65\).*64"):
        ops.unrotate(torch.zeros(2, 65), plan)
    with pytest.raises(ValueError, match=r"unrotate_: x is torch\.int64"):
        ops.unrotate_(torch.zeros(2, 64, dtype=torch.int64), plan)
    with pytest.raises(ValueError, match=r"rotate: signs \(64,\).*power of two"):
        ops.rotate(x, Plan(plan.signs, plan.factor, 63))
    with pytest.raises(ValueError, match=r"signs are torch\.float64"):
        ops.unrotate(x, Plan(plan.signs.double(), plan.factor, 64))
    with pytest.raises(ValueError, match="unrotate_concat: aux is an empty list"):
        ops.unrotate_concat([], plan)
    with pytest.raises(ValueError, match=r"aux\[1\] is torch.float16 \(2, 64\)"):
        ops.unrotate_concat([x, x.half()], plan)
    with pytest.raises(ValueError, match=r"shapes \[\(64,\)\] do not cover 128"):
        ops.unrotate_norm([x, x], plan, torch.ones(64), 1e-5)
    with pytest.raises(ValueError, match=r"norm scale is torch\.int64"):
        ops.unrotate_norm(x, plan, torch.ones(64, dtype=torch.int64), 1e-5)
    with pytest.raises(ValueError, match=r"ids are torch\.float32"):
        ops.embedding_unrotate(torch.zeros(3), x, plan)
    with pytest.raises(ValueError, match="ids from 5 to before 8 do not fit a table of 2 rows"):
        ops.embedding_unrotate(torch.zeros(3, dtype=torch.int64), x, plan, 5, 8)
    with pytest.raises(ValueError, match=r"multiplier is torch.float32 \(32,\)"):
        ops.rotate(x, plan, torch.ones(32))
