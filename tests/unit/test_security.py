# SPDX-License-Identifier: Apache-2.0
"""The promises of SECURITY.md that no other file tests: no network, and nothing is executed."""

from __future__ import annotations

import ast
import json
import shutil
import socket
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support import reference_pair as pair
from tests.support.cited_tests import cited, is_a_test
from vllm_eagle3_quarot.alignment.align import align
from vllm_eagle3_quarot.alignment.plan import plan_alignment
from vllm_eagle3_quarot.checkpoint.draft import DraftFacts
from vllm_eagle3_quarot.checkpoint.target import TargetFacts
from vllm_eagle3_quarot.diagnosis.diagnose import diagnose
from vllm_eagle3_quarot.draft.correction import correction_of
from vllm_eagle3_quarot.recovery.recover import recover
from vllm_eagle3_quarot.recovery.tables import pairs_of_original
from vllm_eagle3_quarot.rotation import Rotation
from vllm_eagle3_quarot.settings import Settings

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "vllm_eagle3_quarot"
TARGET = pair.PAIR / "target-w8a8-quarot"

#: Calls that run what they are given, and the one file that may: it compiles the source of vLLM's
#: own, already imported module.
RUNNING = {"exec": {"integrations/original_loaders.py"}, "eval": set(), "__import__": set()}

#: Modules that run programs or unpickle, and who imports them. A server runs the compiler only; the
#: command ``bench`` starts servers and their clients, and asks for the commit.
POWERFUL = {
    "subprocess": {
        "ops/native_build.py",
        "serving/server.py",
        "serving/processes.py",
        "benchmarking/client.py",
        "benchmarking/provenance.py",
    },
    "pickle": {"checkpoint/pickled.py"},  # names an exception
    "marshal": set(),
    "shelve": set(),
    "runpy": set(),
}


@cache
def nodes() -> list[tuple[Path, ast.AST]]:
    """Everything that the package's files say, with the file."""
    return [
        (path, node)
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    ]


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every attempt to reach another machine, or to ask for its address, fails."""

    def refuse(*arguments: Any, **options: Any) -> Any:
        raise AssertionError(f"network: {arguments}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    # As on a machine that is online: nothing but the argument says that the files are here.
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    yield


def look_at(target: Path, draft: Path, original: Path, scratch: Path) -> None:
    """All that reads a pair: the plugin's decision at load, doctor, align, recover."""
    settings = Settings(original_model=str(original))
    correction = correction_of(target, str(draft), settings)
    assert correction is not None
    assert diagnose(str(target), str(draft), str(original)).verdict == "ready-with-plugin"
    facts = TargetFacts.from_folder(target)
    rotation = Rotation.from_checkpoint(target)
    align(plan_alignment(DraftFacts(draft), facts, rotation), scratch / "aligned")
    recover(facts, pairs_of_original(facts, TargetFacts.from_folder(original)))


@pytest.mark.usefixtures("no_network")
def test_local_files_need_no_network(tmp_path: Path) -> None:
    look_at(TARGET, pair.DRAFT, pair.FLOAT_TARGET, tmp_path)


def test_the_block_is_noticed(no_network: None) -> None:
    """Otherwise the test above shows nothing."""
    with pytest.raises(AssertionError, match="network"):
        socket.create_connection(("localhost", 9))


def test_code_beside_the_weights_is_never_imported(tmp_path: Path) -> None:
    """As models with ``trust_remote_code`` bring it: named in the configuration, and not."""
    folders = []
    for source in (TARGET, pair.DRAFT, pair.FLOAT_TARGET):
        folder = tmp_path / source.name
        shutil.copytree(source, folder)
        code = f"open({str(tmp_path / 'ran')!r}, 'w').close()\n"
        for name in ("modeling_own.py", "configuration_own.py", "__init__.py", "torch.py"):
            (folder / name).write_text(code)
        config = json.loads((folder / "config.json").read_text())
        config["auto_map"] = {
            "AutoConfig": "configuration_own.Own",
            "AutoModel": "modeling_own.Own",
            "AutoModelForCausalLM": "modeling_own.Own",
        }
        (folder / "config.json").write_text(json.dumps(config))
        folders.append(folder)
    look_at(*folders, tmp_path)
    assert not (tmp_path / "ran").exists()
    files = [getattr(module, "__file__", None) or "" for module in list(sys.modules.values())]
    assert not [file for file in files if file.startswith(str(tmp_path))]


@pytest.mark.parametrize("name", RUNNING)
def test_nothing_runs_text(name: str) -> None:
    callers = {
        path.relative_to(PACKAGE).as_posix()
        for path, node in nodes()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
    }
    assert callers == RUNNING[name]


@pytest.mark.parametrize("name", POWERFUL)
def test_who_imports_what_can_run_programs(name: str) -> None:
    importers = {
        path.relative_to(PACKAGE).as_posix()
        for path, node in nodes()
        if (isinstance(node, ast.Import) and name in [alias.name for alias in node.names])
        or (isinstance(node, ast.ImportFrom) and node.module == name)
    }
    assert importers == POWERFUL[name]


def test_every_load_is_of_weights_only() -> None:
    loads = [
        node
        for _, node in nodes()
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load"
    ]
    assert loads
    for node in loads:
        options = {option.arg: ast.unparse(option.value) for option in node.keywords}
        assert options["weights_only"] == "True"


def test_every_test_that_the_policy_names_exists() -> None:
    named = cited((ROOT / "SECURITY.md").read_text(encoding="utf-8"))
    assert len(named) > 8
    assert [name for name in named if not is_a_test(name)] == []
