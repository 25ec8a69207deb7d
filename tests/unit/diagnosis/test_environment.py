# SPDX-License-Identifier: Apache-2.0
"""What the installed hosts and the machine make of a pair."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_eagle3_quarot.diagnosis import environment as surroundings


@pytest.mark.parametrize(
    ("vllm", "ascend", "npu", "expected"),
    [
        ("0.23.0", "0.23.0.post1", True, set()),
        ("0.23.0+empty", "0.23.0rc1", True, set()),
        ("0.23.1", "0.22.0", True, {"hosts-mismatched"}),
        ("0.23.0", None, False, set()),
        ("0.23.0", None, True, {"ascend-not-installed"}),
        (None, None, True, set()),
    ],
)
def test_hosts_that_do_not_fit_each_other_or_the_machine(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    vllm: str | None,
    ascend: str | None,
    npu: bool,
    expected: set[str],
) -> None:
    monkeypatch.setattr(surroundings, "NPU_DEVICE", tmp_path if npu else tmp_path / "absent")
    found = surroundings.examine_environment({}, {"vllm": vllm, "vllm-ascend": ascend})
    named = {finding.code: finding for finding in found}
    assert named.keys() & {"hosts-mismatched", "ascend-not-installed"} == expected
    if "ascend-not-installed" in named:
        assert named["ascend-not-installed"].remedy == "pip install vllm-ascend==0.23.*"
