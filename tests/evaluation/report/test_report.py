"""Reports: the numbers of results.json, in both files; model text harmless; nothing fetched."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from recollect.cli import main
from recollect.display.numbers import count, dollars, p_value, share, signed
from recollect.evaluation.report.charts import (
    HEIGHT,
    LEFT,
    RIGHT,
    WIDTH,
    Point,
    Series,
    _ticks,
    bar,
    chart,
    standalone,
)
from recollect.evaluation.report.content import make_document, model_name
from recollect.evaluation.report.document import scored
from recollect.evaluation.report.markdown import write_markdown
from recollect.evaluation.report.page import write_page
from recollect.evaluation.results import Cost, Results, save
from tests.support.made_up_results import HOSTILE, results

RESULTS = results()
DOCUMENT = make_document(RESULTS)
PAGE = write_page(DOCUMENT)
MARKDOWN = write_markdown(DOCUMENT)


def parse(page: str) -> ElementTree.Element:
    return ElementTree.fromstring(page.removeprefix("<!DOCTYPE html>\n"))


TREE = parse(PAGE)


def text(element: ElementTree.Element) -> str:
    return " ".join("".join(element.itertext()).split())


def section(tree: ElementTree.Element, title: str) -> ElementTree.Element:
    return next(s for s in tree.iter("section") if text(s.find("h2")) == title)


def tables(tree: ElementTree.Element, title: str) -> dict[str, list[list[str]]]:
    """Return a section's first table under every summary, as texts."""
    found = {}
    for details in section(tree, title).findall("details"):
        rows = details.find(".//table").iter("tr")
        found[text(details.find("summary"))] = [[text(cell) for cell in row] for row in rows]
    return found


# --- the numbers ----------------------------------------------------------------------------------


def test_every_score_stands_in_the_overview_with_its_interval() -> None:
    rows = [[text(cell) for cell in row] for row in section(TREE, "Results").iter("tr")]
    agents = rows[0][2:]
    assert agents == list(dict.fromkeys(cell.agent for cell in RESULTS.cells))
    shown = {
        (row[0].split()[0], agent): row[2 + i] for row in rows[1:] for i, agent in enumerate(agents)
    }
    assert len(shown) == len(RESULTS.cells)
    for cell in RESULTS.cells:
        score = cell.scores[cell.primary]
        expected = f"{share(score.mean)} {share(score.low)} to {share(score.high)}"
        failed = f", {score.n_failed} failed" if score.n_failed else ""
        assert shown[cell.task, cell.agent] == expected + failed
        assert f"| {scored(score)} |" in MARKDOWN or f"| **{scored(score)}** |" in MARKDOWN


def test_each_task_set_has_n_failures_spread_closed_book_and_paired_p_values() -> None:
    found = tables(TREE, "Each task set")
    pairs = {(c.task, frozenset((c.first, c.second))): c for c in RESULTS.comparisons}
    checked = 0
    for cell in RESULTS.cells:
        head, *rows = found[cell.task]
        assert head[2:7] == ["n", "clusters", "failed", "spread", "closed book"]
        row = next(row for row in rows if row[0] == cell.agent)
        score = cell.scores[cell.primary]
        assert row[1].startswith(f"{share(score.mean)} {share(score.low)} to ")
        assert row[2:5] == [str(score.n), str(score.n_clusters), str(score.n_failed)]
        assert row[5:7] == [f"\u00b1{share(cell.spread)}", share(cell.closed_book.mean)]
        best = head[7].removeprefix("against ")
        assert best != "oracle"
        if cell.agent != best:
            pair = pairs[cell.task, frozenset((cell.agent, best))]
            sign = 1 if pair.first == cell.agent else -1
            assert row[7].startswith(f"{signed(sign * pair.difference)} [")
            assert row[8:] == [p_value(pair.p), p_value(pair.p_adjusted)]
            checked += 1
    assert checked == len(RESULTS.cells) - len(found)


def test_the_report_says_which_scores_are_ours_and_which_are_published() -> None:
    for family in dict.fromkeys(cell.family for cell in RESULTS.cells):
        cell = next(cell for cell in RESULTS.cells if cell.family == family)
        beside = [name for name in cell.scores if name not in (cell.primary, *cell.published)]
        said = f"| {family} | {cell.primary} | {', '.join(beside)} | {', '.join(cell.published)} |"
        assert said in MARKDOWN
    assert "compare them with published figures only" in " ".join(MARKDOWN.split())
    plain = replace(RESULTS, cells=[replace(cell, published=[]) for cell in RESULTS.cells])
    assert "(published)" not in write_markdown(make_document(plain))


