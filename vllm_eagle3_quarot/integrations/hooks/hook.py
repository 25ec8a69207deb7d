# SPDX-License-Identifier: Apache-2.0
"""One object of a host that this package touches or counts on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from packaging.version import Version

#: What we do with an object:
#: ``used``: call or read it; ``replaced``: subclass it or put ours in its place;
#: ``assumed``: rely on what the host does there; ``avoided``: a fault, or a correction of the
#: host's own, which must not reach a draft that we correct, and is not missed when it is gone.
Kind = Literal["used", "replaced", "assumed", "avoided"]


@dataclass(frozen=True)
class Hook:
    """One object of a host.

    Attributes:
        module: where it is defined.
        name: ``function``, ``VARIABLE``, ``Class`` or ``Class.attribute``.
        kind: what we do with it.
        why: what for.
        parameters: names that its parameter list must begin with; any further one must have a
            default. None: not a function, or its parameters do not matter.
        since: first release that has it; None: all that we support.
        until: first release that no longer has it; None: none yet.
        only_on: ``device_type`` of the one platform on which we touch it; None: every platform.
    """

    module: str
    name: str
    kind: Kind
    why: str
    parameters: tuple[str, ...] | None = None
    since: str | None = None
    until: str | None = None
    only_on: str | None = None

    @property
    def package(self) -> str:
        """The host that it belongs to: ``vllm`` or ``vllm_ascend``."""
        return self.module.partition(".")[0]

    @property
    def label(self) -> str:
        """Its full name."""
        return f"{self.module}.{self.name}"

    def exists_in(self, version: Version) -> bool:
        """True when release ``version`` should have it; a pre-release counts as its release."""
        release = version.release
        return (self.since is None or release >= Version(self.since).release) and (
            self.until is None or release < Version(self.until).release
        )
