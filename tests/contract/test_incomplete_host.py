# SPDX-License-Identifier: Apache-2.0
"""A host that lacks something we need: said once, refused where it matters, harmless elsewhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from vllm.plugins import load_general_plugins

from tests.support.checkpoints import embedding, write_target
from tests.support.drafts import DraftSpec
from tests.support.engine import complete_target, loaded_draft
from tests.support.rotations import hadamard_rotation
from vllm_eagle3_quarot.errors import UnsupportedPairError
from vllm_eagle3_quarot.integrations import registration

Q = hadamard_rotation(64)

GONE = "vllm 9.9: vllm.somewhere has no something (used: a reason)"


@pytest.fixture
def incomplete(monkeypatch: pytest.MonkeyPatch) -> None:
    load_general_plugins()  # once per process: not later, when it would find everything
    monkeypatch.setattr(registration, "unmet", [GONE])


def _pair(tmp_path: Path, q: torch.Tensor | None) -> tuple[Path, Path]:
    target = complete_target(write_target(tmp_path / "target", q, hidden=64))
    return target, DraftSpec().write(tmp_path / "draft", embedding(96, 64))


@pytest.mark.usefixtures("incomplete")
def test_rotated_target_is_refused(tmp_path: Path) -> None:
    pair = _pair(tmp_path, Q)
    with (
        pytest.raises(UnsupportedPairError, match=r"vllm\.somewhere has no something"),
        loaded_draft(*pair),
    ):
        pass
    h = torch.randn(2, 3 * 64)
    with loaded_draft(*pair, settings={"strict": False}) as draft, torch.inference_mode():
        served = draft.combine_hidden_states(h)
    with loaded_draft(*pair, settings={"mode": "off"}) as draft, torch.inference_mode():
        assert torch.equal(served, draft.combine_hidden_states(h))


@pytest.mark.usefixtures("incomplete")
def test_other_targets_are_served(tmp_path: Path) -> None:
    with loaded_draft(*_pair(tmp_path, None)) as draft, torch.inference_mode():
        assert draft.combine_hidden_states(torch.randn(2, 3 * 64)).shape == (2, 64)


@pytest.mark.parametrize(
    ("platform", "said"),
    [
        (None, ("not registered for correction", "will be refused")),
        ("cpu", ("msModelSlim checkpoints cannot be served",)),
    ],
)
def test_one_error_names_the_hook_and_the_host(platform: str | None, said: tuple[str, ...]) -> None:
    code = (
        "import logging; logging.basicConfig()\n"
        "from vllm_eagle3_quarot.integrations import host\n"
        "from vllm_eagle3_quarot.integrations.hooks import Hook\n"
        "gone = Hook('vllm.config.vllm', 'Gone.method', 'used', 'a reason', only_on=%r)\n"
        "host.HOOKS = (gone,)\n"
        "from vllm_eagle3_quarot.plugin import register; register()\n"
        "from vllm.model_executor.models import ModelRegistry\n"
        "print(ModelRegistry.models['Eagle3LlamaForCausalLM'].module_name)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code % platform],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    # Still registered: the class refuses what would need the correction.
    assert result.stdout.splitlines()[-1].startswith("vllm_eagle3_quarot.")
    # Before vLLM is imported a process logs to stderr, afterwards as vLLM is told to.
    output = f"{result.stdout}\n{result.stderr}"
    (line,) = [line for line in output.splitlines() if "lacks what" in line]
    for part in ("vllm 0.", "vllm.config.vllm has no Gone.method", "Install", *said):
        assert part in line
