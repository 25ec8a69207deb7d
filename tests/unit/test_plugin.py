# SPDX-License-Identifier: Apache-2.0
"""The entry point: light to import, safe to call anywhere, silent where it is not needed."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points

import pytest


def _run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    import os

    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=300,
        check=False,
    )


def test_importing_the_package_imports_neither_torch_nor_vllm() -> None:
    for module in ("vllm_eagle3_quarot", "vllm_eagle3_quarot.plugin"):
        result = _run(
            f"import {module}, sys; print([m for m in ('torch', 'vllm') if m in sys.modules])"
        )
        assert result.stdout.strip() == "[]", result.stderr


def test_entry_point_is_found_under_its_name() -> None:
    (found,) = [e for e in entry_points(group="vllm.general_plugins") if e.name == "eagle3_quarot"]
    from vllm_eagle3_quarot.plugin import register

    assert found.load() is register


def test_register_survives_a_host_that_it_does_not_know() -> None:
    """Without vLLM, or with one that lacks what we hook into, the process lives and says so."""
    code = (
        "import sys, logging; logging.basicConfig(); sys.modules['vllm'] = None\n"
        "from vllm_eagle3_quarot.plugin import register\n"
        "register(); register(); print('alive')"
    )
    result = _run(code)
    assert result.stdout.strip() == "alive", result.stderr
    assert "NOT be corrected" in result.stderr
    assert result.stderr.count("could not register") == 1


@pytest.mark.parametrize("disabled", ["1", "0"])
def test_environment_variable_keeps_the_registry_stock(disabled: str) -> None:
    code = (
        "from vllm_eagle3_quarot.plugin import register; register()\n"
        "from vllm.model_executor.models import ModelRegistry\n"
        "print(ModelRegistry.models['Eagle3LlamaForCausalLM'].module_name)"
    )
    result = _run(code, VLLM_EAGLE3_QUAROT_DISABLE=disabled)
    expected = "vllm.model_executor.models.llama_eagle3"
    if disabled == "0":
        expected = "vllm_eagle3_quarot.integrations.draft_models"
    assert result.stdout.splitlines()[-1] == expected, result.stderr
