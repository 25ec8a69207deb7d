# SPDX-License-Identifier: Apache-2.0
"""A rotated mixture of experts as msModelSlim quantised it, router included, served with a draft.

The draft has random weights, so the target rejects what it proposes; that its proposals are right
is shown in tests/engine/test_moe_target.py.
"""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from tests.e2e.served import DTYPE, MAX_TOKENS, serve_once
from tests.support import moe_target
from tests.unit.cpu.engine_run import run_engine
from tests.unit.cpu.reference_model import check_against_reference
from tools.serving import ReferencePair, ServeOptions

PROMPTS = 4


@pytest.mark.matrix
def test_greedy_text_is_that_of_the_target_without_speculation(
    pair: ReferencePair, logs: Path, tmp_path: Path
) -> None:
    target = moe_target.servable(moe_target.ROTATED, tmp_path / "target")
    draft = replace(moe_target.INDEPENDENT, own_embedding=False).write(tmp_path / "draft")
    prompts = pair.completions[:PROMPTS]
    options = ServeOptions(target=target, draft=draft)
    served = serve_once(options, prompts, logs / "moe.log", signal.SIGTERM)
    assert (served.stop.exit_code, served.left_behind) == (0, 0)
    assert served.run.counters.drafts > 0
    assert "un-rotated before norms and fc" in served.log

    tokenizer = AutoTokenizer.from_pretrained(target)
    token_ids = [tokenizer(prompt)["input_ids"] for prompt in prompts]
    greedy = {"temperature": 0.0, "max_tokens": MAX_TOKENS, "ignore_eos": True}
    (answers,) = run_engine(
        tmp_path,
        {"model": str(target), "dtype": DTYPE},
        [{"prompts": token_ids, "params": {**greedy, "prompt_logprobs": 0}}],
    )
    check_against_reference(target, token_ids, answers)
    assert list(served.run.texts) == [answer["texts"][0] for answer in answers]
    assert len(set(served.run.texts)) == PROMPTS
