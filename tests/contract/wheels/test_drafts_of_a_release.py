# SPDX-License-Identifier: Apache-2.0
"""What a release does with drafts by itself: classes, own corrections, shared tables.

Read from its source. A difference is no fault of the release: it says what we have to look at
before that release can be called tested.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from packaging.version import Version

from tests.contract.wheels.releases import Release, selected
from tests.contract.wheels.sources import source_folder
from vllm_eagle3_quarot.integrations.architectures import is_eagle3

#: Drafts of other methods that read the target's states; they are not corrected.
OF_OTHER_METHODS = frozenset(
    {
        "EagleLlamaForCausalLM",
        "EagleLlama4ForCausalLM",
        "EagleMiniCPMForCausalLM",
        "EagleCohereForCausalLM",
        "EagleMistralForCausalLM",
        "EagleMistralLarge3ForCausalLM",
        "EagleDeepseekV3ForCausalLM",
        "Medusa",
        "DFlashQwen3ForCausalLM",
        "DFlash2Qwen3ForCausalLM",
        "DFlashLagunaForCausalLM",
        "Qwen3DSparkForCausalLM",
        "Gemma4DSparkForCausalLM",
        "DSparkDeepseekV4ForCausalLM",
        "K3DSparkForCausalLM",
        "MuseSparkDSparkForCausalLM",
        "DFlash2BeamForCausalLM",
        "LiLiCorrForCausalLM",
        "Qwen3XPressForCausalLM",
    }
)

#: Draft classes that do not read a rotated target's states as a stranger would: multi-token
#: prediction layers are part of the target's own checkpoint, whose quantiser rotates them along, or
#: come from the model's own vendor together with the target.
PART_OF_THE_TARGET = ("MTP", "MultiTokenPredictor", "NextN")

#: Drafts nothing: it writes the target's states to disk.
NO_DRAFT = {"ExtractHiddenStatesModel"}

#: Files of vllm-ascend that undo a rotation for an Eagle3 draft, by the release that brought them.
EAGLE3_FOLDS = {
    "0.18": {"patch/worker/patch_draft_quarot.py"},
    "0.27": {"models/llama_eagle3.py"},
}

#: Words by which vllm-ascend's code speaks of the residual rotation.
ROTATION_WORDS = ("quarot", "global_rotation")

#: Files that speak of it, and of drafts, and change no Eagle3 draft: those of DFlash and DSpark,
#: and those that call what is listed above.
NO_EAGLE3_FOLD = {
    "models/kimi_k3_dspark.py",
    "models/qwen3_dspark.py",
    "patch/__init__.py",
    "patch/worker/__init__.py",
    "spec_decode/llm_base_proposer.py",
    "utils.py",
    "worker/model_runner_v1.py",
    "worker/v2/spec_decode/dspark/speculator.py",
}


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_bytes())


@pytest.mark.parametrize("release", selected("vllm"), ids=str)
def test_every_draft_class_of_vllm_is_known(release: Release) -> None:
    """Corrected, of another method, or part of the target: a new one must be put somewhere."""
    models = source_folder(release) / "vllm/model_executor/models"
    (table,) = [
        node.value
        for node in ast.walk(_tree(models / "registry.py"))
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id == "_SPECULATIVE_DECODING_MODELS"
    ]
    entries = ast.literal_eval(table)
    unknown = {
        f"{architecture}: {module}.{cls}"
        for architecture, (module, cls) in entries.items()
        if not is_eagle3(architecture, cls)
        and cls not in OF_OTHER_METHODS | NO_DRAFT
        and not any(word in cls for word in PART_OF_THE_TARGET)
    }
    assert unknown == set()
    assert any(is_eagle3(architecture, cls) for architecture, (_, cls) in entries.items())


@pytest.mark.parametrize("release", selected("vllm_ascend"), ids=str)
def test_hosts_own_corrections_are_known(release: Release) -> None:
    """vllm-project/vllm-ascend#6914, #10896: a fold that we do not know of would come on top."""
    package = source_folder(release) / "vllm_ascend"
    speaking = set()
    for path in package.rglob("*.py"):
        text = path.read_text().lower()
        of_drafts = "eagle3" in text or "spec_decode" in path.parts
        if of_drafts and any(word in text for word in ROTATION_WORDS):
            speaking.add(str(path.relative_to(package)))
    version = Version(release.version).release
    folds = max((key for key in EAGLE3_FOLDS if Version(key).release <= version), key=Version)
    assert {name for name in speaking if not name.startswith("quantization/")} <= (
        EAGLE3_FOLDS[folds] | NO_EAGLE3_FOLD
    )
    assert EAGLE3_FOLDS[folds] <= speaking


