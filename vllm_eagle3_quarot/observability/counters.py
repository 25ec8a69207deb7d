# SPDX-License-Identifier: Apache-2.0
"""vLLM's speculative decoding counters, read from /metrics."""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from vllm_eagle3_quarot.errors import ServingError

DRAFTS = "vllm:spec_decode_num_drafts_total"
DRAFT_TOKENS = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
ACCEPTED_PER_POSITION = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
GENERATION = "vllm:generation_tokens_total"


@dataclass(frozen=True)
class SpecCounters:
    """Counts since the server's start, or between two moments (see ``-``).

    Attributes:
        drafts: times that the draft model proposed tokens.
        draft_tokens: tokens proposed.
        accepted: proposed tokens that the target accepted.
        accepted_per_position: the same per position in the proposal, first position first.
        generation_tokens: tokens generated for clients.
    """

    drafts: int
    draft_tokens: int
    accepted: int
    accepted_per_position: tuple[int, ...]
    generation_tokens: int

    @classmethod
    def from_text(cls, text: str) -> SpecCounters:
        """Read the Prometheus text format; engines are summed, absent counters are zero."""
        totals = {DRAFTS: 0, DRAFT_TOKENS: 0, ACCEPTED: 0, GENERATION: 0}
        positions: dict[int, int] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name in totals:
                    totals[sample.name] += int(sample.value)
                elif sample.name == ACCEPTED_PER_POSITION:
                    position = int(sample.labels["position"])
                    positions[position] = positions.get(position, 0) + int(sample.value)
        per_position = tuple(positions[position] for position in sorted(positions))
        return cls(
            totals[DRAFTS],
            totals[DRAFT_TOKENS],
            totals[ACCEPTED],
            per_position,
            totals[GENERATION],
        )

    def __sub__(self, earlier: SpecCounters) -> SpecCounters:
        """Return what was counted since ``earlier``, a snapshot of the same server."""
        before = earlier.accepted_per_position or (0,) * len(self.accepted_per_position)
        return SpecCounters(
            self.drafts - earlier.drafts,
            self.draft_tokens - earlier.draft_tokens,
            self.accepted - earlier.accepted,
            tuple(a - b for a, b in zip(self.accepted_per_position, before, strict=True)),
            self.generation_tokens - earlier.generation_tokens,
        )

    @property
    def acceptance(self) -> tuple[float, ...]:
        """Acceptance rate per position: accepted at that position / drafts.

        Raises:
            ServingError: nothing was drafted, so there is no rate.
        """
        return tuple(count / self._nonzero_drafts() for count in self.accepted_per_position)

    @property
    def mean_acceptance_length(self) -> float:
        """Tokens per target step: 1 + accepted / drafts.

        Raises:
            ServingError: nothing was drafted, so there is no mean.
        """
        return 1 + self.accepted / self._nonzero_drafts()

    def _nonzero_drafts(self) -> int:
        if self.drafts <= 0:
            raise ServingError(
                f"no tokens were drafted: {DRAFTS} did not grow, so speculation is not running"
            )
        return self.drafts
