# SPDX-License-Identifier: Apache-2.0
"""The fake server of tests/serving, for commands that look at a running one."""

from tests.serving.conftest import make_server

__all__ = ["make_server"]
