# SPDX-License-Identifier: Apache-2.0
"""Every object of vLLM and vllm-ascend that this package touches or counts on, in one table.

``register()`` checks the objects that we use or replace against the installed hosts, and tests
check all of them against the wheels of every release in tests/contract/wheels.
``docs/en/hooks.md`` is this table as a page.
"""

from __future__ import annotations

from vllm_eagle3_quarot.integrations.hooks.ascend import ASCEND
from vllm_eagle3_quarot.integrations.hooks.cpu_host import CPU_HOST
from vllm_eagle3_quarot.integrations.hooks.drafts import DRAFTS
from vllm_eagle3_quarot.integrations.hooks.engine import ENGINE
from vllm_eagle3_quarot.integrations.hooks.hook import Hook

__all__ = ["HOOKS", "TESTED_VERSIONS", "Hook"]

#: Oldest and newest release of each host whose objects tests compare with this table.
TESTED_VERSIONS = {"vllm": ("0.18.1", "0.33.0"), "vllm_ascend": ("0.18.0", "0.30.0rc2")}


HOOKS: tuple[Hook, ...] = (*ENGINE, *DRAFTS, *CPU_HOST, *ASCEND)