def test_all_metrics_axes_costs_and_the_judge_are_shown() -> None:
    metrics = tables(TREE, "All metrics side by side")
    axes = {name: tables(TREE, name) for name in ("By category", "By position of the evidence")}
    costs = tables(TREE, "Cost")
    for cell in RESULTS.cells:
        head, *rows = metrics[cell.task]
        row = next(row for row in rows if row[0] == cell.agent)
        for name, score in cell.scores.items():
            shown = f"{name} (published)" if name in cell.published else name
            assert row[head.index(shown)].startswith(share(score.mean))
        for title, axis in (
            ("By category", "category"),
            ("By position of the evidence", "position"),
        ):
            head, *rows = axes[title][cell.task]
            for value, score in cell.axes[axis].items():
                row = next(row for row in rows if row[0] == value)
                assert row[1] == str(score.n)
                assert row[head.index(cell.agent)].startswith(share(score.mean))
        row = next(row for row in costs[cell.task] if row[0] == cell.agent)
        cost, n = cell.cost, cell.cost.episodes
        assert row[1] == count(cost.build_read / n) and row[4] == count(cost.answer_written / n)
        assert row[8] == dollars(cost.dollars / n)
    assert [row[0] for row in axes["By position of the evidence"]["locomo"][1:]] == [
        "first",
        "last",
    ]
    judge = text(section(TREE, "Judge"))
    assert "9f2c61d0aa" in judge and "vaguewrong575" in judge
    assert "| vague | wrong | 5 | 75 |" in MARKDOWN
    assert share(RESULTS.judge.false_accept.mean) in judge


def test_it_says_how_to_get_it_again() -> None:
    again = section(TREE, "How to get this again")
    assert again.find("pre").find("code").text == RESULTS.command
    for task, digest in RESULTS.data.items():
        assert f"{task}{digest}" in text(again) and f"| {task} | {digest} |" in MARKDOWN
    assert RESULTS.command in MARKDOWN and "0123abc" in text(again)


def test_failures_are_announced() -> None:
    notice = TREE.find(".//p[@class='notice']")
    assert "27 episodes failed and count as wrong" in text(notice)
    assert "policy: APITimeoutError (18)" in text(notice)


# --- model text -----------------------------------------------------------------------------------


def test_model_text_is_text() -> None:
    harmless = re.sub("[\x00\x1b\u202e]", "\ufffd", HOSTILE)
    quoted = [pre.text for pre in TREE.iter("pre") if pre.get("dir") == "auto"]
    assert quoted.count(harmless) == 2  # an answer and a question
    assert re.sub("[\x00\x1b\u202e]", "\ufffd", HOSTILE[::-1]) in quoted
    assert not {"script", "img", "b", "iframe", "link", "object"} & {e.tag for e in TREE.iter()}
    assert not [name for e in TREE.iter() for name in e.attrib if name.startswith("on")]


def test_model_text_cannot_leave_its_fence() -> None:
    outside, fence = [], ""
    for line in MARKDOWN.split("\n"):
        ticks = re.match(r"`{3,}", line)
        if fence and line == fence:
            fence = ""
        elif not fence and ticks:
            fence = ticks[0]
        elif not fence:
            outside.append(line)
    assert fence == ""
    for part in ("<script", "<b>", "# not a heading", "| not | a | row |"):
        assert part in MARKDOWN and not any(part in line for line in outside)


def test_names_cannot_break_out_either() -> None:
    cell = replace(RESULTS.cells[0], task='<i a="|">', agent="x|<u>y</u>", family="&")
    one = replace(RESULTS, cells=[cell], comparisons=[], examples=[], data={'<i a="|">': "<p>"})
    document = make_document(one)
    tree = parse(write_page(document))
    assert not {"i", "u"} & {element.tag for element in tree.iter()}
    row = next(line for line in write_markdown(document).split("\n") if "hash of" in line)
    assert row.count("|") == 3
    assert '\\<i a="\\|"\\> | \\<p\\> |' in write_markdown(document)


# --- the page -------------------------------------------------------------------------------------


def test_nothing_is_fetched() -> None:
    for element in TREE.iter():
        assert element.tag not in ("script", "link", "img", "iframe", "image", "use", "base")
        assert element.get("src") is None
        assert element.get("href", "#").startswith("#")
        assert "url(" not in (element.get("style") or "")
    style = TREE.find("head/style").text
    assert "url(" not in style and "@import" not in style and "http" not in style
    policy = TREE.find("head/meta[@http-equiv='Content-Security-Policy']").get("content")
    assert policy.startswith("default-src 'none'") and "script-src" not in policy


def test_links_lead_somewhere() -> None:
    ids = [element.get("id") for element in TREE.iter() if element.get("id")]
    links = [element.get("href")[1:] for element in TREE.iter("a")]
    assert links == ids and len(set(ids)) == len(ids)


def test_the_page_is_for_both_schemes_phones_and_paper() -> None:
    style = TREE.find("head/style").text
    for feature in (
        "prefers-color-scheme:dark",
        "max-width:40rem",
        "@media print",
        "overflow-x:auto",
    ):
        assert feature in style
    assert TREE.find("head/meta[@name='viewport']") is not None


# --- charts ---------------------------------------------------------------------------------------


