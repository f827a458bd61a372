"""The demos: their right values, and claims that are said in both languages and only while they hold."""

import copy
import re

import pytest

from pipesim import compose, config, demos
from pipesim.checks import Invalid
from pipesim.report.document import Observations, Table, TimelineView
from pipesim.report.markdown import to_markdown
from pipesim.report.terminal import print_document
from pipesim.report.timeline.text import draw
from pipesim.results import schema

NAMES = ("timelines", "bubble", "activation_memory", "bloom_3d")
FIGURE = re.compile(r"\d+(?:\.\d+)?")
CJK = re.compile(r"[\u4e00-\u9fff]")


@pytest.fixture(scope="module")
def composed():
    with compose.composer() as (composer, _):
        plain = {(name, lang): config.plain(composer([f"demo={name}", f"lang={lang}"]))
                 for name in (*NAMES, "all") for lang in ("en", "zh")}  # fmt: skip
    for lang in ("en", "zh"):
        plain["all", lang]["demo"]["real_pipeline"] = None  # needs torch; test_real_pipeline.py
    return lambda name, lang="en": copy.deepcopy(plain[name, lang])


def section_of(asked):
    document, rows = demos.run(asked)
    (section,) = document.sections
    return section, rows


def claims_of(asked):
    blocks = demos.run(asked)[0].sections[0].blocks
    return [claim for block in blocks if isinstance(block, Observations) for claim in block.claims]


def table_of(asked):
    (table,) = (block for block in section_of(asked)[0].blocks if isinstance(block, Table))
    return table


def said(asked, words):
    return any(words in claim for claim in claims_of(asked))


def test_all_runs_every_demo_in_order_and_every_row_fits_the_schema(composed):
    document, rows = demos.run(composed("all"))
    each = [demos.run(composed(name))[0].sections[0].title for name in NAMES]
    assert [section.title for section in document.sections] == each
    assert {row["case"] for row in rows} == set(NAMES)
    assert schema.table(rows).num_rows == len(rows) == 4 + 2 * 21 + 2 + 12


@pytest.mark.parametrize("name", NAMES)
def test_one_demo_alone_leaves_the_others_out(composed, name):
    document, rows = demos.run(composed(name))
    assert len(document.sections) == 1
    assert {row["case"] for row in rows} == {name}


@pytest.mark.parametrize("name", NAMES)
def test_both_languages_say_the_same_figures(composed, name):
    english, chinese = claims_of(composed(name, "en")), claims_of(composed(name, "zh"))
    assert len(english) == len(chinese) >= 4
    for one, other in zip(english, chinese, strict=True):
        figures = [text.replace("176 billion", "").replace("1760 亿", "") for text in (one, other)]
        assert set(FIGURE.findall(figures[0])) == set(FIGURE.findall(figures[1]))
    assert table_of(composed(name, "en")).rows[0][1:6] == table_of(composed(name, "zh")).rows[0][1:6]


@pytest.mark.parametrize("name", NAMES)
def test_every_text_is_in_its_language(composed, name):
    for lang, is_right in (("zh", CJK.search), ("en", lambda text: not CJK.search(text))):
        document = demos.run(composed(name, lang))[0]
        blocks = document.sections[0].blocks
        prose = [document.title, document.sections[0].title, *(block for block in blocks if isinstance(block, str))]
        assert document.language == lang
        assert all(is_right(text) for text in [*prose, *claims_of(composed(name, lang))])
    assert not CJK.search(to_markdown(demos.run(composed(name, "en"))[0]))


def test_chinese_sentences_are_punctuated_as_chinese(composed):
    assert not re.search(
        r"[\u4e00-\u9fff][,:;?()]|[,:;?()][\u4e00-\u9fff]", to_markdown(demos.run(composed("all", "zh"))[0])
    )


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_everything_prints(composed, lang, capsys):
    print_document(demos.run(composed("all", lang))[0])
    assert "F0F1F2F3··················b0b0b1b1b2b2b3b3" in capsys.readouterr().out


# timelines


