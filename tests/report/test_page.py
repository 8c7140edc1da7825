"""The page: the same bytes twice, small, and safe whatever the names are."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import TypeVar
from xml.etree import ElementTree

import numpy as np
import pytest

from fcl.data import DataSet, open_data
from fcl.features import Columns, bind_features
from fcl.model import History, Model
from fcl.model.certificate import Scope
from fcl.model.covariates import CovariateTerm
from fcl.model.facts import proof
from fcl.options import TrainOptions
from fcl.report import cells
from fcl.report.contract import Context, Figure, Section, Table
from fcl.report.figures import drawing, standalone, themed
from fcl.report.logo import MOST_LETTERS, draw_logo
from fcl.report.make import Report, make_report
from fcl.report.measured import measure
from fcl.report.page import cell, render
from fcl.report.sections import convergence, effects, features, head, provenance, rows, scores
from tests.report.conftest import Case, make_model, table_case

HOSTILE = [
    "<script>document.title='owned'</script>",
    "</script><img src=x onerror=\"document.title='owned'\">",
    "\"'><b>&amp; $\\frac{1}{2}$ \u2028 \x00\x1b[31m \u202e",
    "x" * 1_000_000,
    "{{ 7 * 7 }}{% raw %}",
    "",
]


Block = TypeVar("Block", Figure, Table)


class Page(HTMLParser):
    """Tags, attributes and the contents of scripts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script":
            self.scripts[-1] += data


def context_of(model: Model, data: DataSet | None = None, *groups: np.ndarray) -> Context:
    """What the sections share, measured on rows if there are any."""
    measured = None if data is None else measure(model, data, *groups)
    return Context(model, Path("m.fcl"), "", None, measured)


def blocks(section: Section | None, kind: type[Block]) -> list[Block]:
    """The figures or the tables of a section."""
    assert section is not None
    return [block for block in section.blocks if isinstance(block, kind)]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """A report in which every name that users choose is hostile."""
    case, labels = table_case(), (HOSTILE[0], HOSTILE[1])
    target = np.where(case.data.target == "yes", labels[1], labels[0])
    options = dict(case.model.options) | {HOSTILE[1]: HOSTILE[0], "features": HOSTILE[1]}
    history = [dict(record, validation={HOSTILE[2]: 0.5}) for record in case.model.history]
    history[1] |= {"busy": {HOSTILE[0]: 0.5}, "seconds": "long", "gap": -1.0}
    changes = {"labels": labels, "options": options, "history": history}
    model = table_case(**changes, created=HOSTILE[1], fcl_version=HOSTILE[0]).model
    path = tmp_path_factory.mktemp("hostile") / "m<script>.fcl"
    model.save(path)
    groups = np.array([HOSTILE[i % 3] for i in range(case.data.n_rows)])
    data = case.data.with_target(target, None)
    return make_report(path, data, groups=groups, names=HOSTILE)


def test_hostile_names_stay_text(hostile: Report) -> None:
    page = Page(hostile.html)
    assert len(hostile.html.encode()) < 2 << 20
    assert [tag for tag, _ in page.tags].count("script") == len(page.scripts) == 2
    assert not {"img", "b", "iframe", "link", "base"} & {tag for tag, _ in page.tags}
    assert not [name for _, attrs in page.tags for name in attrs if name.startswith("on")]
    island, script = page.scripts
    assert "<" not in island and "owned" not in script
    names = [row[1] for row in json.loads(island)["rows"]]
    assert HOSTILE[0] in names and max(map(len, names)) <= 120
    assert "49" not in [name.strip() for name in names]
    assert "\x00" not in hostile.html and "\x1b" not in hostile.html
    for name, svg in hostile.plots.items():
        assert "<script" not in svg.lower(), name
        ElementTree.fromstring(svg)


@pytest.mark.slow
def test_the_page_is_small_whatever_the_names_and_rows_are(tmp_path: Path) -> None:
    path = tmp_path / "m.fcl"
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2_000))
    x[:, 1::2] = x[:, ::2]  # each line of the table names an equal column
    y = np.where(rng.random(60) < 0.5, "yes", "no")
    data = open_data(x, y=y)
    family = bind_features(Columns(), data.rows)
    make_model(family, list(range(2_000)), rng.normal(size=2_000).tolist()).save(path)
    names = [chr(0x1F600) * 119 + chr(0x4E00 + i) for i in range(2_000)]
    assert len(make_report(path, data, names=names).html.encode()) < 2 << 20


