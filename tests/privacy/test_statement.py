"""The statement for readers of no code: what it says, that it is the report's, that it is safe."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import dp_accounting as dp
import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import skdp
from skdp import BoundedScaler, DPVariationalLogisticRegression, privacy_of
from skdp.privacy import PrivacyReport
from skdp.privacy.events import dp_sgd_event
from skdp.privacy.statement import in_100, settings_of, today, versions_in_use

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "guide" / "filled_statement.md"
EVENT = dp_sgd_event(4.0, 1.0, 16)
X, Y = [[-1.0], [-0.9], [0.9], [1.0]], [0, 0, 1, 1]
HOSTILE = "<script>alert(1)</script> [a](javascript:x) | **b** `c` &lt; $x$ _d_\n# e"


def made(event=EVENT, **facts):
    return PrivacyReport.of(event, **({"delta": 1e-5, "sampling": "any"} | facts))


def patients():
    """The fit of the page in the docs."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.uniform(18, 100, 20_000), rng.integers(0, 15, 20_000)])
    y = np.where(rng.random(20_000) < X[:, 1] / 30, "readmitted", "at home")
    model = DPVariationalLogisticRegression(
        epsilon=1.0, delta=1e-6, classes=["at home", "readmitted"], n_samples=20_000
    )
    return make_pipeline(BoundedScaler(lower=[18, 0], upper=[100, 14]), model).fit(X, y)


@pytest.fixture(scope="module")
def fitted():
    return patients()


