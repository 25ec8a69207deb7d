# SPDX-License-Identifier: Apache-2.0
"""The real draft classes, loaded by the real loader: what they make of rotated aux states.

The reference is the host's own behaviour (mode ``off``) on the unrotated states ``h``; the draft
under test gets ``h Q``.
"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
import vllm.logger  # noqa: F401  # configures logging when first imported, which undoes caplog

from tests.support.checkpoints import embedding, write_sidecar, write_target
from tests.support.drafts import DraftSpec
from tests.support.engine import complete_target, loaded_draft
from tests.support.rotations import ROTATIONS, hadamard_rotation, rotated
from vllm_eagle3_quarot.errors import RotationError, SettingsError, UnsupportedPairError
from vllm_eagle3_quarot.integrations.draft_mixin import QuaRotDraftMixin

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

#: fp32 through one rotation, one norm and one product of up to 960 terms, on values of order 1.
FP32_TOLERANCE = 2e-5


def _pair(tmp_path: Path, q: torch.Tensor | None, spec: DraftSpec) -> tuple[Path, Path]:
    target = complete_target(write_target(tmp_path / "target", q, hidden=spec.input_size))
    table = embedding(96, spec.hidden) if spec.hidden == spec.input_size else None
    return target, spec.write(tmp_path / "draft", table)


def _combined(
    pair: tuple[Path, Path], h: torch.Tensor, **settings: object
) -> tuple[type, torch.Tensor]:
    with loaded_draft(*pair, settings=settings) as draft, torch.inference_mode():
        # The host hands over a concatenation of its own, which may be written to.
        return type(draft), draft.combine_hidden_states(h.clone())


@pytest.mark.variants(5)
@pytest.mark.parametrize("name", ROTATIONS)
@pytest.mark.parametrize("variant", ["plain", "norm_before_fc", "fc_norm"])
def test_combined_states_equal_those_of_the_original_target(
    tmp_path: Path, name: str, variant: str
) -> None:
    """vllm-project/vllm-ascend#5974: the projection must see what it was trained on."""
    q = ROTATIONS[name]
    flags = {} if variant == "plain" else {variant: True}
    spec = DraftSpec(hidden=q.shape[0], **flags)  # type: ignore[arg-type]
    pair = _pair(tmp_path, q, spec)
    h = torch.randn(7, 3 * q.shape[0])
    _, expected = _combined(pair, h, mode="off")
    cls, actual = _combined(pair, rotated(h, q))
    assert issubclass(cls, QuaRotDraftMixin)
    assert torch.allclose(actual, expected, atol=FP32_TOLERANCE)
    _, uncorrected = _combined(pair, rotated(h, q), mode="off")
    assert not torch.allclose(uncorrected, expected, atol=0.1)


@pytest.mark.variants(6)
@pytest.mark.parametrize("aux_states", [1, 2, 4, 5])
def test_any_number_of_aux_states(tmp_path: Path, aux_states: int) -> None:
    q = ROTATIONS["12 x 16"]
    layers = {"eagle_aux_hidden_state_layer_ids": list(range(aux_states))}
    pair = _pair(tmp_path, q, DraftSpec(hidden=192, aux_states=aux_states, extra=layers))
    h = torch.randn(4, aux_states * 192)
    _, expected = _combined(pair, h, mode="off")
    _, actual = _combined(pair, rotated(h, q))
    assert torch.allclose(actual, expected, atol=FP32_TOLERANCE)


@pytest.mark.variants(8)
def test_draft_narrower_than_its_target(tmp_path: Path) -> None:
    q = ROTATIONS["12 x 16"]
    pair = _pair(tmp_path, q, DraftSpec(hidden=64, target_hidden=192))
    h = torch.randn(4, 3 * 192)
    _, expected = _combined(pair, h, mode="off")
    _, actual = _combined(pair, rotated(h, q))
    assert actual.shape == (4, 64)
    assert torch.allclose(actual, expected, atol=FP32_TOLERANCE)


@pytest.mark.variants(13)
@pytest.mark.parametrize("mode", ["runtime", "fold"])
@pytest.mark.parametrize("name", ["12 x 16", "dense"])
def test_bf16_model(tmp_path: Path, name: str, mode: str) -> None:
    """vLLM builds it with bf16 as torch's default dtype, in which Q cannot be represented."""
    q = ROTATIONS[name]
    pair = _pair(tmp_path, q, DraftSpec(hidden=q.shape[0]))
    h = torch.randn(4, 3 * q.shape[0])
    _, expected = _combined(pair, h, mode="off")
    with (
        loaded_draft(*pair, settings={"mode": mode}, dtype="bfloat16") as draft,
        torch.inference_mode(),
    ):
        combined = draft.combine_hidden_states(rotated(h, q).bfloat16())
        structure = draft._quarot.correction.rotation.structure
    assert (structure is None) == (name == "dense")
    # bf16 states and weights: 2^-9 each, averaged over the terms of a product of order 1.
    assert torch.allclose(combined.float(), expected, atol=0.05)


@pytest.mark.variants(9)
def test_mask_state_of_parallel_drafting_is_left_alone(tmp_path: Path) -> None:
    """The mask never passed through the target, so it was never rotated."""
    q = ROTATIONS["hadamard"]
    spec = DraftSpec(mask_hidden=True, norm_before_fc=True, extra={"ptd_token_id": 5})
    pair = _pair(tmp_path, q, spec)
    combined = {}
    for mode in ("off", "runtime"):
        with (
            loaded_draft(*pair, settings={"mode": mode}, parallel_drafting=True) as draft,
            torch.inference_mode(),
        ):
            combined[mode] = draft.combine_hidden_states(draft.mask_hidden.view(-1))
    assert torch.equal(combined["off"], combined["runtime"])


