"""What the page itself says, around a report: its buttons, hints and the line under a table."""

from __future__ import annotations

WORDS: dict[str, dict[str, str]] = {
    "en": {
        "skip": "Skip to the report",
        "contents": "Contents",
        "theme": "Dark or light",
        "filter": "Filter",
        "filter_by": "Filter {column}",
        "contains": "contains",
        "reset": "Reset",
        "download": "Download CSV",
        "rows": "Rows {first}–{last} of {all}",
        "matching": "Rows {first}–{last} of {all} that match; {total} in all",
        "none": "No row of {total} matches",
        "previous": "Previous",
        "next": "Next",
        "copied": "Copied: {value}",
        "not_copied": "This browser does not let a page copy. The value: {value}",
        "hint": "A column's head sorts. A click on a value (or arrow keys and Enter) copies it exactly, in SI units. "
        "Filters take words, and for numbers <80, >=4, =8 or 2..16, with a unit if you like.",
    },
    "zh": {
        "skip": "跳到正文",
        "contents": "目录",
        "theme": "深色或浅色",
        "filter": "筛选",
        "filter_by": "筛选 {column}",
        "contains": "包含",
        "reset": "复原",
        "download": "下载 CSV",
        "rows": "第 {first}–{last} 行，共 {all} 行",
        "matching": "第 {first}–{last} 行，符合条件 {all} 行；总共 {total} 行",
        "none": "{total} 行中没有符合条件的",
        "previous": "上一页",
        "next": "下一页",
        "copied": "已复制：{value}",
        "not_copied": "浏览器不允许网页复制。数值：{value}",
        "hint": "点击列名排序；点击数值（或用方向键加回车）复制其精确值（国际单位制）。"
        "筛选可填文字；数字列可填 <80、>=4、=8 或 2..16，可带单位。",
    },
}
