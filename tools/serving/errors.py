# SPDX-License-Identifier: Apache-2.0
"""The one error of the harness: something a person can act on, said in one line."""

from __future__ import annotations


class ServingError(Exception):
    """A server cannot start, died, or reported something that cannot be used.

    The message is one line: what happened, where to look, what to do.
    """
