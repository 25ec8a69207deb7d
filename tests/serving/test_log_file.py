# SPDX-License-Identifier: Apache-2.0
"""The line that explains a failed start is found among vLLM's many."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_eagle3_quarot.serving.log_file import last_error

ENGINE = "(EngineCore pid=12) ERROR 11-29 14:37:20 [core.py:1140] "
API = "(APIServer pid=10) "


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        pytest.param(
            [
                f"{ENGINE}EngineCore failed to start.",
                f"{ENGINE}Traceback (most recent call last):",
                f'{ENGINE}  File "a.py", line 3, in f',
                f"{ENGINE}vllm_eagle3_quarot.errors.RotationError: no rotation in /t: re-export",
                f"{API}Traceback (most recent call last):",
                f"{API}RuntimeError: Engine core initialization failed. See root cause above. "
                "Failed core proc(s): {}",
            ],
            "vllm_eagle3_quarot.errors.RotationError: no rotation in /t: re-export",
            id="a cause wins over its consequence in the parent",
        ),
        pytest.param(
            [
                "ValueError: first",
                "The above exception was the direct cause of the following exception:",
                "RuntimeError: second",
            ],
            "RuntimeError: second",
            id="of a chain the last, which explains the others",
        ),
        pytest.param(
            [f"{API}RuntimeError: Engine core initialization failed. See root cause above."],
            "RuntimeError: Engine core initialization failed. See root cause above.",
            id="a consequence alone is better than nothing",
        ),
        pytest.param(
            ["usage: vllm serve [model_tag]", "vllm serve: error: unrecognized arguments: --x"],
            "vllm serve: error: unrecognized arguments: --x",
            id="a wrong flag",
        ),
        pytest.param(
            ["ERROR 11-29 14:37:20 [importing.py:81] cannot read the file", "INFO: goodbye"],
            "cannot read the file",
            id="a logged error without an exception",
        ),
        pytest.param(["INFO 11-29 14:37:20 [api.py:1] all is well"], None, id="no error"),
        pytest.param([], None, id="empty"),
    ],
)
def test_last_error(tmp_path: Path, lines: list[str], expected: str | None) -> None:
    log = tmp_path / "server.log"
    log.write_text("\n".join(lines), encoding="utf-8")
    assert last_error(log) == expected


def test_a_log_that_was_never_written_has_no_error(tmp_path: Path) -> None:
    assert last_error(tmp_path / "absent.log") is None
