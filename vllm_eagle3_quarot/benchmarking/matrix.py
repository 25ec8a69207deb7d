# SPDX-License-Identifier: Apache-2.0
"""What is compared: servers, and the loads that each of them gets."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from vllm_eagle3_quarot.serving.server import Launch


class Draft(str, Enum):
    """What is served beside the target."""

    none = "none"
    plain = "plain"
    uncorrected = "uncorrected"
    runtime = "runtime"
    folded = "folded"
    aligned = "aligned"

    @property
    def label(self) -> str:
        """In plots and reports of progress."""
        return LABELS[self]

    @property
    def mode(self) -> str:
        """The plugin's mode; a draft that was aligned offline carries a mark, which it respects."""
        return {Draft.uncorrected: "off", Draft.folded: "fold"}.get(self, "runtime")


LABELS = {
    Draft.none: "no speculation",
    Draft.plain: "draft, nothing to correct",
    Draft.uncorrected: "draft, uncorrected",
    Draft.runtime: "draft, corrected at run time",
    Draft.folded: "draft, folded while loading",
    Draft.aligned: "draft, aligned offline",
}


class Sampling(str, Enum):
    """How tokens are chosen."""

    greedy = "greedy"
    sampled = "sampled"

    @property
    def arguments(self) -> list[str]:
        """For ``vllm bench serve``."""
        if self is Sampling.greedy:
            return ["--temperature", "0"]
        return ["--temperature", "0.7", "--top-p", "0.9"]


@dataclass(frozen=True)
class Load:
    """What a server has to do.

    Attributes:
        concurrency: requests in flight at most.
        sampling: how their tokens are chosen.
    """

    concurrency: int
    sampling: Sampling


@dataclass(frozen=True)
class ServerSpec:
    """One server of the comparison.

    Attributes:
        target: its name in tables.
        draft: what is served beside it.
        speculative_tokens: K; 0 without a draft.
        launch: how it is started.
        tokenizer: folder or hub id of the tokenizer, for the client's token counts.
        model: the name that it is asked for.
    """

    target: str
    draft: Draft
    speculative_tokens: int
    launch: Launch
    tokenizer: str | Path
    model: str

    @property
    def title(self) -> str:
        """In reports of progress."""
        tokens = f", K = {self.speculative_tokens}" if self.speculative_tokens else ""
        return f"{self.target}, {self.draft.label}{tokens}"

    @property
    def slug(self) -> str:
        """In names of files."""
        name = f"{self.target}-{self.draft.value}-{self.speculative_tokens}"
        return "".join(sign if sign.isalnum() else "-" for sign in name.lower())
