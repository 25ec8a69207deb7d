# SPDX-License-Identifier: Apache-2.0
"""The processes of a server."""

from vllm_eagle3_quarot.serving.processes import session_members

__all__ = ["session_members"]
