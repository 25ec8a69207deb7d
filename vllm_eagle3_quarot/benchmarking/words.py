# SPDX-License-Identifier: Apache-2.0
"""The words of the tables in the languages of the documentation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Language = Literal["en", "zh"]

WORDS: Mapping[Language, Mapping[str, str]] = {
    "en": {
        "target": "target",
        "draft": "draft",
        "start-up": "start-up s",
        "rss": "peak RSS GiB",
        "concurrency": "concurrency",
        "sampling": "sampling",
        "speed": "output tok/s",
        "acceptance": "acceptance rate",
        "positions": "per position",
        "length": "mean length",
        "degenerate": "degenerate",
        "none": "no speculation",
        "plain": "nothing to correct",
        "uncorrected": "uncorrected",
        "runtime": "corrected at run time",
        "folded": "folded while loading",
        "aligned": "aligned offline",
        "greedy": "greedy",
        "sampled": "sampled",
        "npu": "NPU: not measured.",
        "cpu numbers": "CPU numbers",
        "cores": "cores",
    },
    "zh": {
        "target": "目标模型",
        "draft": "草稿",
        "start-up": "启动耗时 s",
        "rss": "RSS 峰值 GiB",
        "concurrency": "并发",
        "sampling": "采样",
        "speed": "输出 tok/s",
        "acceptance": "接受率",
        "positions": "各位置接受率",
        "length": "平均接受长度",
        "degenerate": "退化输出",
        "none": "无投机解码",
        "plain": "无需校正",
        "uncorrected": "未校正",
        "runtime": "运行时校正",
        "folded": "加载时折叠",
        "aligned": "离线对齐",
        "greedy": "贪心",
        "sampled": "随机采样",
        "npu": "NPU：未测量（not measured）。",
        "cpu numbers": "CPU 数据",
        "cores": "核",
    },
}
