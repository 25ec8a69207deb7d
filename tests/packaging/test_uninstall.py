# SPDX-License-Identifier: Apache-2.0
"""``pip uninstall`` leaves the host as it was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.packaging.conftest import Archives
from tests.packaging.environments import Environment, everything_but_ours

#: What vLLM loads at start, and what it would then take for each architecture. The home folder is
#: the test's own, so that whatever is written outside the environment shows up there.
PROGRAM = """
import json
from importlib.metadata import entry_points
from vllm.model_executor.models import ModelRegistry
from vllm.plugins import load_general_plugins

load_general_plugins()
print(json.dumps({
    "registry": {name: repr(model) for name, model in ModelRegistry.models.items()},
    "entry points": sorted(
        f"{group} {each.name}"
        for group in ("console_scripts", "vllm.general_plugins", "vllm.stat_logger_plugins")
        for each in entry_points(group=group)
        if "eagle3_quarot" in each.value
    ),
}))
"""


@pytest.mark.packaging
@pytest.mark.timeout(900)
def test_uninstalling_leaves_nothing(archives: Archives, tmp_path: Path) -> None:
    environment = Environment(tmp_path / "host", everything_but_ours())
    home = tmp_path / "home"
    home.mkdir()

    def host() -> dict[str, object]:
        done = environment.run(
            "python", "-c", PROGRAM, HOME=str(home), XDG_CACHE_HOME=str(home / ".cache")
        )
        assert done.returncode == 0, done.stderr
        read: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
        return read

    files, stock = environment.files(), host()
    assert stock["entry points"] == []

    environment.pip("install", archives.wheel)
    with_plugin = host()
    assert "vllm_eagle3_quarot.integrations.draft_models" in str(with_plugin["registry"])
    assert with_plugin["entry points"] == [
        "console_scripts eagle3-quarot",
        "vllm.general_plugins eagle3_quarot",
        "vllm.stat_logger_plugins eagle3_quarot_guard",
    ]

    environment.pip("uninstall", "--yes", "vllm-eagle3-quarot")
    assert environment.files() == files
    assert host() == stock
    # Registering writes nothing; the compiled CPU kernels are the only thing that serving writes.
    assert not [path for path in home.rglob("*") if "quarot" in path.name]
