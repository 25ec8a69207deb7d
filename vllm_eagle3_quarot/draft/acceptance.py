# SPDX-License-Identifier: Apache-2.0
"""Acceptance of a running server, judged window by window.

The engine counts, for every step, how many drafts it verified and how many of them had their
first token accepted. A pair that fits accepts that token in well over half of the drafts; near
zero, every draft is computed for nothing and the server is slower than without speculation, while
the text it produces is as right as ever. Nobody notices that by looking at outputs.
"""

from __future__ import annotations

from typing import Literal

from vllm_eagle3_quarot.settings import GuardSettings

Verdict = Literal["collapsed", "recovered"]


class AcceptanceWindow:
    """Counts drafts up to ``after_drafts``, judges them, and starts again.

    Attributes:
        rate: share of the last full window's drafts whose first token was accepted.
    """

    def __init__(self, settings: GuardSettings) -> None:
        self._settings = settings
        self._drafts = 0
        self._accepted = 0
        self._awaited: Verdict | None = "collapsed"
        self.rate = 0.0

    def add(self, drafts: int, first_accepted: int) -> Verdict | None:
        """Count one step.

        Returns ``collapsed`` for the first window below the threshold and ``recovered`` for the
        next one that reaches it again; each at most once in the life of a server.
        """
        self._drafts += drafts
        self._accepted += first_accepted
        if self._drafts < self._settings.after_drafts:
            return None
        self.rate = self._accepted / self._drafts
        self._drafts = self._accepted = 0
        verdict: Verdict = "collapsed" if self.rate < self._settings.min_acceptance else "recovered"
        if verdict != self._awaited:
            return None
        self._awaited = "recovered" if verdict == "collapsed" else None
        return verdict
