# SPDX-License-Identifier: Apache-2.0
"""The servers that the demo compares."""

from __future__ import annotations

from dataclasses import dataclass

from tools.serving import ReferencePair, ServeOptions

MAX_NUM_SEQS = 4


@dataclass(frozen=True)
class Configuration:
    """One server.

    Attributes:
        slug: short name, used for the log file.
        title: name in the progress report and in the table.
        undrafted: slug of the configuration that serves the same target without a draft, whose
            text is what greedy speculation has to reproduce; None for such a configuration.
        in_table: False for one that is only there to be compared with.
    """

    slug: str
    title: str
    options: ServeOptions
    undrafted: str | None = None
    in_table: bool = True


def configurations(pair: ReferencePair) -> list[Configuration]:
    """Return all servers, in the order in which they run and are shown."""

    def serve(rotated: bool, drafted: bool, mode: str | None = None) -> ServeOptions:
        return ServeOptions(
            target=pair.rotated if rotated else pair.unrotated,
            draft=pair.draft if drafted else None,
            plugin=None if mode is None else {"mode": mode},
            max_num_seqs=MAX_NUM_SEQS,
        )

    return [
        Configuration(
            "unrotated-undrafted",
            "unrotated W8A8 target, no draft (text to compare the next with)",
            serve(rotated=False, drafted=False),
            in_table=False,
        ),
        Configuration(
            "unrotated",
            "unrotated W8A8 target + draft",
            serve(rotated=False, drafted=True),
            undrafted="unrotated-undrafted",
        ),
        Configuration(
            "undrafted",
            "QuaRot W8A8 target, no draft",
            serve(rotated=True, drafted=False),
        ),
        Configuration(
            "plugin-off",
            "QuaRot W8A8 target + draft, plugin off",
            serve(rotated=True, drafted=True, mode="off"),
            undrafted="undrafted",
        ),
        Configuration(
            "plugin-on",
            "QuaRot W8A8 target + draft, plugin on",
            serve(rotated=True, drafted=True, mode="runtime"),
            undrafted="undrafted",
        ),
    ]
