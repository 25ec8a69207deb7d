# SPDX-License-Identifier: Apache-2.0
"""The probe's draft is vLLM's draft: the same first proposal at every step of an engine."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.support import reference_pair as pair
from tests.support.drafts import DraftSpec
from tests.support.proposals import Job, Outcome, run
from tests.support.rotated_copy import copy_in_fp32
from vllm_eagle3_quarot.checkpoint.draft import DraftFacts
from vllm_eagle3_quarot.checkpoint.target import TargetFacts
from vllm_eagle3_quarot.draft.aux_states import LAYER_IDS, aux_states_of
from vllm_eagle3_quarot.probe.draft_model import DraftModel
from vllm_eagle3_quarot.probe.target_model import TargetModel

pytestmark = pytest.mark.engine

SIZES = {"hidden": 192, "vocabulary": 2048, "heads": 4, "kv_heads": 2, "head_dim": 64}

#: Random drafts that between them have every variant of a norm, of depth and of the head.
DRAFTS = {
    "four states, norm per state, last layer": DraftSpec(
        **SIZES, aux_states=4, fc_norm=True, extra={LAYER_IDS: [0, 3, 5, 8]}
    ),
    "norm before fc, two layers, norm before residual, scaled positions, few words": DraftSpec(
        **SIZES,
        layers=2,
        norm_before_fc=True,
        draft_vocabulary=512,
        extra={
            "norm_before_residual": True,
            "rope_theta": 500000.0,
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            },
        },
    ),
}


def test_first_proposals_are_the_engines(tmp_path: Path) -> None:
    target = copy_in_fp32(pair.FLOAT_TARGET, tmp_path / "target")
    folders = [spec.write(tmp_path / str(n)) for n, spec in enumerate(DRAFTS.values())]
    prompts = pair.prompts(1)
    jobs = [
        Job(str(target), str(draft), prompts, max_tokens=24, num_speculative_tokens=1)
        for draft in folders
    ]
    model = TargetModel(TargetFacts.from_folder(target))
    for name, draft, outcome in zip(DRAFTS, folders, run(jobs), strict=True):
        facts = DraftFacts(draft)
        aux = aux_states_of(facts, 192, 8)
        small = DraftModel(facts, aux.count)
        seen = model.observe(model.encode(prompts[0]), 24, aux.layers or aux.default or ())
        assert seen.tokens[seen.prompt :].tolist() == outcome.tokens[0], name
        table, head = small.own_embedding(), small.own_head()
        assert table is not None and head is not None
        answer = small.step(table[seen.tokens[1:]], seen.states[:-1])
        ours = small.words((answer @ head.T).argmax(-1))
        positions, engines = _visited(outcome, seen.prompt)
        agreeing = (ours[positions] == torch.tensor(engines)).sum()
        # A near-tie may go either way: both sum in fp32, in another order.
        assert len(engines) >= 12
        assert agreeing >= len(engines) - 1, name


def _visited(outcome: Outcome, prompt: int) -> tuple[list[int], list[int]]:
    """Positions at which the engine drafted, and what."""
    positions, proposals = [], []
    last = prompt  # index of the newest token, which the draft reads beside the state before it
    for call in outcome.proposals:
        if last - prompt >= len(outcome.tokens[0]) - 1:
            break
        proposed = call[0][0]
        positions.append(last - 1)
        proposals.append(proposed)
        last += 2 if proposed == outcome.tokens[0][last - prompt + 1] else 1
    return positions, proposals
