# SPDX-License-Identifier: Apache-2.0
"""Settings: defaults, and errors that list what is known."""

from __future__ import annotations

import pytest

from vllm_eagle3_quarot.errors import SettingsError
from vllm_eagle3_quarot.settings import Settings, is_disabled


@pytest.mark.parametrize("additional", [{}, {"other": 1}, {"eagle3_quarot": None}, None, object()])
def test_defaults(additional: object) -> None:
    settings = Settings.from_additional_config(additional)
    assert (settings.mode, settings.strict, settings.rotation) == ("runtime", True, None)


def test_values_are_read() -> None:
    raw = {"mode": "off", "strict": False, "rotation": "/q.safetensors"}
    settings = Settings.from_additional_config({"eagle3_quarot": raw, "ascend": {}})
    assert (settings.mode, settings.strict, settings.rotation) == ("off", False, "/q.safetensors")


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ({"modus": "off"}, r"'modus': no such key"),
        ({"mode": "fold it"}, r"'mode'"),
        ({"strict": "perhaps"}, r"'strict'"),
        ({"rotation": 3}, r"'rotation'"),
        ({"rotation": ""}, r"'rotation'"),
        ([], r"is a list"),
        ("off", r"is a str"),
    ],
)
def test_errors_name_the_key_and_list_the_known_ones(raw: object, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason) as caught:
        Settings.from_additional_config({"eagle3_quarot": raw})
    for key in Settings.model_fields:
        assert f"'{key}'" in str(caught.value)


@pytest.mark.parametrize(
    ("value", "disabled"), [(None, False), ("", False), ("0", False), ("1", True), ("true", True)]
)
def test_environment_variable(
    monkeypatch: pytest.MonkeyPatch, value: str | None, disabled: bool
) -> None:
    monkeypatch.delenv("VLLM_EAGLE3_QUAROT_DISABLE", raising=False)
    if value is not None:
        monkeypatch.setenv("VLLM_EAGLE3_QUAROT_DISABLE", value)
    assert is_disabled() is disabled