@pytest.mark.parametrize("release", selected("vllm_ascend"), ids=str)
def test_proposers_rotation_is_for_other_methods(release: Release) -> None:
    """0.26 also aligns drafts in its proposer: of DFlash and DSpark, not of Eagle3."""
    proposer = source_folder(release) / "vllm_ascend/spec_decode/llm_base_proposer.py"
    if not proposer.is_file() or "_maybe_anti_rotate_fc" not in proposer.read_text():
        return
    (function,) = _functions(proposer, "_maybe_anti_rotate_fc")
    first = function.body[1]
    assert isinstance(first, ast.If) and isinstance(first.body[0], ast.Return)
    assert ast.unparse(first.test) == "self.method not in ('dflash', 'dspark')"


@pytest.mark.parametrize("release", selected("vllm_ascend"), ids=str)
def test_head_is_not_shared_with_an_eagle3_draft(release: Release) -> None:
    """What a draft without one needs help with. Where this fails, it no longer does."""
    folder = source_folder(release) / "vllm_ascend/spec_decode"
    path = folder / "llm_base_proposer.py"
    if not path.is_file():
        path = folder / "eagle_proposer.py"
    (function,) = _functions(path, "_maybe_share_lm_head")
    sharing = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.If)
        and any(
            isinstance(inner, ast.Assign) and ast.unparse(inner.targets[0]) == "self.model.lm_head"
            for statement in node.body
            for inner in ast.walk(statement)
        )
    ]
    methods = [_methods_of(node.test) for node in sharing]
    assert any(methods) and all("eagle3" not in group for group in methods)


@pytest.mark.parametrize("release", selected("vllm_ascend"), ids=str)
def test_head_is_entered_through_the_logits_processor(release: Release) -> None:
    """compute_draft_token_ids goes past compute_logits; both meet in draft.logits_processor."""
    path = source_folder(release) / "vllm_ascend/spec_decode/llm_base_proposer.py"
    if not path.is_file():
        return  # releases before 0.23 call compute_logits only
    (function,) = _functions(path, "compute_draft_token_ids")
    calls = {ast.unparse(node.func) for node in ast.walk(function) if isinstance(node, ast.Call)}
    assert {"self.model.logits_processor", "self.model.compute_logits"} <= calls


@pytest.mark.parametrize("release", selected("vllm_ascend"), ids=str)
def test_states_are_split_along_tokens_only(release: Release) -> None:
    """Sequence parallelism, flash-comm: a row reaches the draft whole, so it can be rotated."""
    path = source_folder(release) / "vllm_ascend/worker/model_runner_v1.py"
    calls = [node for node in ast.walk(_tree(path)) if isinstance(node, ast.Call)]
    joined = [
        call
        for call in calls
        if ast.unparse(call.func) == "torch.cat" and "aux_hidden_states" in ast.unparse(call)
    ]
    assert joined and all(
        [ast.unparse(keyword.value) for keyword in call.keywords] == ["-1"] for call in joined
    )
    for function in _functions(path, "_all_gather_hidden_states"):  # until 0.26
        (gather,) = [
            call
            for call in ast.walk(function)
            if isinstance(call, ast.Call) and "all_gather" in ast.unparse(call.func)
        ]
        assert [ast.unparse(argument) for argument in gather.args] == ["hidden_states", "0"]


def _functions(path: Path, name: str) -> list[ast.FunctionDef]:
    return [
        node
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.FunctionDef) and node.name == name
    ]


def _methods_of(test: ast.expr) -> set[str]:
    """Method names that a condition compares ``self.method`` with."""
    return {
        constant.value
        for node in ast.walk(test)
        if isinstance(node, ast.Compare) and ast.unparse(node.left) == "self.method"
        for constant in ast.walk(node)
        if isinstance(constant, ast.Constant) and isinstance(constant.value, str)
    }
