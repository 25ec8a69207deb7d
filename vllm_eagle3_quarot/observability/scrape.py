# SPDX-License-Identifier: Apache-2.0
"""Read /metrics of a server that somebody else runs."""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families

from vllm_eagle3_quarot.errors import ServingError
from vllm_eagle3_quarot.observability.counters import DRAFTS, SpecCounters

TIMEOUT_S = 10.0

RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"

#: Every series of vLLM starts with it.
PREFIX = "vllm:"


@dataclass(frozen=True)
class Snapshot:
    """One look at a server.

    Attributes:
        at: seconds of a clock that only runs forward.
        models: names under which the server offers its models.
        counters: since the server's start.
        running: requests being decoded.
        waiting: requests in the queue.
    """

    at: float
    models: tuple[str, ...]
    counters: SpecCounters
    running: int
    waiting: int


def metrics_url(server: str) -> str:
    """``http://host:port/metrics`` of what a user may name: with or without scheme or path.

    Raises:
        ServingError: it is no address of a server.
    """
    parts = urlsplit(server if "://" in server else f"http://{server}")
    try:
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, or too large
        valid = False
    if not valid:
        raise ServingError(
            f"{server!r} is no address of a server: give something like http://127.0.0.1:8000"
        )
    path = parts.path.rstrip("/")
    for end in ("/metrics", "/v1"):
        path = path.removesuffix(end)
    return f"{parts.scheme}://{parts.netloc}{path}/metrics"


def look(url: str) -> Snapshot:
    """Read ``url``, which :func:`metrics_url` made.

    Raises:
        ServingError: nothing answers there, it is not vLLM, or it serves without speculation.
    """
    text = _text(url)
    at = time.monotonic()
    if PREFIX not in text:
        raise ServingError(
            f"{url} answers, but has no series of vLLM: is another program listening there? Give "
            "the address of `vllm serve` (its log says 'Starting vLLM server on ...')"
        )
    try:
        snapshot = _parsed(text, at)
    except (ValueError, KeyError) as error:
        raise ServingError(f"{url} is not in Prometheus' text format: {error}") from None
    if DRAFTS not in text:
        raise ServingError(
            f"{url}: this server of {', '.join(snapshot.models) or 'vLLM'} runs without "
            f"speculation ({DRAFTS} is missing). Start it with --speculative-config, or look at "
            "another server"
        )
    return snapshot


def _parsed(text: str, at: float) -> Snapshot:
    models: set[str] = set()
    gauges = {RUNNING: 0, WAITING: 0}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith(PREFIX) and "model_name" in sample.labels:
                models.add(sample.labels["model_name"])
            if sample.name in gauges:
                gauges[sample.name] += int(sample.value)
    return Snapshot(
        at, tuple(sorted(models)), SpecCounters.from_text(text), gauges[RUNNING], gauges[WAITING]
    )


def _text(url: str) -> str:
    # Proxies of the environment are not for this machine.
    proxies = urllib.request.ProxyHandler({} if _is_local(urlsplit(url).hostname) else None)
    try:
        with urllib.request.build_opener(proxies).open(url, timeout=TIMEOUT_S) as response:
            content: bytes = response.read()
    except urllib.error.HTTPError as error:
        raise ServingError(
            f"{url} answers {error.code} {error.reason}: is this the address of a vLLM server, "
            "without a path?"
        ) from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise ServingError(
            f"{url} does not answer ({reason}): is the server running, and is this its address?"
        ) from None
    return content.decode("utf-8", errors="replace")


def _is_local(host: str | None) -> bool:
    if host is None or host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