def test_the_four_timelines_have_the_right_length_and_bubble_fraction(composed):
    _, rows = section_of(composed("timelines"))
    found = [(row["schedule"], row["p"], row["v"], row["num_microbatches"], row["makespan_s"]) for row in rows]
    assert found == [("naive", 4, 1, 1, 48), ("gpipe", 4, 1, 4, 21), ("gpipe", 4, 1, 8, 33), ("1f1b", 4, 1, 8, 33)]
    assert [round(100 * row["bubble_fraction"], 1) for row in rows] == [75.0, 42.9, 27.3, 27.3]
    assert [row["status"] for row in rows] == ["ok"] * 4
    assert rows[3]["peak_inflight"] == [4, 3, 2, 1]


def test_timelines_are_drawn_one_cell_a_unit(composed):
    views = [block for block in section_of(composed("timelines"))[0].blocks if isinstance(block, TimelineView)]
    assert [view.slug for view in views] == [
        "timelines-naive-p4-m1", "timelines-gpipe-p4-m4", "timelines-gpipe-p4-m8", "timelines-1f1b-p4-m8",
    ]  # fmt: skip
    assert (
        draw(views[1].timeline, views[1].unit_s).splitlines()[3]
        == "rank 3 | ······F0F1F2F3b0b0b1b1b2b2b3b3············"
    )


def test_two_like_cases_get_different_slugs(composed):
    asked = composed("timelines")
    asked["demo"]["timelines"]["cases"] *= 2
    slugs = [block.slug for block in section_of(asked)[0].blocks if isinstance(block, TimelineView)]
    assert len(set(slugs)) == 8


def test_timelines_say_what_micro_batches_and_1f1b_change(composed):
    uncut, cut, diluted, memory = claims_of(composed("timelines"))
    assert "of 48 units each works for 12 and waits for 36" in uncut
    assert "4 GPUs do the work of one" in uncut
    assert "21 units instead of 48" in cut
    assert "from 42.9 % to 27.3 %" in diluted
    assert memory.startswith("1F1B takes exactly as long as GPipe: 33 units, a bubble fraction of 27.3 %")
    assert "at most 4 micro-batches at once instead of 8" in memory


def test_1f1b_is_not_called_as_fast_as_gpipe_with_another_number_of_micro_batches(composed):
    asked = composed("timelines")
    asked["demo"]["timelines"]["cases"][3]["m"] = 16
    assert not said(asked, "takes exactly as long as")
    assert not said(asked, "1F1B")


def test_a_slower_leaner_schedule_does_not_hide_the_claim_about_1f1b(composed):
    asked = composed("timelines")
    asked["demo"]["timelines"]["cases"].insert(0, {"schedule": "naive", "p": 4, "m": 8, "forward": 1, "backward": 2})
    assert said(asked, "1F1B takes exactly as long as GPipe")


def test_the_uncut_run_is_only_compared_with_the_same_work(composed):
    asked = composed("timelines")
    asked["demo"]["timelines"]["cases"][0]["forward"] = 3
    assert not said(asked, "the same work")
    asked["demo"]["timelines"]["cases"][0]["p"] = 1
    assert not said(asked, "With the batch uncut")


def test_only_gpipe_idles_around_its_turn_alone(composed):
    asked = composed("timelines")
    for case in asked["demo"]["timelines"]["cases"][1:3]:
        case["schedule"] = "1f1b"
    assert not said(asked, "Idle time is left only")


def test_no_cases_no_claims(composed):
    asked = composed("timelines")
    asked["demo"]["timelines"]["cases"] = []
    assert claims_of(asked) == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"forward": 0}, "demo.timelines: forward=0 must be at least 1."),
        ({"m": 0}, "demo.timelines: num_microbatches=0 must be a whole number"),
        ({"schedule": "gpip"}, "demo.timelines: schedule.name='gpip' is unknown"),
    ],
)
def test_a_case_that_cannot_be_simulated_is_the_users_mistake(composed, change, problem):
    asked = composed("timelines")
    asked["demo"]["timelines"]["cases"][1] |= change
    with pytest.raises(Invalid, match=problem):
        demos.run(asked)


# bubble


