# SPDX-License-Identifier: Apache-2.0
"""vLLM's rejection sampler on the CPU stand-ins, against the mathematics of speculative sampling.

Whatever the draft proposes, the tokens that come out must be distributed as the target's own
(Leviathan et al., 2023). One request is one trial, so a batch of requests that differ in nothing is
a sample; expected counts are binomial.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import vllm._custom_ops  # noqa: F401  loads the compiled stand-ins

#: Standard deviations by which a count may miss its expectation. About 200 counts are compared;
#: with a fixed seed the test is deterministic, and a new seed fails in one of 10**4.
SIGMAS = 5.5

TRIALS = 20_000
LOGITS = torch.tensor([2.0, 1.0, 0.5, 0.0, -1.0, 1.5])
VOCABULARY = len(LOGITS)


@pytest.fixture
def sampler(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The rejection sampler as the CPU model runner sets it up after our repairs."""
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.utils import cpu_triton_utils as stand_ins
    from vllm.v1.sample import rejection_sampler
    from vllm.v1.sample.sampler import Sampler

    from vllm_eagle3_quarot.integrations.cpu.faults import repair_faults

    for name in ("expand_kernel", "sample_recovered_tokens_kernel"):
        monkeypatch.setattr(stand_ins, name, getattr(stand_ins, name))
    repair_faults()
    for name in (
        "rejection_greedy_sample_kernel",
        "rejection_random_sample_kernel",
        "expand_kernel",
        "sample_recovered_tokens_kernel",
    ):
        monkeypatch.setattr(rejection_sampler, name, getattr(stand_ins, name))
    torch.manual_seed(0)
    with set_current_vllm_config(VllmConfig()):
        yield rejection_sampler.RejectionSampler(Sampler())


def sample(
    sampler: Any,
    drafts: list[list[int]],
    temperature: list[float],
    *,
    top_p: list[float] | None = None,
    top_k: list[int] | None = None,
    draft_probs: torch.Tensor | None = None,
    seeds: list[int] | None = None,
) -> list[list[int]]:
    """Accepted, recovered and bonus tokens of each request; LOGITS are the target's everywhere."""
    from vllm.v1.sample.logits_processor import LogitsProcessors
    from vllm.v1.sample.metadata import SamplingMetadata
    from vllm.v1.spec_decode.metadata import SpecDecodeMetadata

    requests = len(drafts)
    temperatures = torch.tensor(temperature)
    metadata = SamplingMetadata(
        temperature=None if not temperatures.any() else temperatures,
        all_greedy=bool((temperatures == 0).all()),
        all_random=bool((temperatures > 0).all()),
        top_p=None if top_p is None else torch.tensor(top_p),
        top_k=None if top_k is None else torch.tensor(top_k, dtype=torch.int32),
        generators={
            request: torch.Generator().manual_seed(seed) for request, seed in enumerate(seeds or [])
        },
        max_num_logprobs=None,
        no_penalties=True,
        prompt_token_ids=None,
        frequency_penalties=torch.zeros(requests),
        presence_penalties=torch.zeros(requests),
        repetition_penalties=torch.ones(requests),
        output_token_ids=[[] for _ in range(requests)],
        allowed_token_ids_mask=None,
        bad_words_token_ids={},
        logitsprocs=LogitsProcessors(),
    )
    speculation = SpecDecodeMetadata.make_dummy(drafts, device=torch.device("cpu"))
    rows = sum(len(draft) + 1 for draft in drafts)
    output = sampler(speculation, draft_probs, LOGITS.repeat(rows, 1), metadata)
    tokens, _ = sampler.parse_output(output.sampled_token_ids, VOCABULARY)
    return tokens


def assert_distributed(tokens: list[int], probabilities: torch.Tensor) -> None:
    counts = torch.bincount(torch.tensor(tokens), minlength=VOCABULARY)
    for count, probability in zip(counts.tolist(), probabilities.tolist(), strict=True):
        mean = len(tokens) * probability
        assert abs(count - mean) <= SIGMAS * math.sqrt(mean * (1 - probability)) + 1e-9


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
@pytest.mark.parametrize("draft", range(VOCABULARY))
def test_first_token_has_the_targets_distribution(
    sampler: Any, draft: int, temperature: float
) -> None:
    tokens = sample(sampler, [[draft, 0]] * TRIALS, [temperature] * TRIALS)
    first = [request[0] for request in tokens]
    expected = (LOGITS / temperature).softmax(dim=0)
    assert_distributed(first, expected)
    # A draft token is accepted as often as the target would have chosen it.
    accepted = [request[1] for request in tokens if len(request) > 1]
    assert all(request[0] == draft for request in tokens if len(request) > 1)
    assert_distributed(accepted, expected)  # what follows an acceptance, too


def test_top_k_and_top_p_bound_what_is_sampled(sampler: Any) -> None:
    """vllm-project/vllm#55005: both were read from uninitialised memory."""
    half = TRIALS // 2
    top_k = [3] * half + [VOCABULARY] * half
    top_p = [1.0] * half + [0.5] * half
    tokens = sample(sampler, [[3]] * TRIALS, [1.0] * TRIALS, top_k=top_k, top_p=top_p)
    largest = LOGITS.argsort(descending=True)
    for requests, kept in ((tokens[:half], 3), (tokens[half:], 2)):  # 0.44 + 0.27 > 0.5
        masked = torch.full_like(LOGITS, float("-inf"))
        masked[largest[:kept]] = LOGITS[largest[:kept]]
        assert_distributed([request[0] for request in requests], masked.softmax(dim=0))


def test_draft_probabilities_are_taken_into_account(sampler: Any) -> None:
    proposal = torch.tensor([0.05, 0.4, 0.1, 0.2, 0.2, 0.05])
    drafts = torch.multinomial(proposal, TRIALS, replacement=True)
    tokens = sample(
        sampler,
        [[int(draft)] for draft in drafts],
        [1.0] * TRIALS,
        draft_probs=proposal.repeat(TRIALS, 1),
    )
    assert_distributed([request[0] for request in tokens], LOGITS.softmax(dim=0))
    accepted = sum(len(request) > 1 for request in tokens)
    rate = torch.minimum(proposal, LOGITS.softmax(dim=0)).sum().item()
    assert abs(accepted - TRIALS * rate) <= SIGMAS * math.sqrt(TRIALS * rate * (1 - rate))


@pytest.mark.parametrize(
    ("draft", "expected"), [([0, 0, 0], [0, 0, 0, 0]), ([0, 5, 0], [0, 0]), ([1], [0]), ([], [0])]
)
def test_greedy_request_beside_a_random_one(
    sampler: Any, draft: list[int], expected: list[int]
) -> None:
    """vllm-project/vllm#55005: a greedy request's logits were divided by uninitialised memory."""
    for _ in range(20):
        tokens = sample(sampler, [draft, [1, 2]], [0.0, 1.0])
        assert tokens[0] == expected


def test_all_greedy(sampler: Any) -> None:
    tokens = sample(sampler, [[0, 0], [0, 1], [2], []], [0.0] * 4)
    assert tokens == [[0, 0, 0], [0, 0], [0], [0]]


def test_seeded_requests_repeat_themselves(sampler: Any) -> None:
    drafts = [[1, 0, 5], [0], [5, 5], []]
    runs = [sample(sampler, drafts, [1.0] * 4, seeds=[7, 8, 9, 10]) for _ in range(2)]
    assert runs[0] == runs[1]
