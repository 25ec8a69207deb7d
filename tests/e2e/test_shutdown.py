# SPDX-License-Identifier: Apache-2.0
"""A server with the plugin ends when it is told to, with all its processes."""

from __future__ import annotations

from tests.e2e.served import Served


def test_sigint_ends_a_drafting_server_cleanly(unrotated: Served) -> None:
    assert_clean(unrotated)


def test_sigterm_ends_a_server_without_a_draft_cleanly(undrafted: Served) -> None:
    assert_clean(undrafted)


def assert_clean(served: Served) -> None:
    assert served.stop.exit_code == 0
    assert served.stop.killed == ()
    assert served.left_behind == 0
