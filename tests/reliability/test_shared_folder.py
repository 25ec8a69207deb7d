# SPDX-License-Identifier: Apache-2.0
"""Two servers from one checkpoint folder at once, whose sidecar changes under their feet."""

from __future__ import annotations

import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from tests.e2e.served import DTYPE
from tests.support.checkpoints import write_sidecar
from tests.support.rotations import dense_rotation
from tools.serving import ReferencePair, ServeOptions, Server, ServingError, greedy_run

pytestmark = pytest.mark.soak

SERVERS = 2
EMBEDDING = "model.embed_tokens.weight"
SIDECAR = Path("optional") / "quarot.safetensors"


@dataclass(frozen=True)
class Pair:
    """Copies that a test may change.

    Attributes:
        target: checkpoint folder of the rotated target.
        draft: checkpoint folder of the draft.
    """

    target: Path
    draft: Path

    def options(self, cache: Path) -> ServeOptions:
        return ServeOptions(
            target=self.target,
            draft=self.draft,
            dtype=DTYPE,
            environment={"XDG_CACHE_HOME": str(cache)},
        )


@pytest.fixture
def copies(pair: ReferencePair, tmp_path: Path) -> Pair:
    shutil.copytree(pair.rotated, tmp_path / "target")
    shutil.copytree(pair.draft, tmp_path / "draft")
    return Pair(tmp_path / "target", tmp_path / "draft")


def test_servers_share_a_folder_and_survive_its_change(
    pair: ReferencePair, copies: Pair, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    prompts = pair.completions[:8]
    with ExitStack() as stack:
        servers = [
            Server.of(copies.options(cache), tmp_path / f"{number}.log")
            for number in range(SERVERS)
        ]
        # They start at the same moment: one of them builds the kernels, the other waits for it.
        with ThreadPoolExecutor(SERVERS) as pool:
            list(pool.map(stack.enter_context, servers))
        runs = [greedy_run(server, prompts, 32) for server in servers]
        assert runs[0].texts == runs[1].texts
        assert all(run.counters.acceptance[0] >= 0.8 for run in runs)
        assert [path.suffix for path in cache.rglob("*.so")] == [".so"]

        # In place, as a careless `cp` or an interrupted `rsync --inplace` does it: what was mapped
        # of a file that became shorter would end the process that touches it.
        with (copies.target / SIDECAR).open("r+b") as file:
            file.truncate(1000)
        again = [greedy_run(server, prompts, 32) for server in servers]
        assert [run.texts for run in again] == [run.texts for run in runs]
        assert all(run.counters.acceptance[0] >= 0.8 for run in again)
        reports = [server.stop() for server in servers]
    assert [(report.exit_code, report.killed) for report in reports] == [(0, ())] * SERVERS

    assert "cannot be read" in refusal(copies.options(cache), tmp_path / "truncated.log")


def test_a_sidecar_of_another_model_is_refused_at_the_next_start(
    pair: ReferencePair, copies: Pair, tmp_path: Path
) -> None:
    """The draft's own token table is what tells: this one gets the original model's."""
    path = copies.draft / "model.safetensors"
    table = load_file(pair.original / "model.safetensors")[EMBEDDING]
    save_file({**load_file(path), "embed_tokens.weight": table}, path)
    write_sidecar(copies.target, dense_rotation(table.shape[1]))
    text = refusal(copies.options(tmp_path), tmp_path / "replaced.log")
    assert str(copies.target / SIDECAR) in text


def refusal(options: ServeOptions, log: Path) -> str:
    """What the log says, in its one line, about why this server does not start."""
    server = Server.of(options, log)
    with pytest.raises(ServingError, match="RotationError"), server:
        pytest.fail("it started")
    text = log.read_text(encoding="utf-8", errors="replace")
    (line,) = re.findall(r"eagle3_quarot: refusing to start\. .*", text)
    return str(line)
