# SPDX-License-Identifier: Apache-2.0
"""Every row of the hook table against the source of every release of the hosts."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from packaging.version import Version

from tests.contract.wheels.releases import RELEASES, Release, selected
from tests.contract.wheels.sources import source_folder
from vllm_eagle3_quarot.integrations.hook_check import HostSource, problems
from vllm_eagle3_quarot.integrations.hooks import HOOKS, TESTED_VERSIONS

PACKAGE = Path(__file__).parents[3] / "vllm_eagle3_quarot"


@pytest.mark.parametrize("release", selected(), ids=str)
def test_release_has_what_the_table_says(release: Release) -> None:
    hooks = [hook for hook in HOOKS if hook.package == release.package]
    source = HostSource(source_folder(release))
    assert list(problems(hooks, source, Version(release.version))) == []


@pytest.mark.parametrize("release", selected("vllm_ascend"), ids=str)
def test_what_a_release_no_longer_has_is_gone(release: Release) -> None:
    """``until`` and ``since`` are facts, so that a wrong one does not hide a missing hook."""
    version, source = Version(release.version), HostSource(source_folder(release))
    still_there = [
        hook.label
        for hook in HOOKS
        if hook.package == release.package
        and not hook.exists_in(version)
        and source.problem_with(hook) is None
    ]
    assert still_there == []


def test_tested_range_is_that_of_the_releases() -> None:
    for package, (oldest, newest) in TESTED_VERSIONS.items():
        versions = sorted(Version(r.version) for r in RELEASES if r.package == package)
        assert (str(versions[0]), str(versions[-1])) == (oldest, newest)


def test_every_import_of_a_host_is_in_the_table() -> None:
    """Whoever imports something new of vLLM adds a row for it."""
    listed = {(hook.module, hook.name.partition(".")[0]) for hook in HOOKS}
    modules = {hook.module for hook in HOOKS}
    missing = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for module, name in _host_imports(ast.parse(path.read_text())):
            if (module, name) not in listed and f"{module}.{name}" not in modules:
                missing.append(f"{path.relative_to(PACKAGE)}: from {module} import {name}")
    assert missing == []


def _host_imports(tree: ast.AST) -> list[tuple[str, str]]:
    """Names that are imported from a host at run time."""
    found = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            if node.module.partition(".")[0] in TESTED_VERSIONS:
                found += [(node.module, alias.name) for alias in node.names]
        else:
            found += _host_imports(node)
    return found
