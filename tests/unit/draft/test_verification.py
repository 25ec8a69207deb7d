# SPDX-License-Identifier: Apache-2.0
"""The draft's own embedding tells a right rotation from a wrong one."""

from __future__ import annotations

import pytest
import torch

from tests.support.checkpoints import embedding
from tests.support.rotations import dense_rotation, hadamard_rotation, real_rotation
from vllm_eagle3_quarot.draft.verification import Relation, relation
from vllm_eagle3_quarot.rotation import Rotation

ROTATIONS = {
    "hadamard": hadamard_rotation(64),
    "12 x 16": real_rotation(192),
    "dense": dense_rotation(50),
}


@pytest.mark.parametrize("name", ROTATIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_relations_are_told_apart(name: str, dtype: torch.dtype) -> None:
    q = ROTATIONS[name]
    rotation = Rotation.from_dense(q)
    own = embedding(64, q.shape[0])
    other = dense_rotation(q.shape[0], seed=77)
    cases = {
        Relation.MATCHES: own @ q,
        Relation.TRANSPOSED: own @ q.T,
        Relation.IDENTICAL: own,
        Relation.OTHER_ROTATION: own @ other,
        Relation.UNRELATED: embedding(64, q.shape[0], seed=99),
    }
    for expected, stored in cases.items():
        assert relation(stored.to(dtype), own.to(dtype), rotation) is expected


def test_fine_tuned_copy_still_confirms() -> None:
    q = ROTATIONS["12 x 16"]
    own = embedding(64, 192)
    tuned = own + 0.3 * embedding(64, 192, seed=8)
    assert relation(own @ q, tuned, Rotation.from_dense(q)) is Relation.MATCHES
