# SPDX-License-Identifier: Apache-2.0
"""The part of a vllm-ascend release that corrects Eagle3 drafts by itself, run as it is published.

Nothing else of vllm-ascend is loaded: these files need torch, safetensors and vLLM only. Where one
imports from ``vllm_ascend.utils``, it gets the two functions it asks for, compiled from that very
file.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from packaging.version import Version

from tests.contract.wheels.releases import Release
from tests.contract.wheels.sources import source_folder

#: From here on, vllm-ascend registers a class; before, it assigns a loader to vLLM's class.
FIRST_WITH_A_CLASS = Version("0.27").release


class FoldingHost:
    """One release's own correction, to be switched on at a chosen moment.

    Args:
        release: of vllm-ascend.
        monkeypatch: takes everything back when the test ends.
    """

    def __init__(self, release: Release, monkeypatch: pytest.MonkeyPatch) -> None:
        self._package = source_folder(release) / "vllm_ascend"
        self._monkeypatch = monkeypatch
        self.registers_a_class = Version(release.version).release >= FIRST_WITH_A_CLASS

    @property
    def architecture(self) -> str:
        """Name of a draft that the release corrects."""
        return next(iter(self._registrations())) if self.registers_a_class else _SPECFORGE_NAME

    def switch_on(self, target: Path) -> None:
        """Do what the release does before it loads the draft of the quantised ``target``."""
        document = json.loads((target / "quant_model_description.json").read_text())
        quantised = SimpleNamespace(quant_description=document)
        if self.registers_a_class:
            self._register(quantised)
        else:
            self._patch(target, quantised)

    def _patch(self, target: Path, quantised: Any) -> None:
        from vllm.model_executor.models import deepseek_eagle3, llama_eagle3

        for cls in (
            llama_eagle3.Eagle3LlamaForCausalLM,
            deepseek_eagle3.Eagle3DeepseekV2ForCausalLM,
        ):
            for method in ("__init__", "load_weights"):
                self._monkeypatch.setattr(cls, method, getattr(cls, method))
        if (self._package / "patch/worker/patch_eagle3_init.py").is_file():
            self._load("patch.worker.patch_eagle3_init")
        fold = self._load("patch.worker.patch_draft_quarot")
        fold.patch_load_weights(
            SimpleNamespace(model_config=SimpleNamespace(model=str(target)), quant_config=quantised)
        )

    def _register(self, quantised: Any) -> None:
        from vllm.model_executor.models import ModelRegistry, registry

        utils = ModuleType("vllm_ascend.utils")
        utils.__dict__.update(
            self._functions("utils.py", ["get_rotation_path", "get_rotation_matrix"])
        )
        of_release = utils.get_rotation_path
        utils.get_rotation_path = lambda config: of_release(  # type: ignore[attr-defined]
            SimpleNamespace(quant_config=quantised, model_config=config.model_config)
        )
        self._monkeypatch.setitem(sys.modules, "vllm_ascend.utils", utils)
        self._load("models.llama_eagle3")
        # vLLM looks at a class in a process of its own, which loads plugins; this host is none.
        self._monkeypatch.setattr(
            registry._LazyRegisteredModel,
            "inspect_model_cls",
            lambda lazy: registry._ModelInfo.from_model_cls(lazy.load_model_cls()),
        )
        for architecture, target_class in self._registrations().items():
            ModelRegistry.register_model(architecture, target_class)

    def _registrations(self) -> dict[str, str]:
        """What the release registers from its ``models/llama_eagle3.py``."""
        tree = ast.parse((self._package / "models/__init__.py").read_text())
        calls = [
            [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("register_model")
        ]
        return {
            str(call[0]): str(call[1])
            for call in calls
            if len(call) == 2 and str(call[1]).startswith("vllm_ascend.models.llama_eagle3:")
        }

    def _load(self, name: str) -> Any:
        file = self._package.joinpath(*name.split(".")).with_suffix(".py")
        spec = importlib.util.spec_from_file_location(f"vllm_ascend.{name}", file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        self._monkeypatch.setitem(sys.modules, spec.name, module)
        spec.loader.exec_module(module)
        return module

    def _functions(self, file: str, names: list[str]) -> dict[str, Any]:
        tree = ast.parse((self._package / file).read_text())
        kept = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name in names]
        header = ast.parse(
            "from __future__ import annotations\nimport logging\nfrom pathlib import Path\n"
            "from safetensors.torch import load_file\nlogger = logging.getLogger(__name__)\n"
        )
        found: dict[str, Any] = {"__name__": "vllm_ascend.utils"}
        exec(compile(ast.Module([*header.body, *kept], []), file, "exec"), found)
        return {name: found[name] for name in names}


_SPECFORGE_NAME = "LlamaForCausalLMEagle3"
