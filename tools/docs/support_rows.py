# SPDX-License-Identifier: Apache-2.0
"""The rows of the support matrix, with the tests behind each mark.

``cpu`` is vLLM's CPU engine, ``ascend`` the engine of vllm-ascend over a runtime that imitates
CANN. A row without a test of that engine is not tested there, whatever others say about its parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Mark(Enum):
    """What a cell of the matrix says."""

    SERVED = "✅"
    ASCEND = "🔵"
    UNTESTED = "🟡"
    NO = "❌"


SERVED, ASCEND, UNTESTED, NO = Mark.SERVED, Mark.ASCEND, Mark.UNTESTED, Mark.NO


@dataclass(frozen=True)
class Row:
    """One line of a table.

    Attributes:
        english: what it is about.
        chinese: the same.
        cpu: SERVED, UNTESTED or NO.
        ascend: ASCEND, UNTESTED or NO.
        tests: ``path::name`` below ``tests/``.
        note: what has to be said beside the marks, in English.
        chinese_note: the same.
    """

    english: str
    chinese: str
    cpu: Mark
    ascend: Mark
    tests: tuple[str, ...] = ()
    note: str = ""
    chinese_note: str = ""


@dataclass(frozen=True)
class Section:
    """A table under its heading."""

    english: str
    chinese: str
    rows: tuple[Row, ...]


_VARIANTS = "engine/test_variants.py::test_proposals_equal_those_on_the_unrotated_target"
_ASCEND_DRAFTS = "ascend/test_drafts.py::test_proposals_are_those_on_the_unrotated_target"
_SCHEDULING = "ascend/test_scheduling.py::test_proposals_are_those_on_the_unrotated_target"
_IN_HOST = "ascend/test_contract.py::test_in_host"
_ASCEND_ACCEPTANCE = "ascend/test_acceptance.py::test_acceptance_is_the_unrotated_pairs"
_ASCEND_SMOKE = "ascend/test_smoke.py::test_w8a8_quarot_target_and_kernel"
_SERVED_PAIR = (
    "e2e/test_plugin_on.py::test_acceptance_of_every_position_is_that_of_the_unrotated_pair"
)
_FEATURES = "engine/test_features.py::test_proposals_equal_those_on_the_unrotated_target"
_RECORDED = "unit/draft/test_recorded_targets.py"

DRAFTS = Section(
    "Drafts",
    "草稿",
    (
        Row(
            "Llama-type drafts: vLLM's names, speculators' format, `.bin`",
            "Llama 类草稿：vLLM 命名、speculators 格式、`.bin`",
            SERVED,
            ASCEND,
            (_VARIANTS, _SERVED_PAIR, _ASCEND_ACCEPTANCE),
            "the vllm-ascend run has the first of these formats",
            "vllm-ascend 上运行的是其中第一种格式",
        ),
        Row(
            "without a token embedding (the target's is used)",
            "没有词嵌入（使用目标的）",
            SERVED,
            ASCEND,
            (_VARIANTS, _ASCEND_SMOKE),
        ),
        Row(
            "with a token embedding of its own",
            "自带词嵌入",
            SERVED,
            ASCEND,
            (_VARIANTS, _ASCEND_DRAFTS),
        ),
        Row(
            "without a head (the target's is used)",
            "没有 lm_head（使用目标的）",
            SERVED,
            ASCEND,
            (_VARIANTS, _ASCEND_DRAFTS),
            "vllm-ascend shares no head: the draft gets the original one, V x H of memory",
            "vllm-ascend 不共享 lm_head：草稿会得到还原的 lm_head，占 V x H 内存",
        ),
        Row(
            "reduced vocabulary (`d2t`, `t2d`)",
            "缩减词表（`d2t`、`t2d`）",
            SERVED,
            ASCEND,
            (_VARIANTS, _SERVED_PAIR, _ASCEND_ACCEPTANCE),
        ),
        Row(
            "`norm_before_fc`, `fc_norm`",
            "`norm_before_fc`、`fc_norm`",
            SERVED,
            ASCEND,
            (_VARIANTS, _ASCEND_DRAFTS),
        ),
        Row(
            "`norm_output`, `norm_before_residual`",
            "`norm_output`、`norm_before_residual`",
            SERVED,
            UNTESTED,
            (_VARIANTS,),
        ),
        Row(
            "1, 2, 4 or 5 aux hidden states",
            "1、2、4、5 个辅助隐藏状态",
            SERVED,
            UNTESTED,
            (_VARIANTS,),
        ),
        Row(
            "post-norm state (`use_aux_hidden_state: false`)",
            "post-norm 状态（`use_aux_hidden_state: false`）",
            SERVED,
            UNTESTED,
            (_VARIANTS, "contract/test_host_limits.py::test_post_norm_draft_on_the_second_runner"),
            "refused on model runner V2",
            "在 model runner V2 上拒绝启动",
        ),
        Row(
            "narrower than the target (`target_hidden_size`)",
            "比目标窄（`target_hidden_size`）",
            SERVED,
            UNTESTED,
            (_VARIANTS,),
        ),
        Row(
            "parallel drafting (`mask_hidden`)",
            "并行起草（`mask_hidden`）",
            SERVED,
            ASCEND,
            (_VARIANTS, _ASCEND_DRAFTS),
        ),
        Row(
            "several layers, other head counts and sizes",
            "多层、其他头数与头维度",
            SERVED,
            UNTESTED,
            (_VARIANTS,),
        ),
        Row(
            "another dtype than the target's",
            "dtype 与目标不同",
            SERVED,
            UNTESTED,
            ("engine/test_variants.py::test_draft_of_another_dtype_is_cast",),
        ),
        Row(
            "int8-quantised draft",
            "int8 量化的草稿",
            SERVED,
            UNTESTED,
            (
                "engine/test_variants.py::test_quantised_draft_is_corrected_at_run_time",
                "contract/test_folded_drafts.py::test_quantised_projection_is_refused_with_the_reason_and_the_remedy",
            ),
            "mode `runtime` only",
            "仅限 `runtime` 模式",
        ),
        Row(
            "FP8-quantised draft",
            "FP8 量化的草稿",
            UNTESTED,
            UNTESTED,
            ("contract/test_folded_drafts.py::test_eight_bit_floats_are_refused",),
            "vLLM's CPU platform has no kernel for it; the refusal of `fold` is tested",
            "vLLM 的 CPU 平台没有对应算子；只测试了 `fold` 的拒绝",
        ),
        Row(
            "MLA draft (DeepSeek)",
            "MLA 草稿（DeepSeek）",
            NO,
            ASCEND,
            (
                _ASCEND_DRAFTS,
                "contract/test_mla_drafts.py::test_cpu_platform_still_has_no_mla_backend",
                "contract/test_mla_drafts.py::test_logits_equal_those_on_the_unrotated_target",
            ),
            "vLLM's CPU platform has no MLA attention",
            "vLLM 的 CPU 平台没有 MLA 注意力",
        ),
        Row(
            "VWN draft of vllm-ascend",
            "vllm-ascend 的 VWN 草稿",
            NO,
            ASCEND,
            (
                _ASCEND_DRAFTS,
                "contract/test_vwn_drafts.py::test_outer_projection_is_corrected_and_the_inner_one_is_not",
            ),
            "the class exists in vllm-ascend only",
            "该类只存在于 vllm-ascend",
        ),
        Row(
            "mode `fold`",
            "`fold` 模式",
            SERVED,
            ASCEND,
            (
                "engine/test_variants.py::test_folded_draft_proposes_the_same",
                "ascend/test_acceptance.py::test_our_fold_is_not_added_to_the_hosts",
            ),
        ),
        Row(
            "draft aligned offline",
            "离线对齐的草稿",
            SERVED,
            UNTESTED,
            (
                "engine/test_aligned_draft.py::test_same_proposals_without_the_plugin",
                "contract/wheels/test_host_fold.py::test_draft_that_was_aligned_offline_is_not_folded_again",
            ),
        ),
        Row(
            "other methods: Eagle 1, Medusa, DFlash, DSpark",
            "其他方法：Eagle 1、Medusa、DFlash、DSpark",
            NO,
            NO,
            (
                "contract/test_acceptance_guard.py::test_rotated_target_with_a_method_that_is_not_corrected",
            ),
            "not corrected, one warning",
            "不校正，告警一次",
        ),
    ),
)

TARGETS = Section(
    "Targets and quantisers",
    "目标与量化工具",
    (
        Row(
            "msModelSlim QuaRot, W8A8",
            "msModelSlim QuaRot，W8A8",
            SERVED,
            ASCEND,
            (_SERVED_PAIR, _ASCEND_ACCEPTANCE, _ASCEND_SMOKE),
        ),
        Row(
            "msModelSlim QuaRot, mixture of experts, W8A8_DYNAMIC",
            "msModelSlim QuaRot，混合专家，W8A8_DYNAMIC",
            SERVED,
            UNTESTED,
            (
                "engine/test_moe_target.py::test_quantised_experts",
                "e2e/test_moe_target.py::test_greedy_text_is_that_of_the_target_without_speculation",
            ),
        ),
        Row(
            "msModelSlim, other types (W4A8, W4A4, W8A16 ...)",
            "msModelSlim，其他类型（W4A8、W4A4、W8A16 等）",
            NO,
            UNTESTED,
            (
                "unit/cpu/test_layer_plan.py::test_unknown_type_names_tensor_type_and_what_is_supported",
            ),
            "serving them is the host's; the draft's correction does not depend on the type",
            "能否服务取决于宿主；草稿的校正与量化类型无关",
        ),
        Row(
            "rotated float target, dense and mixture of experts",
            "旋转的浮点目标，稠密与混合专家",
            SERVED,
            ASCEND,
            (
                _VARIANTS,
                "engine/test_moe_target.py::test_rotated_float_experts",
                _ASCEND_ACCEPTANCE,
            ),
            "vllm-ascend: dense only",
            "vllm-ascend：仅稠密",
        ),
        Row(
            "block rotation, shifted product, dense `Q` by the setting `rotation`",
            "分块旋转、移位乘积、用设置 `rotation` 给出的稠密 `Q`",
            SERVED,
            UNTESTED,
            ("engine/test_variants.py::test_other_rotations",),
        ),
        Row(
            "SpinQuant R1 of llm-compressor, seed known or confirmed",
            "llm-compressor 的 SpinQuant R1，种子已知或得到确认",
            SERVED,
            UNTESTED,
            (
                "engine/test_recorded_targets.py::test_spinquant_target_gets_the_proposals_of_the_original",
                f"{_RECORDED}::test_an_assumed_seed_needs_a_witness",
            ),
        ),
        Row(
            "AMD Quark offline R1",
            "AMD Quark 离线 R1",
            UNTESTED,
            UNTESTED,
            (f"{_RECORDED}::test_quark_r1_is_undone",),
        ),
        Row(
            "rotated target without its matrix",
            "旋转目标没有矩阵文件",
            NO,
            NO,
            (
                "e2e/test_refusals.py::test_a_damaged_sidecar_refuses_to_start_and_names_file_and_remedy",
                "unit/draft/test_correction.py::test_rotated_without_rotation_file_is_refused_with_the_remedy",
            ),
            "refused until the setting `rotation` gives it",
            "在设置 `rotation` 给出矩阵之前拒绝启动",
        ),
        Row(
            "vision-language: Qwen3-VL",
            "视觉语言：Qwen3-VL",
            SERVED,
            UNTESTED,
            ("engine/test_vision.py::test_pictures_and_text_get_the_proposals_of_the_original",),
        ),
        Row(
            "MLA target (DeepSeek)",
            "MLA 目标（DeepSeek）",
            NO,
            ASCEND,
            (
                _ASCEND_DRAFTS,
                "contract/test_mla_drafts.py::test_cpu_platform_still_has_no_mla_backend",
            ),
        ),
        Row(
            "unrotated target: the plugin is inert",
            "未旋转的目标：插件不做任何事",
            SERVED,
            ASCEND,
            (
                "engine/test_inert.py::test_unrotated_target_and_other_methods_are_left_alone",
                _ASCEND_DRAFTS,
            ),
        ),
    ),
)

FEATURES = Section(
    "Engine features",
    "引擎特性",
    (
        Row(
            "prefix caching",
            "前缀缓存",
            SERVED,
            UNTESTED,
            (_FEATURES, "e2e/test_features.py::test_prompts_from_the_prefix_cache"),
        ),
        Row(
            "chunked prefill",
            "分块预填充",
            SERVED,
            UNTESTED,
            (
                _FEATURES,
                "e2e/test_features.py::test_concurrent_requests_on_both_engines_with_prompts_in_chunks",
            ),
        ),
        Row(
            "structured output",
            "结构化输出",
            SERVED,
            UNTESTED,
            (_FEATURES, "e2e/test_features.py::test_structured_output"),
        ),
        Row(
            "LoRA on the target",
            "目标上的 LoRA",
            SERVED,
            UNTESTED,
            (_FEATURES, "e2e/test_features.py::test_adapter_on_the_target"),
        ),
        Row(
            "concurrent requests",
            "并发请求",
            SERVED,
            UNTESTED,
            ("e2e/test_plugin_on.py::test_concurrent_clients_are_all_served",),
        ),
        Row(
            "mixed load: sampling, streaming, disconnects, stop strings, several answers, log "
            "probabilities",
            "混合负载：采样、流式、客户端断开、停止串、多个回答、对数概率",
            SERVED,
            UNTESTED,
            (
                "reliability/test_soak.py::test_every_request_gets_its_answer",
                "reliability/test_soak.py::test_acceptance_is_the_same_every_minute",
            ),
        ),
        Row(
            "tensor parallelism",
            "张量并行",
            SERVED,
            UNTESTED,
            (
                "engine/test_tensor_parallel.py::test_proposals_equal_those_of_one_rank",
                "engine/test_tensor_parallel.py::test_every_rank_decides_and_proposes_the_same",
            ),
        ),
        Row(
            "data parallelism",
            "数据并行",
            SERVED,
            UNTESTED,
            (
                "e2e/test_features.py::test_concurrent_requests_on_both_engines_with_prompts_in_chunks",
            ),
        ),
        Row(
            "pipeline parallelism",
            "流水线并行",
            NO,
            UNTESTED,
            (
                "contract/test_pipeline.py::test_host_refuses_eagle3_drafts_in_a_pipeline",
                "contract/test_pipeline.py::test_draft_gets_the_original_rows_and_shares_the_head",
            ),
            "vLLM 0.23 refuses Eagle3 drafts in a pipeline; our part is tested without an engine",
            "vLLM 0.23 拒绝在流水线中使用 Eagle3 草稿；我们的部分在引擎之外测试",
        ),
        Row("model runner V1", "model runner V1", SERVED, ASCEND, (_VARIANTS, _ASCEND_DRAFTS)),
        Row(
            "model runner V2",
            "model runner V2",
            SERVED,
            UNTESTED,
            ("engine/test_second_runner.py::test_proposals_equal_those_on_the_unrotated_target",),
            "its kernels in Triton's interpreter",
            "其算子在 Triton 解释器中运行",
        ),
        Row(
            "`torch.compile`",
            "`torch.compile`",
            SERVED,
            UNTESTED,
            ("engine/test_variants.py::test_compiled_graphs_propose_the_same",),
        ),
        Row(
            "graph mode with padded capture sizes",
            "图模式与补齐的捕获尺寸",
            NO,
            ASCEND,
            ("ascend/test_graph.py::test_replays_propose_what_an_eager_engine_does",),
            "emulated: a replay repeats the recorded operator calls",
            "模拟：重放即重复执行已记录的算子调用",
        ),
        Row(
            "vision inputs",
            "图像输入",
            SERVED,
            UNTESTED,
            ("engine/test_vision.py::test_pictures_and_text_get_the_proposals_of_the_original",),
        ),
        Row(
            "async scheduling",
            "异步调度",
            NO,
            ASCEND,
            (_SCHEDULING,),
            "vLLM's CPU platform always switches it off",
            "vLLM 的 CPU 平台总会关闭它",
        ),
        Row(
            "padded drafter batch, and without",
            "补齐与不补齐的草稿批次",
            SERVED,
            ASCEND,
            (
                "engine/test_features.py::test_proposals_equal_those_on_the_unrotated_target",
                _SCHEDULING,
            ),
        ),
        Row(
            "sequence parallelism, flash-comm",
            "序列并行、flash-comm",
            UNTESTED,
            UNTESTED,
            (
                "contract/wheels/test_drafts_of_a_release.py::test_states_are_split_along_tokens_only",
            ),
            "the source of each release is checked: rows are never split",
            "只核对各版本源码：一行状态不会被切开",
        ),
        Row(
            "`draft_tensor_parallel_size`",
            "`draft_tensor_parallel_size`",
            UNTESTED,
            UNTESTED,
            note="what is relied on: [parallelism](parallelism.md)",
            chinese_note="所依赖的前提见[并行](parallelism.md)",
        ),
        Row(
            "prefill-decode disaggregation",
            "PD 分离",
            UNTESTED,
            UNTESTED,
            note="what is relied on: [parallelism](parallelism.md)",
            chinese_note="所依赖的前提见[并行](parallelism.md)",
        ),
        Row(
            "int8 KV cache",
            "int8 KV 缓存",
            UNTESTED,
            NO,
            ("unit/diagnosis/test_diagnose.py::test_causes_that_are_not_the_rotation",),
            "vllm-ascend does not combine it with Eagle3; `doctor` warns",
            "vllm-ascend 不支持它与 Eagle3 同用；`doctor` 会告警",
        ),
    ),
)

HOSTS = Section(
    "Hosts, releases, machines",
    "宿主、版本、机器",
    (
        Row("vLLM 0.23.0", "vLLM 0.23.0", SERVED, ASCEND, (_SERVED_PAIR, _ASCEND_ACCEPTANCE)),
        Row(
            "vLLM 0.26.0 and 0.32.0",
            "vLLM 0.26.0 与 0.32.0",
            SERVED,
            UNTESTED,
            (_SERVED_PAIR,),
            "`make test-matrix`: [engine matrix](engine-matrix.md)",
            "`make test-matrix`：[引擎版本矩阵](engine-matrix.md)",
        ),
        Row(
            "vLLM 0.18.1",
            "vLLM 0.18.1",
            NO,
            UNTESTED,
            note="its CPU engine refuses speculative decoding: [engine matrix](engine-matrix.md)",
            chinese_note="其 CPU 引擎拒绝投机解码：[引擎版本矩阵](engine-matrix.md)",
        ),
        Row(
            "other releases in the tested range",
            "测试范围内的其他版本",
            UNTESTED,
            UNTESTED,
            (
                "contract/wheels/test_hooks.py::test_release_has_what_the_table_says",
                "contract/wheels/test_host_fold.py::test_rotation_is_undone_once",
            ),
            "what we use of them is compared with their source, see [hooks](hooks.md); served "
            "releases are in the [engine matrix](engine-matrix.md)",
            "所用到的对象与其源码比对，见[挂接点](hooks.md)；实际服务过的版本见"
            "[引擎矩阵](engine-matrix.md)",
        ),
        Row(
            "vllm-ascend 0.23.0",
            "vllm-ascend 0.23.0",
            NO,
            ASCEND,
            (_ASCEND_ACCEPTANCE, _IN_HOST),
            "it runs on NPUs only",
            "它只在 NPU 上运行",
        ),
        Row(
            "vllm-ascend 0.26.0rc1",
            "vllm-ascend 0.26.0rc1",
            NO,
            ASCEND,
            (_IN_HOST, "ascend/test_smoke.py::test_w8a8_quarot_target_and_kernel"),
            "`make test-ascend ASCEND_RELEASE=0.26.0rc1`; one generation and the contract tests",
            "`make test-ascend ASCEND_RELEASE=0.26.0rc1`；一次生成与契约测试",
        ),
        Row(
            "an NPU (Atlas A2, A3)",
            "NPU（Atlas A2、A3）",
            UNTESTED,
            UNTESTED,
            ("kernels/npu_runtime/test_npu_runtime.py::test_on_npu",),
            "no run on a device has been made",
            "尚未在设备上运行过",
        ),
        Row(
            "x86-64",
            "x86-64",
            SERVED,
            ASCEND,
            (
                _SERVED_PAIR,
                _ASCEND_ACCEPTANCE,
                "kernels/cpu/test_values.py::test_unrotate_and_rotate",
            ),
        ),
        Row("aarch64", "aarch64", UNTESTED, UNTESTED),
        Row(
            "Python 3.11",
            "Python 3.11",
            SERVED,
            ASCEND,
            (_SERVED_PAIR, _ASCEND_ACCEPTANCE),
        ),
        Row(
            "Python 3.10 and 3.12",
            "Python 3.10 与 3.12",
            UNTESTED,
            UNTESTED,
            (
                "packaging/test_archives.py::test_the_syntax_is_that_of_the_oldest_release",
                "packaging/test_python_releases.py::test_types_are_right_for_the_release",
            ),
            "syntax and the standard library's types are checked",
            "检查了语法与标准库的类型",
        ),
    ),
)

SECTIONS = (DRAFTS, TARGETS, FEATURES, HOSTS)
