# SPDX-License-Identifier: Apache-2.0
"""The emulator stops at every rule of the device that it claims to enforce, and only there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kernels.ascendc.harness import build
from tests.kernels.ascendc.harness.program import run_program


def probes() -> list[tuple[str, str]]:
    """Names and rules, read from the probe table so that none can be forgotten here."""
    text = (build.DRIVER / "probe_rules.cpp").read_text()
    table = text[text.index("probes = {") : text.index("return probes;")]
    lines = [line.strip() for line in table.splitlines() if line.strip().startswith('{"')]
    return [(line.split('"')[1], line.split('"')[3]) for line in lines]


@pytest.fixture(scope="module")
def prober(compiler: str) -> Path:
    return build.probes()


def test_the_table_is_read_completely(prober: Path) -> None:
    done = run_program([str(prober)], timeout_s=60)
    assert done.returncode == 0, done.stderr
    listed = done.stdout
    assert [tuple(line.split("\t")) for line in listed.splitlines()] == probes()


@pytest.mark.parametrize(
    ("name", "rule"), probes(), ids=[name.replace(" ", "-") for name, _ in probes()]
)
def test_rule(prober: Path, name: str, rule: str) -> None:
    done = run_program([str(prober), name], timeout_s=60)
    if not rule:
        assert done.returncode == 0, done.stderr
    else:
        assert f"EMULATOR {rule}:" in done.stderr, done.stderr or "nothing stopped it"
        assert done.returncode == 70
