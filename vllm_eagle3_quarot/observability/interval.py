# SPDX-License-Identifier: Apache-2.0
"""What a server did between two looks at it."""

from __future__ import annotations

from dataclasses import dataclass

from vllm_eagle3_quarot.observability.counters import SpecCounters
from vllm_eagle3_quarot.observability.scrape import Snapshot


@dataclass(frozen=True)
class Interval:
    """Counts of some seconds.

    Attributes:
        seconds: of wall time; 0 for "since the start", whose length is not known.
        counters: what was counted in it.
    """

    seconds: float
    counters: SpecCounters

    @classmethod
    def between(cls, earlier: Snapshot, later: Snapshot) -> Interval | None:
        """None when the server was started anew in between, so that its counts fell to zero."""
        before, after = earlier.counters, later.counters
        known = len(before.accepted_per_position)
        if (
            after.drafts < before.drafts
            or after.generation_tokens < before.generation_tokens
            or (known and known != len(after.accepted_per_position))
        ):
            return None
        return cls(later.at - earlier.at, after - before)

    @property
    def acceptance(self) -> tuple[float, ...] | None:
        """Acceptance rate per position, None when nothing was drafted."""
        return self.counters.acceptance if self.counters.drafts else None

    @property
    def mean_acceptance_length(self) -> float | None:
        """Tokens per step of the target, None when nothing was drafted."""
        return self.counters.mean_acceptance_length if self.counters.drafts else None

    @property
    def output_tokens_per_second(self) -> float | None:
        """What all clients together received, None when the length is not known."""
        return self.counters.generation_tokens / self.seconds if self.seconds else None

    @property
    def drafted_tokens_per_second(self) -> float | None:
        """What the draft proposed, None when the length is not known."""
        return self.counters.draft_tokens / self.seconds if self.seconds else None

    def document(self) -> dict[str, object]:
        """The same for a JSON object; rates per second are left out where there are none."""
        content: dict[str, object] = {
            "drafts": self.counters.drafts,
            "draft_tokens": self.counters.draft_tokens,
            "accepted_tokens": self.counters.accepted,
            "output_tokens": self.counters.generation_tokens,
            "acceptance_per_position": self.acceptance,
            "mean_acceptance_length": self.mean_acceptance_length,
        }
        if self.seconds:
            content = {
                "seconds": self.seconds,
                **content,
                "output_tokens_per_second": self.output_tokens_per_second,
                "draft_tokens_per_second": self.drafted_tokens_per_second,
            }
        return content
