# SPDX-License-Identifier: Apache-2.0
"""User settings: ``--additional-config '{"eagle3_quarot": {...}}'`` and one variable."""

from __future__ import annotations

import os
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from vllm_eagle3_quarot.errors import SettingsError

#: Key of our settings inside vLLM's ``additional_config``.
SETTINGS_KEY = "eagle3_quarot"

#: Set to 1 to keep this plugin from registering anything.
DISABLE_VARIABLE = "VLLM_EAGLE3_QUAROT_DISABLE"


class GuardSettings(BaseModel):
    """When a running server warns that it accepts nothing of what its draft proposes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    min_acceptance: float = Field(
        default=0.02,
        ge=0.0,
        le=1.0,
        description=(
            "Share of drafts whose first token has to be accepted; below it the server warns once. "
            "0 switches the guard off."
        ),
    )
    after_drafts: int = Field(
        default=2000,
        ge=1,
        description="Number of drafts after which that share is looked at, again and again.",
    )


class Settings(BaseModel):
    """What a user may choose. Unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mode: Literal["runtime", "fold", "off"] = Field(
        default="runtime",
        description=(
            "'runtime' un-rotates the aux hidden states of a rotated target on every step; 'fold' "
            "changes the draft's projection once, while it is loaded, where that is exact; 'off' "
            "leaves the draft as the host made it."
        ),
    )
    strict: bool = Field(
        default=True,
        description=(
            "Refuse to start when the target is rotated and the draft cannot be corrected, or not "
            "by the mode that was asked for; when false, warn and serve it uncorrected, or "
            "corrected at run time where only a fold is not possible."
        ),
    )
    rotation: str | None = Field(
        default=None,
        min_length=1,
        description=(
            "File with the rotation (safetensors, tensor 'global_rotation', fp32 [H, H]), for a "
            "target that does not bring its own."
        ),
    )
    original_model: str | None = Field(
        default=None,
        min_length=1,
        description=(
            "Folder or hub id of the unrotated model. Its final norm is read for a draft without "
            "an lm_head of its own or one fed by the post-norm state, its token embedding to "
            "confirm a rotation that had to be rebuilt on an assumption."
        ),
    )

    guard: GuardSettings = Field(
        default=GuardSettings(),
        description="When a running server warns that drafts are never accepted.",
    )

    @classmethod
    def from_additional_config(cls, additional_config: object) -> Settings:
        """Read the settings out of vLLM's ``additional_config``.

        Raises:
            SettingsError: a key that is not known, or a value of the wrong kind.
        """
        # vLLM also allows an object of the platform's own class there; it cannot carry our key.
        raw = additional_config.get(SETTINGS_KEY) if isinstance(additional_config, dict) else None
        if raw is None:
            return cls()
        if not isinstance(raw, dict):
            raise SettingsError(
                f"--additional-config: '{SETTINGS_KEY}' is a {type(raw).__name__} where an object "
                f"with some of the keys {_known_keys()} is expected"
            )
        try:
            return cls.model_validate(raw)
        except ValidationError as error:
            problems = "; ".join(
                f"'{'.'.join(map(str, item['loc']))}': {_reason(item['type'], item['msg'])}"
                for item in error.errors()
            )
            raise SettingsError(
                f"--additional-config: '{SETTINGS_KEY}' has {problems}. Known keys: {_known_keys()}"
            ) from error


def is_disabled() -> bool:
    """True when the environment switches the plugin off."""
    return os.environ.get(DISABLE_VARIABLE, "").strip().lower() not in ("", "0", "false")


def _known_keys() -> str:
    return ", ".join(f"'{name}'" for name in Settings.model_fields)


def _reason(kind: str, message: str) -> str:
    return "no such key" if kind == "extra_forbidden" else message
