# SPDX-License-Identifier: Apache-2.0
"""Choose the port that a server listens on."""

from __future__ import annotations

import socket

from vllm_eagle3_quarot.errors import ServingError

HOST = "127.0.0.1"
"""Where servers of ours listen."""


def claim_port(host: str, port: int | None) -> int:
    """Return ``port`` if nothing listens on it, or a free one when it is None.

    Raises:
        ServingError: the port is taken, or may not be used by this user.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As the server does: a connection that lingers in TIME_WAIT is no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port or 0))
        except OSError as error:
            reason = error.strerror or str(error)
            raise ServingError(
                f"port {port} on {host} cannot be used ({reason}): stop what listens there, "
                "or name another port"
            ) from None
        name: tuple[str, int] = probe.getsockname()
        return name[1]
