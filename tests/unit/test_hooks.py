# SPDX-License-Identifier: Apache-2.0
"""The hook table, its comparison with sources, and what is said about installed hosts."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.version import Version

from tools.docs import hooks as hook_pages
from tools.docs import hooks_chinese
from vllm_eagle3_quarot.integrations import host as hosts
from vllm_eagle3_quarot.integrations.hook_check import HostSource, problems
from vllm_eagle3_quarot.integrations.hooks import HOOKS, Hook
from vllm_eagle3_quarot.integrations.host import Host, installed_hosts, unmet_hooks, warnings_about

SOURCE = """
from elsewhere import imported
if TYPE_CHECKING:
    platform: object
class Base:
    flag: bool = False
    def method(self, first, second=None, *, third=1): ...
class Derived(Base):
    def __init__(self, *, config, prefix=""):
        self.own = config
        self.typed: int = 1
def function(one, two): ...
"""


@pytest.fixture
def source(tmp_path: Path) -> HostSource:
    package = tmp_path / "vllm"
    package.mkdir()
    (package / "__init__.py").write_text("from .models import *\n")
    (package / "models.py").write_text(SOURCE)
    return HostSource(tmp_path)


def _hook(
    name: str, parameters: tuple[str, ...] | None = None, module: str = "vllm.models"
) -> Hook:
    return Hook(module, name, "used", "a reason", parameters)


@pytest.mark.parametrize(
    "hook",
    [
        _hook("imported"),
        _hook("platform"),
        _hook("Base.flag"),
        _hook("Derived.flag"),
        _hook("Derived.own"),
        _hook("Derived.typed"),
        _hook("Derived.method", ("self", "first")),
        _hook("Base.method", ("self", "first", "second", "third")),
        _hook("Derived.__init__", ("self", "config", "prefix")),
        _hook("function", ("one", "two")),
        _hook("Base", module="vllm"),
        _hook("models", module="vllm"),
    ],
    ids=lambda hook: hook.label,
)
def test_object_that_is_there(source: HostSource, hook: Hook) -> None:
    assert source.problem_with(hook) is None


@pytest.mark.parametrize(
    ("hook", "expected"),
    [
        (_hook("Base", module="vllm.gone"), "there is no module vllm.gone"),
        (_hook("Gone"), "vllm.models has no Gone"),
        (_hook("Base.gone"), "vllm.models has no Base.gone"),
        (_hook("function.attribute"), "vllm.models has no function.attribute"),
        (_hook("Base.flag", ("self",)), "vllm.models.Base.flag is no function"),
        (
            _hook("function", ("one",)),
            "vllm.models.function takes (one, two) where (one) is expected",
        ),
        (
            _hook("Base.method", ("self", "second")),
            "vllm.models.Base.method takes (self, first, second, third) where (self, second) is "
            "expected",
        ),
    ],
    ids=lambda value: value.label if isinstance(value, Hook) else "",
)
def test_object_that_is_not(source: HostSource, hook: Hook, expected: str) -> None:
    assert source.problem_with(hook) == expected


@pytest.mark.parametrize(
    ("version", "exists"),
    [("0.22.1", False), ("0.23.0rc1", True), ("0.26.0rc1", True), ("0.27.0rc1", False)],
)
def test_releases_of_a_hook(source: HostSource, version: str, exists: bool) -> None:
    """A pre-release has what its release has."""
    hook = Hook("vllm.models", "Gone", "used", "a reason", since="0.23", until="0.27")
    assert hook.exists_in(Version(version)) is exists
    assert list(problems([hook], source, Version(version))) == (
        ["vllm.models has no Gone (used: a reason)"] if exists else []
    )


def test_no_object_is_listed_twice_for_one_release() -> None:
    seen = [(hook.label, hook.since, hook.only_on) for hook in HOOKS]
    assert len(seen) == len(set(seen))


@pytest.mark.parametrize("folder", ["en", "zh"])
def test_page_is_the_table(folder: str) -> None:
    path = hook_pages.DOCS / folder / "hooks.md"
    assert path.read_text(encoding="utf-8") == hook_pages.pages()[path], (
        "run python -m tools.docs.hooks"
    )


def test_every_reason_has_a_translation_and_no_translation_is_left_over() -> None:
    """Chinese words for a new hook go into tools/docs/hooks_chinese.py."""
    assert {hook.why for hook in HOOKS} == hooks_chinese.REASONS.keys()


def test_installed_host_has_everything() -> None:
    (vllm,) = [host for host in installed_hosts() if host.package == "vllm"]
    assert unmet_hooks([vllm]) == []
    assert unmet_hooks([vllm], "cpu") == []
    assert warnings_about([vllm]) == []


def _hosts(vllm: str | None, ascend: str | None = None) -> list[Host]:
    folder = Path("/nowhere")
    found = [Host("vllm", folder, Version(vllm) if vllm else None)]
    return found + ([Host("vllm_ascend", folder, Version(ascend))] if ascend else [])


@pytest.mark.parametrize(
    ("versions", "expected"),
    [
        (("0.23.0+cpu",), []),
        ((None,), []),
        ((None, "0.23.0"), []),
        (("0.23.0", "0.23.0.post1"), []),
        (("0.17.0",), ["outside the tested range"]),
        (("1.4.0",), ["outside the tested range"]),
        (("0.24.0", "0.23.0"), ["vllm 0.24.0 and vllm_ascend 0.23.0 are not a pair"]),
    ],
)
def test_versions(versions: tuple[str | None, ...], expected: list[str]) -> None:
    found = warnings_about(_hosts(*versions))
    assert len(found) == len(expected)
    for sentence, part in zip(found, expected, strict=True):
        assert part in sentence


def test_plugin_list_without_the_ascend_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    """vllm-project/vllm-ascend#1305: one list allows plugins of every kind."""
    both = _hosts("0.23.0", "0.23.0")
    monkeypatch.setenv("VLLM_PLUGINS", "eagle3_quarot")
    (sentence,) = warnings_about(both)
    assert "leaves out 'ascend'" in sentence
    assert warnings_about(_hosts("0.23.0")) == []
    monkeypatch.setenv("VLLM_PLUGINS", "ascend,eagle3_quarot")
    assert warnings_about(both) == []


def test_npu_without_its_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts, "NPU_DEVICE", tmp_path)
    (sentence,) = warnings_about(_hosts("0.23.0"))
    assert "vllm-ascend is not installed" in sentence
    assert warnings_about(_hosts("0.23.0", "0.23.0")) == []
