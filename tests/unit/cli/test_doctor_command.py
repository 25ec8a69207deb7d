# SPDX-License-Identifier: Apache-2.0
"""``eagle3-quarot doctor``: exit codes, the JSON form, and a command that can be pasted."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

from typer.testing import CliRunner, Result

from tests.support import reference_pair as pair
from vllm_eagle3_quarot.cli.app import app
from vllm_eagle3_quarot.settings import Settings

TARGET = pair.PAIR / "target-w8a8-quarot"


def _run(target: Path, draft: Path, *arguments: object) -> Result:
    models = ["--target", str(target), "--draft", str(draft)]
    return CliRunner().invoke(app, ["doctor", *models, *map(str, arguments)])


def test_json_form() -> None:
    result = _run(TARGET, pair.DRAFT, "--json", "--original-model", pair.FLOAT_TARGET)
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert list(document) == [
        "verdict",
        "findings",
        "target",
        "draft",
        "versions",
        "serve_command",
    ]
    assert document["verdict"] == "ready-with-plugin"
    for finding in document["findings"]:
        assert list(finding) == ["code", "severity", "message", "remedy"]
        assert finding["severity"] in ("error", "warning", "info")
    assert document["target"]["rotation"]["kind"] == "hadamard"
    assert document["draft"]["aux_states"] == 3
    assert {"python", "torch", "vllm", "vllm-ascend"} <= document["versions"].keys()


def test_serve_command_is_what_vllm_and_the_plugin_understand(tmp_path: Path) -> None:
    headless = pair.variant(
        tmp_path / "it's headless",
        pair.without("lm_head.weight", "d2t", "t2d"),
        lambda config: {**config, "draft_vocab_size": None},
    )
    result = _run(TARGET, headless, "--json", "--original-model", pair.FLOAT_TARGET)
    words = shlex.split(json.loads(result.stdout)["serve_command"])
    assert words[:5] == ["vllm", "serve", str(TARGET), "--quantization", "ascend"]
    options = dict(zip(words[5::2], words[6::2], strict=True))
    speculation = json.loads(options["--speculative-config"])
    assert speculation == {"method": "eagle3", "model": str(headless), "num_speculative_tokens": 3}
    additional = json.loads(options["--additional-config"])
    settings = Settings.from_additional_config(additional)
    assert settings.original_model == str(pair.FLOAT_TARGET)


def test_lines_for_people() -> None:
    result = _run(pair.FLOAT_TARGET, pair.FLOAT_TARGET)
    assert result.exit_code == 1
    assert result.stdout.startswith("not-eagle3\n")
    assert "was the target given as the draft" in result.stdout
    assert "serve with" not in result.stdout


def test_missing_rotation_names_the_command_that_finds_it(tmp_path: Path) -> None:
    shutil.copytree(TARGET, tmp_path / "t", ignore=shutil.ignore_patterns("optional"))
    result = _run(tmp_path / "t", pair.DRAFT)
    assert result.exit_code == 1
    assert result.stdout.startswith("rotation-missing\n")
    assert f"eagle3-quarot recover --target-model-path {tmp_path / 't'}" in result.stdout


def test_unreadable_input(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d/config.json").write_text("{")
    for arguments in ((), ("--json",)):
        result = _run(TARGET, tmp_path / "d", *arguments)
        assert result.exit_code == 2
        assert "not valid JSON" in result.output
    assert json.loads(result.stdout)["error"]["kind"] == "CheckpointError"
