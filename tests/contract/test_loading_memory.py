# SPDX-License-Identifier: Apache-2.0
"""What loading a draft costs beside the host's own loading, counted in bytes and in tables."""

from __future__ import annotations

import gc
import logging
import re
from pathlib import Path

import pytest
import torch
import vllm.logger  # noqa: F401  # configures logging when first imported, which undoes caplog
from safetensors.torch import load_file

from tests.support.checkpoints import embedding, write_target
from tests.support.drafts import DraftSpec
from tests.support.engine import complete_target, loaded_draft
from tests.support.memory import peak_allocation
from tests.support.rotations import dense_rotation, real_rotation
from tests.support.sharing import share_as_the_host_does, target_modules
from vllm_eagle3_quarot.rotation import row_blocks

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

#: A table has 3.0 MiB in fp32 and is the only tensor of its size.
SIZE, VOCABULARY = 192, 4099
TABLE_ELEMENTS = SIZE * VOCABULARY


def _large_tensors() -> set[int]:
    """Storages in this process that could hold a table, by address."""
    gc.collect()
    found = set()
    for candidate in gc.get_objects():
        if issubclass(type(candidate), torch.Tensor) and candidate.device.type == "cpu":
            storage = candidate.untyped_storage()
            if storage.nbytes() >= 2 * TABLE_ELEMENTS:
                found.add(storage.data_ptr())
    return found


@pytest.mark.parametrize("mode", ["runtime", "fold"])
@pytest.mark.parametrize("stored", ["absent", "copy"])
def test_no_second_token_table_with_a_shared_embedding(
    tmp_path: Path, mode: str, stored: str
) -> None:
    """vllm-ascend 0.23 keeps one: 1.24 GB at V = 151936, H = 4096 in bf16."""
    table = embedding(VOCABULARY, SIZE)
    spec = DraftSpec(
        hidden=SIZE,
        vocabulary=VOCABULARY,
        draft_vocabulary=64,
        own_embedding=stored == "copy",
        extra={"draft_vocab_size": 64},
    )
    q = real_rotation(SIZE)
    target_folder = complete_target(write_target(tmp_path / "target", q, vocabulary=VOCABULARY))
    draft_folder = spec.write(tmp_path / "draft", table if stored == "copy" else None)
    del table
    tables = load_file(target_folder / "model.safetensors")
    before = _large_tensors()
    settings = {"mode": mode}
    with loaded_draft(target_folder, draft_folder, settings=settings) as draft:
        target = target_modules(tables["model.embed_tokens.weight"], tables["lm_head.weight"])
        share_as_the_host_does(draft, target)
        with torch.inference_mode():
            draft.embed_input_ids(torch.arange(50))
        of_target = {p.untyped_storage().data_ptr() for p in target.parameters()}
        assert len(of_target) == 2
        assert _large_tensors() - before == of_target - before
        assert draft.model.embed_tokens is target.model.embed_tokens


def test_count_notices_a_second_table() -> None:
    """Guards the count above."""
    before = _large_tensors()
    kept = torch.zeros(VOCABULARY, SIZE)
    assert _large_tensors() - before == {kept.data_ptr()}


@pytest.mark.parametrize("mode", ["runtime", "fold"])
@pytest.mark.parametrize("name", ["12 x 16", "dense"])
def test_peak_beside_the_hosts_own_loading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, mode: str
) -> None:
    elements = 2**14
    monkeypatch.setattr(row_blocks, "ELEMENTS_AT_ONCE", elements)
    q = real_rotation(SIZE) if name == "12 x 16" else dense_rotation(SIZE)
    spec = DraftSpec(hidden=SIZE, vocabulary=VOCABULARY, fc_norm=True)
    target = complete_target(write_target(tmp_path / "target", q, vocabulary=VOCABULARY))
    draft = spec.write(tmp_path / "draft", embedding(VOCABULARY, SIZE))

    def load(mode: str) -> None:
        with loaded_draft(target, draft, settings={"mode": mode}):
            pass

    load("off")  # what is made once per process is not counted
    alone = peak_allocation(lambda: load("off"), tmp_path)
    ours = peak_allocation(lambda: load(mode), tmp_path)
    q_bytes = 4 * SIZE**2
    # Temporaries of one block or of the 64 rows that are compared first, in fp32.
    block_bytes = 12 * 4 * max(elements, 64 * SIZE)
    assert ours - alone <= q_bytes + block_bytes


@pytest.mark.parametrize(
    ("own", "mode", "kept", "table"),
    [
        (True, "runtime", r"0\.001 MiB for Q", r"3\.0 MiB for the draft's own token table"),
        (True, "fold", "nothing is kept beside the weights", r"3\.0 MiB for the draft's own"),
        (False, "runtime", r"0\.001 MiB for Q", r"no second token table \(3\.0 MiB saved\)"),
    ],
)
def test_summary_states_the_memory(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    own: bool,
    mode: str,
    kept: str,
    table: str,
) -> None:
    spec = DraftSpec(hidden=SIZE, vocabulary=VOCABULARY, own_embedding=own)
    q = real_rotation(SIZE)
    target = complete_target(write_target(tmp_path / "target", q, vocabulary=VOCABULARY))
    draft = spec.write(tmp_path / "draft", embedding(VOCABULARY, SIZE, seed=8) if own else None)
    with (
        caplog.at_level(logging.INFO, logger="vllm.eagle3_quarot"),
        loaded_draft(target, draft, settings={"mode": mode}),
    ):
        pass
    (line,) = [m for m in caplog.messages if f"mode {mode}; target" in m]
    assert re.search(f"memory: {kept}, {table}", line)
