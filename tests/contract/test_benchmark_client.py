# SPDX-License-Identifier: Apache-2.0
"""The installed vLLM's client knows the arguments that it gets, and writes what is read of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from vllm.benchmarks.serve import add_cli_args
from vllm.utils.argparse_utils import FlexibleArgumentParser

from vllm_eagle3_quarot.benchmarking.client import Client
from vllm_eagle3_quarot.benchmarking.dataset import Dataset
from vllm_eagle3_quarot.benchmarking.launch import MODEL, PairLaunch
from vllm_eagle3_quarot.benchmarking.matrix import Draft, Load, Sampling, ServerSpec
from vllm_eagle3_quarot.serving.server import Server


@pytest.mark.parametrize("sampling", Sampling)
def test_arguments_are_known(tmp_path: Path, sampling: Sampling) -> None:
    client = Client(Dataset.built_in(), prompts=8, output_tokens=16)
    spec = ServerSpec("t", Draft.none, 0, PairLaunch("/t", None, 0, {}), "/t", MODEL)
    server = Server(["true"], {}, 8123, tmp_path / "log")
    command = client._command(server, spec, Load(4, sampling), 8, tmp_path)
    parser = FlexibleArgumentParser()
    add_cli_args(parser)
    chosen = parser.parse_args(command[command.index("serve") + 1 :])
    assert (chosen.model, chosen.tokenizer, chosen.max_concurrency) == (MODEL, "/t", 4)
    assert (chosen.sharegpt_output_len, chosen.num_prompts) == (16, 8)
    assert chosen.temperature == {Sampling.greedy: 0.0, Sampling.sampled: 0.7}[sampling]
    assert (chosen.save_result, chosen.save_detailed) == (True, True)
