# SPDX-License-Identifier: Apache-2.0
"""The Python releases that the metadata names, of which this environment runs one.

mypy knows from which release on each name of the standard library exists, so a module that uses a
newer one is found without that interpreter. A comment that only one release needs is no fault.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.packaging.conftest import ROOT
from tests.packaging.test_archives import RELEASES


@pytest.mark.packaging
@pytest.mark.parametrize("release", RELEASES)
def test_types_are_right_for_the_release(release: str) -> None:
    options = ["--python-version", release, "--no-warn-unused-ignores"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, "vllm_eagle3_quarot"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