def test_every_simulated_bubble_is_the_closed_form(composed):
    _, rows = section_of(composed("bubble"))
    sizes = {(row["p"], row["num_microbatches"]) for row in rows}
    assert sizes == {(p, m) for p in (4, 8, 16) for m in (1, 2, 4, 8, 16, 32, 64)}
    assert [row["schedule"] for row in rows] == ["gpipe", "1f1b"] * 21
    for row in rows:
        p, m = row["p"], row["num_microbatches"]
        assert row["bubble_fraction"] == pytest.approx((p - 1) / (m + p - 1), abs=1e-12)
        assert row["bubble_overhead"] == pytest.approx((p - 1) / m, abs=1e-12)


def test_the_bubble_table_sets_simulation_beside_formula(composed):
    table = table_of(composed("bubble"))
    assert [row[2:5] for row in table.rows] == [(pytest.approx(row[4], abs=1e-12),) * 3 for row in table.rows]
    assert [table.rows[k][:2] for k in table.emphasis] == [(8, 64)]


def test_bubble_says_how_many_micro_batches_it_takes(composed):
    identity, alike, slots, overhead, no_end = claims_of(composed("bubble"))
    assert "In every one of the 42 simulated cases" in identity
    assert float(identity.split()[-1].rstrip(".")) <= 1e-12
    assert alike.startswith("GPipe and 1F1B take equally long")
    assert "for p = 8 only m = 64 of these brings the bubble fraction under 10 %" in slots
    assert "an overhead of 10.9 % is a bubble fraction of 9.9 %" in overhead
    assert "m cannot grow without end" in no_end


def test_a_schedule_without_the_closed_form_is_not_said_to_have_it(composed):
    asked = composed("bubble")
    asked["demo"]["bubble"]["schedules"] = ["naive", "1f1b"]
    assert claims_of(asked) == []


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("target", 0.01, "only m ="),
        ("target", 0.5, "only m ="),
        ("look_at", 5, "only m ="),
        ("look_at", 5, "an overhead of"),
        ("schedules", ["gpipe"], "take equally long"),
        ("m", [64], "m cannot grow"),
        ("p", [1], "m cannot grow"),
    ],
)
def test_a_bubble_claim_vanishes_with_what_it_rests_on(composed, key, value, words):
    asked = composed("bubble")
    assert said(asked, words)
    asked["demo"]["bubble"][key] = value
    assert not said(asked, words)


@pytest.mark.parametrize("key", ["p", "m", "schedules"])
def test_an_empty_axis_gives_an_empty_table(composed, key):
    asked = composed("bubble")
    asked["demo"]["bubble"][key] = []
    section, rows = section_of(asked)
    assert rows == []
    assert not any(isinstance(block, Observations) for block in section.blocks)


# activation_memory


def test_gpipe_holds_all_micro_batches_and_1f1b_one_for_each_later_stage(composed):
    _, rows = section_of(composed("activation_memory"))
    assert [row["peak_inflight"] for row in rows] == [[16] * 4, [4, 3, 2, 1]]
    assert [row["makespan_s"] for row in rows] == [57, 57]
    held, same_time, law, default = claims_of(composed("activation_memory"))
    assert "all 16 micro-batches" in held
    assert "at most 4, 3, 2, 1" in held
    assert "both take 57 units" in same_time
    assert "With 32 micro-batches instead of 16 the stages still hold 4, 3, 2, 1" in law
    assert "Megatron-LM and DeepSpeed" in default


def test_with_few_micro_batches_1f1b_is_not_said_to_hold_p_minus_s(composed):
    asked = composed("activation_memory")
    asked["demo"]["activation_memory"]["m"] = 2
    assert not said(asked, "p − s")
    assert not said(asked, "Megatron-LM")


def test_without_gpipe_nothing_is_compared_with_it(composed):
    asked = composed("activation_memory")
    asked["demo"]["activation_memory"]["schedules"] = ["1f1b", "naive"]
    assert len(claims_of(asked)) == 1


# bloom_3d


