# SPDX-License-Identifier: Apache-2.0
"""Every number that decides what the reference pair looks like, and the folders it is built in."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
FIXTURES = REPOSITORY / "tests" / "fixtures" / "reference_pair"

THREADS = 2
"""CPU threads of every stage. Fixed: the order of float sums depends on it."""


@dataclass(frozen=True)
class BookSettings:
    seed: int = 7
    articles: int = 90
    pages_per_article: int = 3
    vocab_size: int = 2048


@dataclass(frozen=True)
class TargetSettings:
    """A dense Qwen3. 192 = 12 * 16: a full-size Hadamard rotation needs a factor of order 12."""

    hidden_size: int = 192
    intermediate_size: int = 512
    layers: int = 8
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    max_positions: int = 2048
    seed: int = 0
    steps: int = 600
    batch: int = 8
    window: int = 192
    matrix_rate: float = 0.02
    """Peak learning rate of Muon, which trains the matrices inside the layers."""
    other_rate: float = 4e-3
    """Peak learning rate of AdamW, which trains embedding, head and norms."""
    warmup: int = 30
    lookahead: tuple[int, ...] = (2, 3)
    """Extra objective: the state after layer N-3 also predicts the tokens this far ahead."""
    lookahead_weight: float = 0.25

    @property
    def aux_layers(self) -> tuple[int, int, int]:
        """Layers whose outputs an Eagle3 draft reads (vLLM's default): L means after L layers."""
        return 2, self.layers // 2, self.layers - 3


@dataclass(frozen=True)
class GenerateSettings:
    seed: int = 99
    rounds: int = 6
    batch: int = 256
    length: int = 166
    prompt_lengths: tuple[int, ...] = (24, 40, 56)


@dataclass(frozen=True)
class DraftSettings:
    vocab_size: int = 1536
    depth: int = 3
    """Steps of training-time test, which is also the number of drafted tokens per verification."""
    intermediate_size: int = 512
    seed: int = 1
    steps: int = 300
    batch: int = 12
    matrix_rate: float = 0.02
    """Peak learning rate of Muon, which trains `fc` and the matrices of the layer."""
    other_rate: float = 2e-3
    """Peak learning rate of AdamW, which trains the head and the norms."""
    warmup: int = 30


@dataclass(frozen=True)
class PromptSettings:
    seed: int = 5
    completions: int = 64
    chats: int = 24
    characters: int = 240
    continuation: int = 64
    """Tokens per prompt in the offline walk."""


BOOK = BookSettings()
TARGET = TargetSettings()
GENERATE = GenerateSettings()
DRAFT = DraftSettings()
PROMPTS = PromptSettings()


@dataclass(frozen=True)
class Workspace:
    """Where the stages leave what they make. Nothing of it is committed."""

    root: Path

    @property
    def tokenizer(self) -> Path:
        return self.root / "tokenizer"

    @property
    def generated(self) -> Path:
        return self.root / "generated.pt"

    @property
    def target(self) -> Path:
        return self.root / "target"

    @property
    def draft(self) -> Path:
        return self.root / "draft"

    @property
    def quantised(self) -> Path:
        return self.root / "target-w8a8"

    @property
    def rotated(self) -> Path:
        return self.root / "target-w8a8-quarot"

    def notes(self, stage: str) -> Path:
        return self.root / "notes" / f"{stage}.json"

    def note(self, stage: str, values: dict[str, object]) -> None:
        """Keep what a stage measured, for the provenance record."""
        path = self.notes(stage)
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")

    def read_note(self, stage: str) -> dict[str, object]:
        """What `note` kept, empty when there is nothing yet."""
        path = self.notes(stage)
        return dict(json.loads(path.read_text("utf-8"))) if path.exists() else {}
