# SPDX-License-Identifier: Apache-2.0
"""``memcpy`` is for sleep mode, which the tests do not enter."""

from __future__ import annotations

from typing import NoReturn


def memcpy(*_: object) -> NoReturn:
    raise NotImplementedError("acl.rt.memcpy: the fake runtime has no sleep mode")