def test_points_stand_where_they_belong() -> None:
    points = [Point(x, y, y, y, f"at {x}") for x, y in ((1e3, 1.0), (1e4, 0.5), (1e5, 0.0))]
    drawn = ElementTree.fromstring(chart("<T>", "tokens", [Series("one", 0, points)], count))
    places = [
        tuple(map(float, re.findall(r"[-\d.]+", g.get("transform"))))
        for g in drawn.iter("g")
        if g.get("transform")
    ]
    (x1, y1), (x2, y2), (x3, y3) = places
    assert x2 - x1 == pytest.approx(x3 - x2, abs=0.2)  # a log axis
    assert LEFT < x1 < x3 < WIDTH - RIGHT
    grid = [
        float(p.get("d").split()[1].split("H")[0])
        for p in drawn.iter("path")
        if p.get("class") == "grid"
    ]
    assert (y1, y2, y3) == pytest.approx((grid[4], grid[2], grid[0]), abs=0.1)
    assert 0 < y1 < y2 < y3 < HEIGHT
    labels = [text(t) for t in drawn.iter("text")]
    assert labels[0] == "<T>" and {"1,000", "10,000", "100,000", "0.00", "1.00", "tokens"} <= set(
        labels
    )


@pytest.mark.parametrize(
    ("xs", "expected"),
    [
        ([7e3, 28e3, 112e3], [7e3, 28e3, 112e3]),
        ([100.0, 110, 120, 130], [100]),
        ([90.0, 95, 1000, 1100], [100, 200, 500, 1000]),
        ([5.0, 5.0], [5.0]),
        ([333.0, 334.0], [333.0, 334.0]),
    ],
)
def test_ticks(xs: list[float], expected: list[float]) -> None:
    assert _ticks(xs) == expected


def test_a_bar_is_its_interval() -> None:
    band = ElementTree.fromstring(bar(0.25, 0.5, 0.75)).find("rect[@class='band']")
    assert (float(band.get("x")), float(band.get("width"))) == (25, 50)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ({"memory": {"id": "small"}, "answer": {"id": "small"}}, "small"),
        ({"memory": {"id": "a"}, "answer": {"url": "b"}}, "a with b"),
        ({"memory": {"id": "model", "folder": "runs/demo/model", "run": "demo"}}, "demo"),
        ({"memory": {"id": "model", "folder": "/home/me/model"}}, "model"),
    ],
)
def test_a_model_is_named(model: dict[str, dict[str, str]], expected: str) -> None:
    assert model_name(model) == expected


# --- odd results ----------------------------------------------------------------------------------


def test_a_small_evaluation_has_a_small_report() -> None:
    cell = replace(
        RESULTS.cells[0], tokens=None, spread=None, closed_book=None, axes={}, cost=Cost()
    )
    one = Results("recollect eval", "today", {}, {}, {}, {}, [cell])
    document = make_document(one)
    titles = [section.title for section in document.sections]
    assert "Length" not in titles and "Judge" not in titles
    tree = parse(write_page(document))
    assert "Not run: closed_book" in text(tree) and "Evaluation of a model" in text(tree)
    assert tree.find(".//p[@class='notice']") is None
    assert write_markdown(document).startswith("# Evaluation of a model\n")


def test_an_agent_that_did_not_run_everywhere_leaves_gaps() -> None:
    some = replace(
        RESULTS, cells=[c for c in RESULTS.cells if (c.task, c.agent) != ("locomo", "rag")]
    )
    rows = [
        [text(c) for c in row]
        for row in section(parse(write_page(make_document(some))), "Results").iter("tr")
    ]
    assert rows[-1][rows[0].index("rag")] == ""


def test_the_verb_writes_both_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(RESULTS, tmp_path)
    assert main(["report", str(tmp_path)]) == 0
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == PAGE
    assert (tmp_path / "report.md").read_text(encoding="utf-8") == MARKDOWN
    assert capsys.readouterr().out.split() == [
        str(tmp_path / n) for n in ("report.md", "report.html")
    ]
    assert main(["report", str(tmp_path / "results.json")]) == 0
    assert main(["report", str(tmp_path / "nowhere")]) == 2
    assert "name a folder that `recollect eval` wrote" in capsys.readouterr().err
    assert main(["report"]) == 2


def test_equal_means_are_equally_bold_and_nobody_is_best_with_nothing() -> None:
    def bold(*means: float) -> list[str]:
        cells = []
        for name, mean in zip(("fold", "rag", "oracle"), means, strict=True):
            cell = next(c for c in RESULTS.cells if (c.task, c.agent) == ("locomo", name))
            score = replace(cell.scores[cell.primary], mean=mean)
            cells.append(replace(cell, scores={cell.primary: score}))
        tree = parse(write_page(make_document(replace(RESULTS, cells=cells))))
        row = list(section(tree, "Results").iter("tr"))[1]
        return [text(td)[:5] for td in row if td.find("strong") is not None]

    assert bold(0.5, 0.5, 0.9) == ["0.500", "0.500"]
    assert bold(0.2, 0.5, 0.5) == ["0.500"]
    assert bold(0.0, 0.0, 0.9) == []


def test_a_legend_of_long_names_does_not_overlap():
    names = ["gated before reward", "full_context before reward", "rag"]
    places = [int(x) for x in re.findall(r'<g transform="translate\((\d+) ', standalone([], names))]
    letter = 6.5  # of a font of 12, about
    for name, here, there in zip(names, places, places[1:], strict=False):
        assert there - here > 10 + letter * len(name)
    assert places[1] - places[0] > 150
