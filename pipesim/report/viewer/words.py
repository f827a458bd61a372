"""What the timeline viewer says, in both languages; its JavaScript gets these words as JSON."""

from __future__ import annotations

from pipesim.report.timeline.look import WORDS as PICTURE_WORDS
from pipesim.schedules.action import Op
from pipesim.simulate.causes import Cause

CAUSES: dict[str, dict[Cause, str]] = {
    "en": {cause: str(cause) for cause in Cause},
    "zh": {
        Cause.WARM_UP: "等待首个动作", Cause.HAND_OVER: "等待交出结果", Cause.SENDING: "阻塞于发送",
        Cause.IMBALANCE: "负载不均", Cause.WAITING: "等待未完成的动作", Cause.LINK_BUSY: "链路被占用",
        Cause.TRAVEL: "消息在途", Cause.DELAY: "原因不明的延迟", Cause.COOL_DOWN: "已无动作",
        Cause.BARRIER: "优化器同步", Cause.UNUSED: "没有动作",
    },
}  # fmt: skip

_WORDS: dict[str, dict[str, str]] = {
    "en": {
        "units": "units", "rank": "rank {0}", "stage": "stage {0}", "micro_batch": "micro-batch {0}",
        "took": "{0} – {1} (takes {2})",
        "waited": "waited {0}: {1}", "at_once": "did not wait", "for": "{0} for {1} of rank {2}", "held": "in flight: {0}",
        "idle": "idle", "busy": "busy", "all": "all ranks", "cause": "idle because of", "seconds": "time, all ranks",
        "share": "share of all rank time", "peak": "most in flight", "shown": "Timeline", "against": "Compare with",
        "nothing": "nothing", "closer": "Zoom in", "farther": "Zoom out", "whole": "Show all", "colours": "Colours",
        "makespan": "{0}: makespan {1}", "longer": "{0} is {1} ({2}) longer than {3}",
        "shorter": "{0} is {1} ({2}) shorter than {3}",
        "same": "{0} and {1} take equally long", "difference": "difference", "sums": "Idle time of each rank by cause: {0}",
        "canvas": "Timeline {0}: ranks as rows, time from left to right. Keys: arrows left and right move, plus and minus zoom, "
        "0 shows all; comma and full stop choose the action before and after, arrows up and down the one on the next rank, "
        "Enter goes to what it waited for, Escape leaves it.",
        "hint": "Drag to move; wheel (after a click into the picture, or with Ctrl) or pinch to zoom; click an action for its "
        "dependencies. Keys: ← → move, + − zoom, 0 all, , . actions, ↑ ↓ ranks, Enter goes to what it waited for. The address "
        "keeps the place.",
        "title": "Timelines", "old": "This browser is too old for the viewer.",
    },
    "zh": {
        "units": "单位", "rank": "rank {0}", "stage": "阶段 {0}", "micro_batch": "微批次 {0}", "took": "{0} – {1}（用时 {2}）",
        "waited": "等待了 {0}：{1}", "at_once": "没有等待", "for": "{0}，等 rank {2} 的 {1}", "held": "同时保留的激活值份数：{0}",
        "idle": "空闲", "busy": "工作", "all": "所有 rank", "cause": "空闲原因", "seconds": "时间（所有 rank 合计）",
        "share": "占全部 rank 时间", "peak": "激活值份数峰值", "shown": "时间线", "against": "对比",
        "nothing": "无", "closer": "放大", "farther": "缩小", "whole": "显示全部", "colours": "颜色",
        "makespan": "{0}：总时长 {1}", "longer": "{0} 比 {3} 长 {1}（{2}）", "shorter": "{0} 比 {3} 短 {1}（{2}）",
        "same": "{0} 与 {1} 用时相同", "difference": "差", "sums": "各 rank 的空闲时间（按原因）：{0}",
        "canvas": "时间线 {0}：每行一个 rank，时间从左到右。按键：左右方向键平移，加号减号缩放，0 显示全部；逗号与句号选择"
        "前后动作，上下方向键选择相邻 rank 的动作，Enter 转到它所等待的动作，Escape 取消选择。",
        "hint": "拖动可平移；先点击图面再滚动滚轮（或按住 Ctrl）、或双指捏合可缩放；点击动作可看其依赖。按键：← → 平移，+ − 缩放，"
        "0 全部，, . 前后动作，↑ ↓ 相邻 rank，Enter 转到所等待的动作。地址栏会记住位置。",
        "title": "时间线", "old": "浏览器版本过旧，无法使用查看器。",
    },
}  # fmt: skip


def words(language: str) -> dict[str, str | list[str]]:
    """All of a language; ``ops`` and ``causes`` are lists by number."""
    ops = [f"{op.name} {PICTURE_WORDS[language][op]}" for op in Op]
    return {**_WORDS[language], "ops": ops, "causes": [CAUSES[language][cause] for cause in Cause]}
