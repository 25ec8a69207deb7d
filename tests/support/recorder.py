# SPDX-License-Identifier: Apache-2.0
"""A worker extension: what one rank has decided for its draft, and what it proposes."""

from __future__ import annotations

from typing import Any


class Recorder:
    """Methods that vLLM adds to the worker of every rank (``worker_extension_cls``)."""

    model_runner: Any
    rank: int

    def start_recording(self) -> None:
        """Keep what the proposer returns, call by call; a rank without a proposer keeps nothing."""
        self._proposals: list[list[list[int]]] = []
        drafter = self._drafter()
        if drafter is None:
            return
        propose = drafter.propose

        def recorded(*arguments: Any, **options: Any) -> Any:
            proposed = propose(*arguments, **options)
            self._proposals.append(proposed if isinstance(proposed, list) else proposed.tolist())
            return proposed

        drafter.propose = recorded

    def recording(self) -> dict[str, Any]:
        """The proposals since, and this rank's decisions."""
        draft = getattr(self._drafter(), "model", None)
        return {
            "rank": self.rank,
            "runner": type(self.model_runner).__module__,
            "proposals": self._proposals,
            "decisions": None if draft is None else self._decisions(draft),
        }

    def _drafter(self) -> Any:
        runner = self.model_runner
        return getattr(runner, "drafter", None) or getattr(runner, "speculator", None)

    def _decisions(self, draft: Any) -> dict[str, Any] | None:
        loaded = getattr(draft, "_quarot", None)
        if loaded is None:
            return None
        target = self.model_runner.get_model()
        if hasattr(target, "get_language_model"):  # as vLLM does before it shares anything
            target = target.get_language_model()
        correction = loaded.correction
        return {
            "rotation": correction.rotation.fingerprint,
            "aux": correction.aux.count,
            "embedding": correction.embedding,
            "head": correction.head,
            "embedding is the target's": draft.model.embed_tokens is target.model.embed_tokens,
            "head is the target's": draft.lm_head is target.lm_head,
        }
