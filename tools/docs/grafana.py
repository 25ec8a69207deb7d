# SPDX-License-Identifier: Apache-2.0
"""Writes the Grafana dashboard: ``python -m tools.docs.grafana``.

It draws vLLM's own counters; this package adds none. Import the file in Grafana and choose a
Prometheus data source that scrapes the servers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_eagle3_quarot.observability.counters import (
    ACCEPTED,
    ACCEPTED_PER_POSITION,
    DRAFT_TOKENS,
    DRAFTS,
    GENERATION,
)

DASHBOARD = Path(__file__).resolve().parents[2] / "docs" / "en" / "files" / "grafana-eagle3.json"

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}

#: Width and height of a panel, in Grafana's grid of 24 columns.
PANEL_WIDTH, PANEL_HEIGHT = 12, 8


@dataclass(frozen=True)
class Panel:
    """One graph.

    Attributes:
        title: what is drawn.
        description: how to read it.
        query: PromQL.
        legend: label of a series.
        unit: Grafana's name of the unit.
        threshold: drawn as a line, where a value below it is a fault.
    """

    title: str
    description: str
    query: str
    legend: str
    unit: str
    threshold: float | None = None


def rate(metric: str, labels: str = "model_name") -> str:
    """Growth per second of ``metric`` on the chosen models, summed by ``labels``."""
    return f'sum by ({labels}) (rate({metric}{{model_name=~"$model"}}[$__rate_interval]))'


PANELS = (
    Panel(
        title="Acceptance rate per position",
        description=(
            "Share of drafts whose token at this position was accepted. Near 0 at position 0: the "
            "draft does not see what it was trained on; see the troubleshooting page."
        ),
        query=(
            f"{rate(ACCEPTED_PER_POSITION, 'model_name, position')} / on (model_name) group_left "
            f"{rate(DRAFTS)}"
        ),
        legend="{{model_name}} position {{position}}",
        unit="percentunit",
        threshold=0.02,
    ),
    Panel(
        title="Mean acceptance length",
        description="Tokens per step of the target, the bonus token included; 1 is no gain at all.",
        query=f"1 + {rate(ACCEPTED)} / {rate(DRAFTS)}",
        legend="{{model_name}}",
        unit="short",
        threshold=1.0,
    ),
    Panel(
        title="Proposed tokens per second",
        description="What the draft computes, accepted or not.",
        query=rate(DRAFT_TOKENS),
        legend="{{model_name}}",
        unit="short",
    ),
    Panel(
        title="Output tokens per second",
        description="What clients receive.",
        query=rate(GENERATION),
        legend="{{model_name}}",
        unit="short",
    ),
)


def panel_json(panel: Panel, number: int) -> dict[str, Any]:
    """A time series panel at its place in the grid."""
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.threshold is not None:
        steps = [{"color": "red", "value": None}, {"color": "green", "value": panel.threshold}]
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": DATASOURCE,
        "gridPos": {
            "h": PANEL_HEIGHT,
            "w": PANEL_WIDTH,
            "x": number % 2 * PANEL_WIDTH,
            "y": number // 2 * PANEL_HEIGHT,
        },
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": 0,
                "thresholds": {"mode": "absolute", "steps": steps},
                "custom": {"thresholdsStyle": {"mode": "line" if panel.threshold else "off"}},
            },
            "overrides": [],
        },
        "targets": [
            {
                "refId": "A",
                "datasource": DATASOURCE,
                "expr": panel.query,
                "legendFormat": panel.legend,
            }
        ],
    }


def dashboard() -> str:
    """The dashboard as Grafana imports it."""
    models = f"label_values({DRAFTS}, model_name)"
    variables = [
        {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
        {
            "name": "model",
            "label": "Model",
            "type": "query",
            "datasource": DATASOURCE,
            "query": {"query": models, "refId": "models"},
            "definition": models,
            "refresh": 2,
            "includeAll": True,
            "multi": True,
            "current": {"text": "All", "value": "$__all"},
        },
    ]
    content = {
        "title": "vLLM: Eagle3 speculative decoding",
        "uid": "vllm-eagle3",
        "tags": ["vllm", "eagle3"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": variables},
        "panels": [panel_json(panel, number) for number, panel in enumerate(PANELS)],
    }
    return json.dumps(content, indent=2) + "\n"


if __name__ == "__main__":
    DASHBOARD.parent.mkdir(parents=True, exist_ok=True)
    DASHBOARD.write_text(dashboard(), encoding="utf-8")
