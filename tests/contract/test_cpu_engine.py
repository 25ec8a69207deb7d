# SPDX-License-Identifier: Apache-2.0
"""vLLM's engine on checkpoints that the real msModelSlim wrote, against their own arithmetic."""

from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoTokenizer

from tests.unit.cpu.engine_run import run_engine
from tests.unit.cpu.reference_model import check_against_reference

PAIR = Path(__file__).parents[1] / "fixtures" / "reference_pair"

PROMPTS = [
    "Two geese stood past this grey granary. Every foolish uncle wanted another lame market",
    "How does the window of Dungarth end?",
    "The",
    "Three bitter farmers lay from no ridge of Quelstead. This heavy well rotted after one tower",
]

GREEDY = {"temperature": 0.0, "max_tokens": 24, "ignore_eos": True}


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    tokenizer = AutoTokenizer.from_pretrained(PAIR / "target-w8a8")
    return [tokenizer(prompt)["input_ids"] for prompt in PROMPTS]


def test_rotated_checkpoint(tmp_path: Path, prompts: list[list[int]]) -> None:
    checkpoint = PAIR / "target-w8a8-quarot"
    params = {**GREEDY, "prompt_logprobs": 0}
    (answers,) = run_engine(
        tmp_path,
        {"model": str(checkpoint), "dtype": "float32"},
        [{"prompts": prompts, "params": params}],
    )
    check_against_reference(checkpoint, prompts, answers)


def test_speculation_on_the_unrotated_checkpoint(tmp_path: Path, prompts: list[list[int]]) -> None:
    """Eagle3 on the CPU platform, which vllm-project/vllm#46069 and #55005 stop.

    The text of a greedy request must not depend on the draft, on its neighbours in the batch or on
    their sampling parameters; a seeded one must repeat itself.
    """
    checkpoint = PAIR / "target-w8a8"
    seeded = {"temperature": 0.8, "top_p": 0.9, "top_k": 40, "seed": 5, "max_tokens": 24}
    several = {"temperature": 1.0, "n": 3, "max_tokens": 16, "ignore_eos": True}
    mixed = [GREEDY, seeded, several, GREEDY]
    first, second, third, fourth = run_engine(
        tmp_path,
        {
            "model": str(checkpoint),
            "dtype": "float32",
            "speculative_config": {
                "method": "eagle3",
                "model": str(PAIR / "draft"),
                "num_speculative_tokens": 3,
            },
        },
        [
            {"prompts": prompts, "params": {**GREEDY, "prompt_logprobs": 0}},
            {"prompts": prompts, "params": mixed},
            {"prompts": prompts, "params": seeded},
            {"prompts": prompts, "params": seeded},
        ],
    )
    check_against_reference(checkpoint, prompts, first)
    for index, params in enumerate(mixed):
        outputs = second[index]["outputs"]
        if params is GREEDY:
            assert outputs == first[index]["outputs"]
        elif params is several:
            assert len(outputs) == 3 and len({tuple(tokens) for tokens in outputs}) > 1
            assert all(len(tokens) == 16 for tokens in outputs)
    assert third == fourth
    assert third != first