def test_unrotated_target_gets_the_hosts_behaviour_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No operator of ours runs, nothing of ours is stored in the module."""
    pair = _pair(tmp_path, None, DraftSpec(norm_before_fc=True))
    h = torch.randn(5, 3 * 64)
    with loaded_draft(*pair, settings={"mode": "off"}) as draft, torch.inference_mode():
        expected, stock = draft.combine_hidden_states(h), set(draft.state_dict())
        buffers = {name for name, _ in draft.named_buffers()}

    def refuse(*_: object) -> torch.Tensor:
        raise AssertionError("an un-rotation ran on an unrotated target")

    for operator in ("unrotate", "unrotate_", "unrotate_norm"):
        monkeypatch.setattr(f"vllm_eagle3_quarot.ops.{operator}", refuse)
    with loaded_draft(*pair) as draft, torch.inference_mode():
        assert torch.equal(draft.combine_hidden_states(h), expected)
        assert set(draft.state_dict()) == stock
        assert {name for name, _ in draft.named_buffers()} == buffers


def test_one_summary_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    q = ROTATIONS["12 x 16"]
    target, draft = _pair(tmp_path, q, DraftSpec(hidden=192))
    with (
        caplog.at_level(logging.INFO, logger="vllm.eagle3_quarot"),
        loaded_draft(target, draft),
    ):
        pass
    lines = [r.getMessage() for r in caplog.records if r.name == "vllm.eagle3_quarot"]
    # Which kernels run is said once per process, by whoever needs them first.
    (line,) = [line for line in lines if "operators on the CPU" not in line]
    for part in (str(target), "H=192", "hadamard", "12 x 16", str(draft), "A=3", "mode runtime"):
        assert part in line


def test_draft_without_a_head_and_without_a_source_of_the_scale_is_refused(
    tmp_path: Path,
) -> None:
    """vllm-project/vllm-ascend#13407: correcting fc alone leaves two coordinate systems."""
    pair = _pair(tmp_path, ROTATIONS["hadamard"], DraftSpec(own_head=False))
    with pytest.raises(UnsupportedPairError, match="original_model"), loaded_draft(*pair):
        pass
    with loaded_draft(*pair, settings={"strict": False}) as draft, torch.inference_mode():
        h = torch.randn(2, 3 * 64)
        served = draft.combine_hidden_states(h)
    assert torch.equal(served, _combined(pair, h, mode="off")[1])


@pytest.mark.variants(7)
@pytest.mark.parametrize("name", ROTATIONS)
def test_post_norm_draft_gets_the_scaled_state(tmp_path: Path, name: str) -> None:
    """A rotated target hands over ``(h / g) Q`` after its norm of ones."""
    q = ROTATIONS[name]
    scale = torch.linspace(0.5, 1.5, q.shape[0])
    spec = DraftSpec(hidden=q.shape[0], extra={"eagle_config": {"use_aux_hidden_state": False}})
    target, draft = _pair(tmp_path, q, spec)
    original = write_target(tmp_path / "original", None, hidden=q.shape[0])
    h = torch.randn(4, q.shape[0])
    settings = {"original_model": str(original)}
    _, actual = _combined((target, draft), (h / scale) @ q, **settings)
    # The scale is read from a bf16 checkpoint, which keeps it to 2^-9.
    assert torch.allclose(actual, h, rtol=2**-8, atol=FP32_TOLERANCE)
    with pytest.raises(UnsupportedPairError, match="original_model"):
        _combined((target, draft), h)


def test_draft_of_another_target_is_refused(tmp_path: Path) -> None:
    target = complete_target(write_target(tmp_path / "target", ROTATIONS["12 x 16"]))
    draft = DraftSpec(hidden=64).write(tmp_path / "draft")
    with (
        pytest.raises(UnsupportedPairError, match=r"64 channels.*192"),
        loaded_draft(target, draft),
    ):
        pass


def test_stale_rotation_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    target, draft = _pair(tmp_path, ROTATIONS["hadamard"], DraftSpec())
    write_sidecar(target, hadamard_rotation(64, seed=9))
    with (
        pytest.raises(RotationError, match="does not belong to the target"),
        loaded_draft(target, draft),
    ):
        pass


def test_unknown_setting_is_refused(tmp_path: Path) -> None:
    pair = _pair(tmp_path, None, DraftSpec())
    with (
        pytest.raises(SettingsError, match="'stirct': no such key"),
        loaded_draft(*pair, settings={"stirct": True}),
    ):
        pass


def test_start_up_of_an_unrotated_target_reads_one_small_tensor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The work added to a server that does not need us: a few headers and the final norm."""
    from vllm_eagle3_quarot.checkpoint.tensors import TensorIndex
    from vllm_eagle3_quarot.rotation import Rotation

    reads: list[str] = []
    read = TensorIndex.read

    def counted(self: TensorIndex, name: str) -> torch.Tensor:
        reads.append(name)
        return read(self, name)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("an unrotated target was examined further")

    monkeypatch.setattr(TensorIndex, "read", counted)
    for method in ("read_rows", "read_range"):
        monkeypatch.setattr(TensorIndex, method, refuse)
    monkeypatch.setattr(Rotation, "from_file", refuse)
    with loaded_draft(*_pair(tmp_path, None, DraftSpec())):
        pass
    assert reads == ["model.norm.weight"]
