# SPDX-License-Identifier: Apache-2.0
"""The words of the hook page in Chinese."""

from __future__ import annotations

INTRODUCTION = """\
# 挂接点

本包触碰或依赖的 vLLM 与 vllm-ascend 的全部对象。本页由 `python -m tools.docs.hooks` 从
`vllm_eagle3_quarot/integrations/hooks/` 写出；有测试核对。

- **使用**：调用或读取。**替换**：派生子类，或以我们的对象取代。
  若其中之一在所有平台上都缺失，则不校正任何草稿：`register()` 记录一个指明它的错误，
  旋转目标的草稿在构建时被拒绝（`strict: false` 时：在未校正的状态下服务并告警）。
  其他服务与没有插件时一样运行。
- **假定**：宿主自己在那里做什么。**回避**：宿主的故障或它自己的校正，不能作用于由本插件校正的草稿。

`register()` 读取已安装宿主的源码，不为此导入它们的任何部分。
版本超出测试范围不会阻止启动，只会告警。测试把整张表与已发布版本的源码比较：
`make test-contract-all`，或用 `pytest tests/contract/wheels` 比较每次都测的那些版本。新版本只需在
`tests/contract/wheels/releases.py` 中加一行。
"""

TESTED = "## {host}，测试范围 {oldest} 至 {newest}"
ON_CPU = "### 仅在 vLLM 的 CPU 平台上"
COLUMNS = ("对象", "版本", "方式", "用途")
KINDS = {"used": "使用", "replaced": "替换", "assumed": "假定", "avoided": "回避"}
ALL_RELEASES, SINCE, UNTIL = "全部", "{} 起", "{} 之前"

#: By the English reason in the hook table; a reason without a translation is an error.
REASONS = {
    "the one registry of architectures": "唯一的架构注册表",
    "which class serves an architecture": "某个架构由哪个类服务",
    "registers our drafts; extended on the instance, to wrap what is registered after us": (
        "注册我们的草稿类；在实例上扩展，以包装在我们之后注册的类"
    ),
    "the class underneath ours": "我们的类之下的那个类",
    "which host this is": "这是哪个宿主",
    "our settings": "我们的设置",
    "the draft": "草稿",
    "the target": "目标",
    "how models are loaded": "模型如何加载",
    "where those of a hub are": "hub 上的模型存放在哪里",
    "is it Eagle3?": "是否为 Eagle3",
    "folder or hub id": "目录或 hub id",
    "of a hub id": "hub id 的版本",
    "false: the host shares the target's table": "为 false 时，宿主共享目标的词表嵌入",
    "false: the host shares the target's head": "为 false 时，宿主共享目标的 lm_head",
    "sets these flags from the names of loaded weights": "根据加载的权重名设置上述标志",
    "the way into a head for every host and sampler": "所有宿主与采样器进入 lm_head 的通路",
    "the same, where only the best token is wanted": "同上，只需要最佳 token 时",
    "subclassed: the acceptance guard, which vLLM loads by its entry point": (
        "派生子类：接受率监测，由 vLLM 按其入口点加载"
    ),
    "a table whose rows can be gathered directly": "可以直接取行的表",
    "1: the table is whole": "为 1 时，表是完整的",
    "for un-rotation and norm in one pass": "用于还原与 norm 合一的算子",
    "same": "同上",
    "calls combine_hidden_states once per step, outside any graph (V1 runner)": (
        "每步调用一次 combine_hidden_states，在图之外（V1 runner）"
    ),
    "shares the target's table (V1 runner)": "共享目标的词表嵌入（V1 runner）",
    "shares the target's head (V1 runner)": "共享目标的 lm_head（V1 runner）",
    "the same in older releases": "旧版本中的同一功能",
    "loads the draft and shares tables (V2 runner)": "加载草稿并共享各表（V2 runner）",
    "subclassed; hosts assert that a draft is one": "派生子类；宿主断言草稿属于该类",
    "decides what is corrected": "决定校正什么",
    "un-rotates the aux states": "还原辅助隐藏状态",
    "leaves out what is the target's": "不加载属于目标的部分",
    "goes through logits_processor": "经由 logits_processor",
    "enters a head of the target's": "进入目标的 lm_head",
    "the draft's own head, or the target's": "草稿自己的 lm_head，或目标的",
    "offsets of a reduced vocabulary": "缩减词表的偏移量",
    "un-rotates rows looked up": "还原查到的行",
    "the draft's own table, or the target's": "草稿自己的词表嵌入，或目标的",
    "the projection whose loaded weight is verified": "加载后要核对其权重的投影层",
    "a norm over all aux states": "作用于全部辅助状态的 norm",
    "a norm per aux state": "每个辅助状态各一个 norm",
    "entry 'hf' is extended: msModelSlim checkpoints are detected": (
        "扩展其中的 'hf' 项：识别 msModelSlim 的权重"
    ),
    "detects them on a hub": "在 hub 上识别它们",
    "registers 'ascend'": "注册 'ascend'",
    "whether somebody has registered it": "是否已有人注册",
    "subclassed: the scheme of each layer": "派生子类：每一层的量化方案",
    "quantised linear layers of msModelSlim checkpoints": "msModelSlim 权重的量化线性层",
    "recognises a layer of experts": "识别专家层",
    "routing": "路由",
    "quantised experts of msModelSlim checkpoints": "msModelSlim 权重的量化专家",
    "repaired where faulty (vllm-project/vllm#46069)": "有故障时修补（vllm-project/vllm#46069）",
    "repaired where faulty (vllm-project/vllm#55005)": "有故障时修补（vllm-project/vllm#55005）",
    "assigns a folding load_weights to vLLM's class just before the draft is loaded": (
        "在加载草稿前不久，给 vLLM 的类换上会折叠的 load_weights"
    ),
    "makes that load_weights": "生成上述 load_weights",
    "the fold of the registered class; set to false on a draft that we correct": (
        "所注册类的折叠开关；由我们校正的草稿将其设为 false"
    ),
    "folds while is_quarot_used": "is_quarot_used 为真时折叠",
    "takes the place of the draft's __init__, which we therefore call, never copy": (
        "取代草稿的 __init__，因此我们只调用它，从不复制"
    ),
    "subclassed like vLLM's own draft classes": "与 vLLM 自己的草稿类一样派生子类",
    "all steps of a proposal, in one graph: enters table and head as we left them": (
        "一次提议的全部步骤，在同一张图中：词表嵌入与 lm_head 保持我们留下的样子"
    ),
    "rows that flash-comm split over the ranks are whole before the proposer gets them": (
        "flash-comm 按 token 切分到各 rank 的行，在交给 proposer 之前已收集完整"
    ),
    "calls combine_hidden_states before padding and graph": (
        "在填充与图之前调用 combine_hidden_states"
    ),
    "shares the target's table": "共享目标的词表嵌入",
    "does not share the target's head with an Eagle3 draft, which keeps uninitialised memory": (
        "不与 Eagle3 草稿共享目标的 lm_head，草稿的 lm_head 因而是未初始化的内存"
    ),
    "enters the head through logits_processor, without compute_logits": (
        "经由 logits_processor 进入 lm_head，不经过 compute_logits"
    ),
    "does not share the target's head with an Eagle3 draft (older releases)": (
        "不与 Eagle3 草稿共享目标的 lm_head（旧版本）"
    ),
}
