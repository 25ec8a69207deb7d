# SPDX-License-Identifier: Apache-2.0
"""Errors raised by this package.

Every message says what happened, on which file or key, what it costs, and what to do next, so that
the last line of a failed server start is enough to act on.
"""

from __future__ import annotations


class QuaRotError(Exception):
    """Base class: catch this to handle every error that this package raises on purpose."""


class CheckpointError(QuaRotError):
    """A file of a checkpoint is missing, unreadable or contradicts another one."""


class RotationError(QuaRotError):
    """The matrix that should be the target's rotation is absent, malformed or not orthogonal."""


class SettingsError(QuaRotError):
    """``--additional-config '{"eagle3_quarot": {...}}'`` holds something that we do not know."""


class UnsupportedPairError(QuaRotError):
    """The target is rotated and this draft cannot be corrected; serving it would draft garbage."""


class ServingError(QuaRotError):
    """A server cannot start, died, is not there, or reported something that cannot be used."""


class ProbeError(QuaRotError):
    """A pair cannot be run by the probe; nothing is said about whether it works."""