def test_every_layout_of_bloom_follows_the_closed_forms(composed):
    _, rows = section_of(composed("bloom_3d"))
    assert [(row["t"], row["p"]) for row in rows] == [(t, p) for t in (1, 2, 4, 8) for p in (6, 12, 24)]
    for row in rows:
        t, p, d, m = row["t"], row["p"], row["d"], row["num_microbatches"]
        parameters = 176e9 / (t * p)
        assert t * p * d == 384
        assert m == 2048 / (d * 2)
        assert row["params_per_gpu"] == pytest.approx(parameters)
        assert row["model_state_bytes"] == row["memory_bytes"] == pytest.approx(parameters * (2 + 2 + 12 / d))
        assert row["dp_bytes_per_gpu"] == pytest.approx(2 * (d - 1) / d * 2 * parameters)
        assert row["bubble_fraction"] == pytest.approx((p - 1) / (m + p - 1), abs=1e-9)
        assert row["status"] == ("ok" if row["memory_bytes"] <= 80e9 else "infeasible")
        assert row["costs"] == "lecture"
        assert row["zero"] == 1


def test_the_layouts_that_the_text_looks_at_have_the_right_values(composed):
    degrees, too_small, used, longer, wider, no_formula = claims_of(composed("bloom_3d"))
    assert "the 176 billion parameters" in degrees
    assert "1 × 6 × 64 puts 29.33B parameters on a GPU, whose 122.8 GB" in too_small
    assert "4 × 12 × 8 keeps 3.67B parameters and 20.2 GB" in used
    assert "128 micro-batches, so the bubble fraction is 7.9 %" in used
    assert "1 × 24 × 16, a longer pipeline" in longer
    assert "7.33B parameters and 34.8 GB of model states at a bubble fraction of 26.4 %" in longer
    assert "8 × 6 × 8 has a bubble fraction of only 3.8 %, but spends all 8 GPUs" in wider
    assert "measured throughput decides" in no_formula


def test_the_table_of_layouts_marks_what_does_not_fit_and_what_bloom_used(composed):
    table = table_of(composed("bloom_3d"))
    notes = {row[0]: row[-1] for row in table.rows if row[-1]}
    assert notes == {"1 × 6 × 64": "does not fit", "4 × 12 × 8": "the one BLOOM used"}
    assert [table.rows[k][0] for k in table.emphasis] == ["4 × 12 × 8"]
    assert table.note.endswith("Left out: p = 48 (does not divide 72 blocks).")


def test_tensor_parallelism_beyond_a_machine_is_noted(composed):
    asked = composed("bloom_3d")
    asked["demo"]["bloom_3d"]["t"] = [16]
    assert {row[-1] for row in table_of(asked).rows} == {"tensor parallel across machines"}


def test_what_is_left_out_is_named_with_its_reason(composed):
    asked = composed("bloom_3d")
    asked["demo"]["bloom_3d"] |= {"t": [0, 3, 5], "p": [0, 6, 7]}
    assert demos.run(asked)[1] == []
    assert table_of(asked).note.endswith(
        "Left out: p = 0, 7 (does not divide 72 blocks); t × p = 0 × 6, 3 × 6, 5 × 6 (does not divide 384 GPUs)."
    )


def test_a_layout_that_breaks_another_rule_is_a_row_but_not_in_the_table(composed):
    asked = composed("bloom_3d")
    asked["training"]["global_batch"] = 2047
    assert {row["status"] for row in demos.run(asked)[1]} == {"invalid"}
    assert table_of(asked).rows == ()
    assert "see the results" in table_of(asked).note
    assert claims_of(asked) == []


def test_nothing_is_said_of_bloom_about_another_model(composed):
    asked = composed("bloom_3d")
    asked["model"]["name"] = "other"
    assert not said(asked, "BLOOM")
    assert "BLOOM" not in str(table_of(asked).rows)


@pytest.mark.parametrize(
    ("group", "key", "value", "words"),
    [
        ("cluster", "memory_gb", 141, "is too small"),
        ("cluster", "memory_gb", 30, "BLOOM's 4 × 12 × 8"),
        ("cluster", "gpus_per_node", 16, "spends all"),
        ("cluster", "gpus", 768, "a longer pipeline"),
    ],
)
def test_a_claim_about_layouts_vanishes_with_what_it_rests_on(composed, group, key, value, words):
    asked = composed("bloom_3d")
    assert said(asked, words)
    asked[group][key] = value
    assert not said(asked, words)