@pytest.mark.slow
def test_a_logo_of_equal_heights_is_small() -> None:
    with drawing(9.0, 2.0) as drawn:
        draw_logo(drawn.axes, "ACGT", np.full((5_000, 4), [0.1, -0.1, 0.0, 0.1]))
    assert drawn.svg.count("<path") <= MOST_LETTERS + 50


def test_names_in_pictures_keep_their_numbers() -> None:
    with drawing(4.0, 1.0) as drawn:
        drawn.axes.set_yticks([0.5], ['x > 0.12345 and #030303 id="a"'])
    for svg in (themed(drawn.svg), standalone([drawn.svg])):
        assert "x &gt; 0.12345 and #030303 id=" in svg
        assert "#010101" not in svg and not re.search(r'<[^>]*\d\.\d{3,}[ "]', svg)


def test_the_page_asks_for_nothing(hostile: Report) -> None:
    page = Page(hostile.html)
    for tag, attrs in page.tags:
        for name in ("src", "href", "xlink:href", "data", "action"):
            assert (attrs.get(name) or "#").startswith("#"), (tag, attrs)
    assert not re.search(r"@import|url\((?!#)", hostile.html)
    policy = next(attrs["content"] for tag, attrs in page.tags if "http-equiv" in attrs)
    assert policy is not None and policy.startswith("default-src 'none'; style-src")


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
def test_a_browser_shows_the_table_and_reports_no_error(hostile: Report, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(hostile.html)
    command = [
        "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
        "--no-first-run", "--disable-background-networking", "--disable-component-update",
        "--disable-sync", "--disable-dev-shm-usage", f"--user-data-dir={tmp_path / 'profile'}",
        "--enable-logging=stderr", "--dump-dom", path.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "CONSOLE" not in done.stderr
    assert "<title>owned" not in done.stdout
    body = done.stdout.partition('data-island="island-features"')[2].partition("</figure>")[0]
    assert body.count("<tr>") == 4 and "<details>" in body  # a heading, and 4 features, 2 equal


@pytest.mark.slow
def test_the_same_bytes_twice_and_the_numbers_of_the_model(kmers: Case, tmp_path: Path) -> None:
    path = tmp_path / "m.fcl"
    kmers.model.save(path)
    groups = np.arange(kmers.data.n_rows) % 3
    first, second = (make_report(path, kmers.data, groups=groups) for _ in range(2))
    assert first.html == second.html and first.plots == second.plots and first.data == second.data
    assert len(first.html.encode()) < 2 << 20
    keys = [section.key for section in first.sections]
    assert keys == ["head", "scores", "effects", "features", "rows", "convergence", "provenance"]
    for text in (
        f"no weights for all {kmers.model.certificate.n_priced:,} features lower the training objective "
        "by more than 0.80 %.",
        "256 MiB of 1 GiB", "G at -1", "ab" * 32,
        "fcl train --resume m.fcl.checkpoint --tol SMALLER",
    ):  # fmt: skip
        assert text in first.html, text
    assert {"gap.svg", "effects.svg", "convergence.svg", "curves.svg"} <= first.plots.keys()
    lines = first.data["effects.csv"].splitlines()
    assert lines[0] == "position,letter,effect,sum of row weights" and len(lines) == 1 + 4 * 12
    passes = first.data["convergence.csv"].splitlines()
    assert len(passes) == 5 and passes[-1].startswith("1.5,3.0,17.0,12.0,0.001")
    facts = json.loads(first.data["report.json"])
    assert facts["convergence"]["objective"] == "12.5"


@pytest.mark.slow
def test_reports_without_rows_and_without_features(kmers: Case, tmp_path: Path) -> None:
    path, none = tmp_path / "m.fcl", np.zeros(0)
    empty = replace(kmers.model, ids=none, weights=none, support=none, history=[])
    replace(empty, options={"tol": "low"}).save(path)
    for data in (None, kmers.data):
        keys = {section.key for section in make_report(path, data).sections}
        assert keys == {"head", "scores", "features", "convergence", "provenance"}


def test_regression() -> None:
    case = table_case(labels=None, loss="squared")
    context, y = context_of(case.model, case.data), case.data.target
    residuals = y - case.margins
    facts = dict(scores.section(context).facts)
    assert float(facts["mean squared error"]) == pytest.approx(np.mean(residuals**2), rel=1e-5)
    assert float(facts["mean absolute error"]) == pytest.approx(np.abs(residuals).mean(), rel=1e-5)
    share = 1 - np.mean(residuals**2) / y.var()
    assert float(facts["R squared"].partition(" ")[0]) == pytest.approx(share, abs=1e-4)
    tables = blocks(rows.section(context), Table)
    captions = " ".join(table.caption for table in tables)
    for row in (case.margins.argmax(), residuals.argmax(), residuals.argmin()):
        assert f"row {row:,}," in captions
    for table in tables:
        *parts, margin = [line[3] for line in table.rows]
        assert sum(parts) == pytest.approx(margin)


def test_scores_of_numbers_have_no_doubles_and_no_negative_0() -> None:
    case = table_case(labels=None, loss="huber:delta=1")
    flat = replace(case.model, weights=0.0 * case.model.weights, intercept=case.data.target.mean())
    facts = dict(scores.section(context_of(flat, case.data)).facts)
    assert list(facts) == ["R squared", "mean absolute error", "root mean squared error"]
    assert facts["R squared"].startswith("0.0000 (")


def test_precision_is_drawn_in_steps() -> None:
    """As AUPRC sums it: a model without features has one threshold, and no precision above the base."""
    x = np.array([[0.0], [1.0]] * 20)
    data = open_data(x, y=np.arange(40) % 4 == 0)
    model = make_model(bind_features(Columns(), data.rows), [0], [0.0], labels=(0.0, 1.0))
    context = context_of(model, data)
    section = scores.section(context)
    assert dict(section.facts)["AUPRC"].endswith("a random order has 0.25)")
    paths = re.findall(r'<path d="(M [^"]*)" clip-path', blocks(section, Figure)[0].panels[0])
    lines = [re.findall(r"[ML] (\S+) (\S+)", path) for path in paths]
    corners = [line for line in lines if len(line) == 3]
    assert any(a[0] == b[0] and b[1] == c[1] for a, b, c in corners)
    assert dict(head.section(context).facts)["labels"] == "0 is -1, 1 is +1"


def test_one_pass_has_whole_ticks(kmers: Case) -> None:
    first = [{**kmers.model.history[0], "seconds": 1.0, "active": 0, "cached": 0}]
    model = replace(kmers.model, history=History(first))
    (figure, *_) = blocks(convergence.section(context_of(model)), Figure)
    passes = figure.panels[1::2]
    assert not any(re.search(r">.?0\.0[1-9]+<", svg) for svg in passes)
    assert all(re.search(r">.1<", svg) for svg in passes)


def test_predictions_that_overflow() -> None:
    case, y = table_case(labels=None, loss="poisson"), np.arange(150.0)
    x = 1_000.0 * case.data.rows.read_all()
    context = context_of(case.model, open_data(x, y=y), np.arange(150) % 3)
    section = scores.section(context)
    assert "of more than 1e+100" in section.lead and not section.blocks
    assert rows.section(context) is not None


def test_effects_that_overflow() -> None:
    """A weight near the largest number has no bar, and nothing else is lost."""
    case = table_case(labels=None, loss="squared")
    weights = case.model.weights.copy()
    weights[0] = 1e300
    model = replace(case.model, weights=weights)
    section = effects.section(context_of(model, case.data, np.arange(case.data.n_rows) % 3))
    assert section is not None and section.blocks


@pytest.mark.slow
def test_scores_of_labels(kmers: Case) -> None:
    model = replace(kmers.model, weights=40.0 * kmers.model.weights)
    facts = dict(scores.section(context_of(model, kmers.data)).facts)
    y = np.where(kmers.data.target == "yes", 1.0, -1.0)
    signed, weights = y * (kmers.columns @ model.weights + model.intercept), kmers.data.weights
    assert signed.min() < -40.0  # probabilities of these rows round to 0 or 1
    loss = np.average(np.maximum(-signed, 0.0) + np.log1p(np.exp(-np.abs(signed))), weights=weights)
    brier = np.average(1.0 / (1.0 + np.exp(np.minimum(signed, 700.0))) ** 2, weights=weights)
    assert float(facts["log loss"]) == pytest.approx(loss, rel=1e-4)
    assert float(facts["Brier score"]) == pytest.approx(brier, rel=1e-4)


@pytest.mark.slow
def test_rounded_margins_are_announced(kmers: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "MOST_CELLS", 5)
    monkeypatch.setattr(cells, "CELLS_OF_GROUP", 5)
    context = context_of(kmers.model, kmers.data)
    assert context.measured is not None
    margins = context.measured.predictions.margins
    *_, note = scores.section(context).notes
    found = re.search(
        r"into (\d) intervals .* AUPRC by at most (.*), and AUROC by at most (.*)\.", note
    )
    assert found is not None and int(found[1]) == len(margins) <= 5
    errors = cells.ranking_errors(margins)
    for text, bound in ((found[2], errors.auprc), (found[3], errors.auroc)):
        assert 0.0 < bound <= float(text) < 2.0 * bound
    assert scores.rounded_up(1.01e-5) == "2e-05" and scores.rounded_up(0.0) == "0"


@pytest.mark.slow
def test_the_page_claims_no_more_than_is_known(kmers: Case) -> None:
    """About rows of the training under another fingerprint, such as without the sample weights."""
    trained = replace(kmers.model, fingerprint=kmers.data.fingerprint())
    leads = [
        scores.section(context_of(trained, data)).lead
        for data in (kmers.data, kmers.data.with_target(kmers.data.target, None))
    ]
    assert "The model was trained on these rows" in leads[0]
    assert "trained on these rows" not in leads[1] and "not checked" in leads[1]
    sample = replace(kmers.model.certificate, scope=Scope.SAMPLE, n_priced=1_000)
    unknown = replace(sample, scope=Scope.FAMILY, bound=-np.inf, gap=np.inf)
    for certificate, words in (
        (sample, r"for a sample of 1,000 features lower.* 0\.80 %; nothing is .*others\.$"),
        (replace(sample, scope=Scope.SUPPORT), "the 1,000 features that another model had chosen lower"),
        (replace(sample, scope=Scope.SAMPLE_BEFORE),
         r"priced one point earlier, lower.*; nothing is proved about the others\."),
        (replace(sample, gap=1e-300), r"more than 0\.000001 %; "),
        (unknown, "^Nothing is proved.*no lower bound"),
        (replace(unknown, scope=Scope.NOTHING), "newer"),
    ):  # fmt: skip
        assert re.search(words, proof(certificate))
    assert "tolerance 0.00015" in convergence._gap_bar(0.01, 1.5e-4).panels[0]


@pytest.mark.slow
def test_rows_of_a_classification(kmers: Case) -> None:
    section = rows.section(context_of(kmers.model, kmers.data))
    positive, weighted = kmers.data.target == "yes", kmers.data.weights > 0
    best = np.where(positive & weighted, kmers.margins, -np.inf).argmax()
    worst = np.where(~positive & weighted, kmers.margins, -np.inf).argmax()
    figures, tables = blocks(section, Figure), blocks(section, Table)
    captions = [figure.caption for figure in figures]
    assert f"true positive: row {best}," in captions[0] and f"row {worst}," in captions[1]
    for figure, table in zip(figures, tables, strict=True):
        assert figure.data is not None
        letters = sum(line[2] for line in figure.data.rows)
        margin = table.rows[-1][3]
        assert letters + kmers.model.intercept == pytest.approx(margin)


def test_the_command_with_the_same_options(kmers: Case) -> None:
    given = {"C": 0.1, "alpha": 0.2, "memory": 4 << 30, "writers": 0, "seed": 3, "tol": 1e-5}
    options = TrainOptions(features="kmers:d=3", **given).of_job()
    options |= {"class_weight": [[0, 1.0], ["b c", 2.5]]}
    term = CovariateTerm("obs/a b", None, (0.5,))
    command = (
        "fcl train DATA --features kmers:d=3 --C 0.1 --class-weight '0=1.0,b c=2.5' --tol 1e-05 "
        "--driver inline --seed 3 "
    )
    more = {"options": options | {"offset": True}, "covariates": (term,), "sum_weights": 99.5}
    for changes, end in (
        ({"options": options}, "--out MODEL"),
        (more, "--weights NAME --offset NAME --covariates 'obs/a b' --out MODEL"),
    ):
        facts = dict(provenance.section(context_of(replace(kmers.model, **changes))).facts)
        assert facts["same options again"] == command + end


@pytest.mark.slow
def test_points_of_a_path_and_refits(kmers: Case, tmp_path: Path) -> None:
    """Neither began with the null model alone, nor has checkpoints to resume from."""
    warm = [{**each, "active": each["active"] + 1} for each in kmers.model.history]
    context = Context(replace(kmers.model, history=History(warm)), tmp_path / "m.fcl", "")
    words = "4 passes, the first of the starting weights"
    assert dict(convergence.section(context).facts)["passes"] == words
    assert "pass 0 has the weights from which" in convergence.section(context).lead
    assert (
        "--resume m.fcl.checkpoint" in dict(provenance.section(context).facts)["to a smaller gap"]
    )
    (tmp_path / "m.fcl.path").mkdir()
    again = "the command of the path with a smaller --tol and another --out"
    assert dict(provenance.section(context).facts)["to a smaller gap"] == again
    of_support = replace(kmers.model.certificate, scope=Scope.SUPPORT)
    refit = Context(replace(kmers.model, certificate=of_support), Path("m.refit.fcl"), "")
    words = "4 passes, the first of the empty model"
    assert dict(convergence.section(refit).facts)["passes"] == words
    facts = dict(provenance.section(refit).facts)
    assert facts["to a smaller gap"] == again and "--refit" in facts["same options again"]
    assert "--C" not in facts["same options again"]


@pytest.mark.slow
def test_equal_columns_are_folded() -> None:
    case = table_case()
    context = context_of(case.model, case.data)
    (confusion,) = blocks(scores.section(context), Table)
    assert confusion.caption.endswith(": rows.")  # without sample weights
    (table,) = blocks(features.section(context), Table)
    assert [row[1] for row in table.rows] == ["x4", "x0", "x1"]
    assert table.rows[2][-1] == "1 equal: x3 (-0.25)"


@pytest.mark.slow
def test_pictures_of_effects_show_long_names_on_white(tmp_path: Path) -> None:
    case = table_case()
    path = tmp_path / "m.fcl"
    case.model.save(path)

    def effects(names: list[str]) -> str:
        return make_report(path, case.data, names=names).plots["effects.svg"]

    def height(svg: str) -> float:
        return float(ElementTree.fromstring(svg).attrib["height"].removesuffix("pt"))

    short = [f"x{i}" for i in range(6)]
    long = [f"marital_status=Married-civ-spouse * age = 0.0088834{i} (65)" for i in range(6)]
    svg = effects(long)
    assert all(f">{long[i]}<" in svg for i in case.model.ids)
    # names above their bars, so that the bars have room
    assert height(svg) > 1.2 * height(effects(short))
    first = ElementTree.fromstring(svg)[0]
    assert first.tag.endswith("rect") and first.attrib["fill"] == "#ffffff"


def test_cells_and_the_order_of_sections() -> None:
    assert [cell(v) for v in (None, float("nan"), 12345, 0.00012345, 123456.0, 2632.4, "<a>")] == [
        "", "", "12,345", "0.0001234", "123,456", "2,632", "<a>",
    ]  # fmt: skip
    assert [cell(g, "gap") for g in (4e-14, 3.28e-9)] == ["0", "3.28e-09"]
    assert cell(0.034, "share of the score") == "3.4 %"
    made = [Section("b", "B", notes=["n & m"]), Section("a", "A")]
    html = render("t", made)
    assert html.index('id="b"') < html.index('id="a"') and "n &amp; m" in html
    assert Columns().describe(3) == "x3"


HUGE = 1.7e308
ODD: list[tuple[list[dict[str, object]], object]] = [
    ([{}], 1e-3),
    ([{"number": 1, "gap": 0.1}], "x"),
    ([{"number": "a", "busy": "x", "validation": "y", "seconds": None}], 0),
    ([{"seconds": HUGE, "objective": HUGE, "bound": -HUGE, "gap": HUGE, "active": -1}, {"gap": 1e-300}],
     HUGE),
    ([{"validation": {"m": HUGE}, "busy": {"a": None}}, {"validation": {"m": None}, "gap": -1}], 1e-320),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("history", "tol"), ODD)
def test_odd_histories(kmers: Case, history: list[dict[str, object]], tol: object) -> None:
    """A history is a claim of the file, which may hold anything."""
    certificate = replace(kmers.model.certificate, gap=1e-300)
    options = {"tol": tol, "memory": HUGE}
    model = replace(kmers.model, history=history, options=options, certificate=certificate)
    assert convergence.section(context_of(model)).folded
    assert head.section(context_of(model)).key == "head"