class _Tags(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.text = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text.append(data)


def undated(text):
    """Without what differs between days and machines."""
    text = re.sub(r"\| date \| [\d-]+ \|", "| date | DAY |", text)
    return re.sub(r"\| versions \| .* \|", "| versions | VERSIONS |", text)


def test_the_page_in_the_docs_is_what_is_written_today(fitted):
    shown = privacy_of(fitted).to_markdown("Readmission model: privacy statement")
    written = PAGE.read_text(encoding="utf-8")
    assert undated(written) == undated(shown)
    assert undated(written) != written


def test_it_says_what_an_officer_asks(fitted):
    report = privacy_of(fitted)
    text = report.to_markdown()
    for said in (
        "one row of X",
        "n_samples=20000",
        "lower=\\[18, 0\\], upper=\\[100, 14\\]",
        "classes=\\['at home', 'readmitted'\\]",
        "mistakes 1 in 100 outsiders for members",
        f"finds at most {in_100(report.tpr_at_fpr())} in 100",
        f"| date | {today()} |",
        f"skdp {skdp.__version__}",
        "What is not covered",
    ):
        assert said in text
    for package in ("numpy", "torch", "dp-accounting"):
        assert re.search(rf"{package} \d", text)
    page = "".join(_Tags(report.to_html()).text)
    assert "classes=['at home', 'readmitted']" in page
    assert "epsilon=1.0" in page


def test_numbers_are_rounded_up():
    shown = {0.0: "0", 0.0101: "1.01", 0.010001: "1.01", 0.09237: "9.24", 1.0: "100"}
    assert {share: in_100(share) for share in shown} == shown
    rng = np.random.default_rng(0)
    for share in rng.uniform(1e-7, 1, 1000):
        assert 100 * share * (1 - 1e-9) <= float(in_100(share)) <= 100 * share * 1.0101


@pytest.mark.parametrize(
    ("report", "words"),
    [
        (made(seeded=True), "the seed"),
        (made(dp.NonPrivateDpEvent()), "single records"),
        (replace(made(), valid=False, unaccounted=("step 'a': read rows",)), "not accounted"),
    ],
    ids=["seeded", "no privacy", "unaccounted"],
)
def test_no_guarantee_is_the_first_that_is_said(report, words):
    first = report.to_markdown().split("\n\n")[1]
    assert first.startswith("**There is no guarantee")
    assert words in first
    assert "| guarantee | no |" in report.to_markdown()
    assert "finds at most" not in report.to_markdown()
    assert all(line in report.to_markdown() for line in report.unaccounted)


def test_each_relation_is_explained():
    said = {
        relation: made(neighboring_relation=relation).to_markdown()
        for relation in skdp.relations.Relation
    }
    assert "replaced by an empty one" in said["zero_out"]
    assert "removed, or another added" in said["add_or_remove_one"]
    assert "which of two values" in said["replace_one"]
    assert "members" not in said["replace_one"]
    for relation, text in said.items():
        assert ("every other person" in text) == relation.endswith("_group")
        assert ("number of rows is public" in text) == relation.n_is_public


def test_what_callers_chose_cannot_change_the_page():
    report = replace(
        made(sampling=HOSTILE, inferred_public_facts=(HOSTILE,)),
        assumptions=(HOSTILE,),
        tuning=HOSTILE,
        settings=(HOSTILE,),
    )
    plain = made(sampling="x", inferred_public_facts=("x",))
    plain = replace(plain, assumptions=("x",), tuning="x", settings=("x",))
    hostile, harmless = (_Tags(r.to_html(title=t)) for r, t in ((report, HOSTILE), (plain, "x")))
    assert hostile.tags == harmless.tags  # the same elements, in the same order
    assert "".join(hostile.text).count(HOSTILE) == 7
    lines = report.to_markdown(HOSTILE).splitlines()
    assert len(lines) == len(plain.to_markdown("x").splitlines())
    for line in lines:
        assert not re.search(r"(?<!\\)[<`$*]", line.replace("**", "")), line
        if "script" in line and line.startswith("|"):
            assert len(re.findall(r"(?<!\\)\|", line)) == 3


def test_markdown_of_hostile_text_renders_as_text():
    render = pytest.importorskip("markdown_it").MarkdownIt("commonmark").enable("table").render
    report = replace(made(sampling=HOSTILE), settings=(HOSTILE,))
    tags = {tag for tag, _ in _Tags(render(report.to_markdown(HOSTILE))).tags}
    assert tags <= {
        "h1", "h2", "p", "strong", "ul", "li", "table", "thead", "tbody", "tr", "td", "th",
    }  # fmt: skip


def test_names_of_classes_are_text(tmp_path):
    model = DPVariationalLogisticRegression(classes=["<b>no</b>", "a|b"], n_samples=40)
    report = model.fit(X * 10, ["<b>no</b>", "a|b"] * 20).privacy_
    page = report.to_html(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page
    assert "<b>no" not in page
    assert "['<b>no</b>', 'a|b']" in "".join(_Tags(page).text)
    assert r"\['\<b\>no\</b\>', 'a\|b'\]" in report.to_markdown()


def test_values_are_shown_and_objects_are_named():
    class Holder:
        def get_params(self, deep):
            return {
                "edges": np.arange(100.0),
                "bounds": {"age": (0, 120)},
                "loss": Secret(),
                "kind": Secret,
                "seed": None,
                "random_state": 1234,
                "name": "x" * 1000,
            }

    class Secret:
        def __repr__(self):
            raise AssertionError("nobody asks what it says")

    line = settings_of(Holder(), "Holder", 10)
    assert line.startswith("Holder: n_samples=10, edges=[0.0, 1.0, 2.0")
    assert "11.0, … of 100], bounds={'age': [0, 120]}, loss=Secret, kind=Secret, name='x" in line
    assert "1234" not in line
    assert len(line) < 400


def test_date_and_versions_are_no_part_of_the_claim(fitted):
    report = fitted[-1].privacy_
    other = replace(report, date="1999-01-01", versions=("numpy 0",), settings=())
    assert other == report
    assert hash(other.date) != hash(report.date)
    assert PrivacyReport.from_json(report.to_json()) == report
    again = PrivacyReport.from_json(report.to_json())
    for name in ("date", "versions", "settings"):
        assert getattr(again, name) == getattr(report, name)
    assert (report + other).date == report.date == today()
    assert set((report + other).versions) == {*versions_in_use(), "numpy 0"}


@pytest.mark.parametrize("changes", [{"date": 3}, {"versions": [1]}, {"settings": [2]}])
def test_json_with_other_types_is_refused(changes):
    text = made().to_json()
    with pytest.raises(ValueError, match="JSON"):
        PrivacyReport.from_json(json.dumps(json.loads(text) | changes))


def test_a_step_that_learned_from_rows_is_named_before_all_else():
    model = DPVariationalLogisticRegression(classes=[0, 1], n_samples=4)
    text = privacy_of(make_pipeline(StandardScaler(), model).fit(X, Y)).to_markdown()
    assert text.index("There is no guarantee") < text.index("Not accounted")
    assert "learned mean and scale from the rows" in text


def test_the_day_may_be_set_for_results_that_repeat(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    assert today() == "1970-01-02"
