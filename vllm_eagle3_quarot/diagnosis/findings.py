# SPDX-License-Identifier: Apache-2.0
"""The answer of an examination: findings, and the verdict that follows from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from vllm_eagle3_quarot.probe.agreement import Agreement

Severity = Literal["error", "warning", "info"]

Verdict = Literal[
    "ready",
    "ready-with-plugin",
    "already-aligned",
    "corrected-twice",
    "rotation-missing",
    "rotation-stale",
    "broken-target",
    "broken-draft",
    "mismatched-pair",
    "not-eagle3",
    "unknown",
]

#: Verdicts with which a server may be started.
GOOD: tuple[Verdict, ...] = ("ready", "ready-with-plugin", "already-aligned")

#: When findings lead to different verdicts, the first of these is given: what makes the others
#: meaningless comes first.
PRECEDENCE: tuple[Verdict, ...] = (
    "not-eagle3",
    "broken-target",
    "mismatched-pair",
    "broken-draft",
    "rotation-missing",
    "rotation-stale",
    "corrected-twice",
    "already-aligned",
    "unknown",
)


@dataclass(frozen=True)
class Finding:
    """One thing that was seen.

    Attributes:
        code: stable name of the kind of finding.
        message: what was seen, with file, key and numbers.
        remedy: what to do about it; empty for mere information.
        verdict: what it makes of the pair, None when it decides nothing by itself.
    """

    code: str
    severity: Severity
    message: str
    remedy: str = ""
    verdict: Verdict | None = None

    def document(self) -> dict[str, str]:
        """As it stands in the JSON output."""
        return {
            "code": self.code,
            "severity": self.severity,
            "message": self.message,
            "remedy": self.remedy,
        }


@dataclass(frozen=True)
class Diagnosis:
    """The whole answer; see docs/en/doctor.md for the JSON form."""

    verdict: Verdict
    findings: tuple[Finding, ...]
    target: Mapping[str, object]
    draft: Mapping[str, object]
    versions: Mapping[str, str | None]
    serve_command: str | None
    probed: bool = False
    agreement: Agreement | None = None

    def document(self) -> dict[str, object]:
        """The JSON output; it has ``probe`` when one was asked for, null when it could not run."""
        document: dict[str, object] = {
            "verdict": self.verdict,
            "findings": [finding.document() for finding in self.findings],
            "target": dict(self.target),
            "draft": dict(self.draft),
            "versions": dict(self.versions),
            "serve_command": self.serve_command,
        }
        if self.probed:
            document["probe"] = self.agreement.document() if self.agreement is not None else None
        return document


def verdict_of(findings: Iterable[Finding], otherwise: Verdict) -> Verdict:
    """The first verdict in :data:`PRECEDENCE` that a finding leads to, else ``otherwise``."""
    given = {finding.verdict for finding in findings}
    return next((verdict for verdict in PRECEDENCE if verdict in given), otherwise)
