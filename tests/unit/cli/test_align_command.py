# SPDX-License-Identifier: Apache-2.0
"""``eagle3-quarot align``: arguments, output, exit codes, and what an interrupted run leaves."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner, Result

from tests.support import reference_pair as pair
from tests.support.checkpoints import write_target
from tests.support.drafts import DraftSpec
from tests.support.rotations import dense_rotation
from vllm_eagle3_quarot.cli.app import app

TARGET = pair.PAIR / "target-w8a8-quarot"


def _run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["align", *map(str, arguments)])


def _common(output: Path, draft: Path = pair.DRAFT, target: Path = TARGET) -> list[str]:
    return [
        "--draft-model-path",
        str(draft),
        "--target-model-path",
        str(target),
        "--output-dir",
        str(output),
    ]


def test_reference_pair(tmp_path: Path) -> None:
    result = _run(*_common(tmp_path / "out"), "--json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert document["rotation"]["kind"] == "hadamard"
    assert document["aux_states"] == 3
    assert (tmp_path / "out/model.safetensors").is_file()
    again = _run(*_common(tmp_path / "twice", draft=tmp_path / "out"), "--json")
    assert again.exit_code == 1
    assert "aligned already" in json.loads(again.stdout)["error"]["message"]
    back = _run(*_common(tmp_path / "back", draft=tmp_path / "out"), "--undo")
    assert back.exit_code == 0
    assert back.stdout.startswith("restored")


def test_dry_run_writes_nothing(tmp_path: Path) -> None:
    result = _run(*_common(tmp_path / "out"), "--dry-run")
    assert result.exit_code == 0
    assert result.stdout.startswith("would align")
    assert "fc.weight: folded" in result.stdout
    assert list(tmp_path.iterdir()) == []


def test_existing_output_needs_overwrite(tmp_path: Path) -> None:
    assert _run(*_common(tmp_path / "out")).exit_code == 0
    refused = _run(*_common(tmp_path / "out"))
    assert refused.exit_code == 2
    assert "--overwrite" in refused.stderr
    assert refused.stderr.count("\n") == 1
    assert _run(*_common(tmp_path / "out"), "--overwrite").exit_code == 0


def test_unrotated_target_and_missing_model_are_one_line_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    unrotated = _run(*_common(tmp_path / "out", target=pair.FLOAT_TARGET))
    assert unrotated.exit_code == 1
    assert "nothing says that this target is rotated" in unrotated.stderr
    missing = _run(*_common(tmp_path / "out", target=tmp_path / "no such folder"))
    assert missing.exit_code == 2
    assert "neither a folder nor a hub id" in missing.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("program", [["-m", "vllm_eagle3_quarot"], None])
def test_both_ways_to_start_it(program: list[str] | None) -> None:
    script = Path(sys.executable).with_name("eagle3-quarot")
    command = [str(script)] if program is None else [sys.executable, *program]
    result = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "0.1.0"


def test_model_of_the_hugging_face_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """vllm-project/vllm-ascend: targets are named by id; a cache holds links into ``blobs``."""
    cache = tmp_path / "hub"
    for name, source in (("target", TARGET), ("draft", pair.DRAFT)):
        root = cache / f"models--owner--{name}"
        (root / "refs").mkdir(parents=True)
        (root / "refs/main").write_text("0" * 40)
        for path in filter(Path.is_file, source.rglob("*")):
            relative = path.relative_to(source)
            link = root / "snapshots" / ("0" * 40) / relative
            blob = root / "blobs" / str(relative).replace("/", "-")
            blob.parent.mkdir(exist_ok=True)
            link.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, blob)
            link.symlink_to(os.path.relpath(blob, link.parent))
    program = [sys.executable, "-m", "vllm_eagle3_quarot", "align"]
    environment = {**os.environ, "HF_HUB_CACHE": str(cache), "HF_HUB_OFFLINE": "1"}
    models = ["--draft", "owner/draft", "--target", "owner/target"]
    output = tmp_path / "out"
    subprocess.run([*program, *models, "--output-dir", output], env=environment, check=True)
    assert not any(path.is_symlink() for path in output.rglob("*"))
    assert _run(*_common(tmp_path / "twice", draft=output)).exit_code == 1


def test_model_of_modelscope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client is replaced by one that answers from a folder and records what it is asked."""
    package = tmp_path / "packages/modelscope"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "def snapshot_download(model_id, revision=None, cache_dir=None, allow_patterns=None,"
        " local_files_only=False):\n"
        f"    places = {{'owner/target': {str(TARGET)!r}, 'owner/draft': {str(pair.DRAFT)!r}}}\n"
        "    assert '*.json' in allow_patterns\n"
        "    return places[model_id]\n"
    )
    program = [sys.executable, "-m", "vllm_eagle3_quarot", "align"]
    environment = {
        **os.environ,
        "VLLM_USE_MODELSCOPE": "True",
        "PYTHONPATH": str(package.parent),
    }
    models = ["--draft", "owner/draft", "--target", "owner/target"]
    output = tmp_path / "out"
    subprocess.run([*program, *models, "--output-dir", output], env=environment, check=True)
    assert (output / "model.safetensors").is_file()
    missing = subprocess.run(
        [*program, "--draft", "owner/none", *models[2:], "--output-dir", tmp_path / "none"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert missing.returncode == 2
    assert "cannot be had from ModelScope" in missing.stderr


def _large_pair(folder: Path, hidden: int, rows: int) -> tuple[Path, Path]:
    """A draft with a projection ``[hidden, 3·hidden]`` and a head of ``rows`` rows, bf16."""
    target = write_target(folder / "target", dense_rotation(hidden))
    extra = {"vocab_size": rows}
    spec = DraftSpec(
        hidden=hidden, intermediate=8, own_embedding=False, own_head=False, extra=extra
    )
    draft = spec.write(folder / "draft", dtype=torch.bfloat16)
    head = {"lm_head.weight": torch.ones(rows, hidden, dtype=torch.bfloat16)}
    save_file(head, draft / "head.safetensors")
    return target, draft


def _child(arguments: list[str], limit: int | None = None) -> subprocess.Popen[str]:
    """The command in a process of its own, optionally one that cannot write longer files."""

    def limited() -> None:
        if limit is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.Popen(
        [sys.executable, "-m", "vllm_eagle3_quarot", "align", *arguments],
        preexec_fn=limited,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )


def test_a_disk_that_takes_no_more_leaves_nothing(tmp_path: Path) -> None:
    target, draft = _large_pair(tmp_path, 256, 20_000)
    process = _child(_common(tmp_path / "out", draft, target), limit=2**20)
    _, errors = process.communicate()
    assert process.returncode == 2
    assert "could not be written" in errors
    assert "Traceback" not in errors
    assert sorted(path.name for path in tmp_path.iterdir()) == ["draft", "target"]


def test_killed_at_random_moments(tmp_path: Path) -> None:
    """Old state or new one; here the old state is that nothing is there."""
    target, draft = _large_pair(tmp_path, 256, 50_000)
    arguments = _common(tmp_path / "out", draft, target)
    started = time.monotonic()
    assert _child(arguments).wait() == 0
    whole = time.monotonic() - started
    files = {path.name: path.stat().st_size for path in (tmp_path / "out").iterdir()}
    shutil.rmtree(tmp_path / "out")
    for share in (0.8, 0.95):
        process = _child(arguments)
        time.sleep(whole * share)
        process.kill()
        process.wait()
        if (tmp_path / "out").exists():
            found = {path.name: path.stat().st_size for path in (tmp_path / "out").iterdir()}
            assert found == files
            shutil.rmtree(tmp_path / "out")
    assert _child(arguments).wait() == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["draft", "out", "target"]


PEAK = """
import resource, sys
import vllm_eagle3_quarot.cli.align, torch
torch.ones(8, 8) @ torch.ones(8, 8)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
from vllm_eagle3_quarot.cli.app import app
app(["align", *sys.argv[1:]], standalone_mode=False)
print(before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def test_peak_memory_stays_below_three_times_the_largest_tensor_and_q(tmp_path: Path) -> None:
    """sgl-project/sglang#30524: a block diagonal would be nine times the size of Q alone."""
    hidden, rows = 1024, 60_000
    target, draft = _large_pair(tmp_path, hidden, rows)
    result = subprocess.run(
        [sys.executable, "-c", PEAK, *_common(tmp_path / "out", draft, target)],
        capture_output=True,
        text=True,
        check=True,
    )
    before, after = map(int, result.stdout.splitlines()[-1].split())
    largest, q = rows * hidden * 2, hidden * hidden * 4
    assert (after - before) * 1024 < 3 * largest + q
