"""A report in a real browser, without a network."""

import re

import pytest

from diffprune.lab import Recipe, train
from diffprune.lab.report import Reference, write_report
from diffprune.lab.runs.tasks import load_task

PHONE, DESKTOP = 390, 1280


@pytest.fixture(scope="module")
def html(write_run, tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    runs = [
        write_run(root / "full", gates={}),
        write_run(root / "<b>small"),
        write_run(root / "other", epochs=3),
    ]
    references = [
        Reference(label="theirs", error=1.0, macs=153_376, parameters=2_751),
        Reference(label="the <i>paper", error=2.0, macs=9_999, parameters=9, group="p"),
    ]
    out = root / "report.html"
    return write_report(runs, out, references=references, measure=False)


TASK = """
import torch
from torch import nn
from diffprune.lab import Task
from diffprune.lab.image_batches import Batches, Examples


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(4, 8)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        x = self.stem(x).relu()
        return self.head(x + self.down(self.up(x).relu()))


def toy(recipe):
    inputs = torch.randn(64, 4, generator=torch.Generator().manual_seed(1))
    data = Examples(inputs, (inputs.sum(dim=1) > 0).long())
    return Task(
        model=Residual(),
        train=Batches(data, recipe.batch_size, shuffle=True),
        test=Batches(data, 32),
    )
"""


@pytest.fixture(scope="module")
def rebuilt(tmp_path_factory):
    """A report that has made its networks again, and so can draw them."""
    root = tmp_path_factory.mktemp("rebuilt")
    (root / "task.py").write_text(TASK)
    make_task, _ = load_task(f"{root / 'task.py'}:toy")
    recipe = Recipe(
        name="toy", epochs=2, batch_size=8, strength=0.1, pruner={"remove_every": 4}
    )
    train(make_task, recipe, out=root / "run")
    return write_report([root / "run"], root / "report.html", trust=True)


def test_layers_are_drawn_as_blocks_and_what_they_cost_as_bars(chromium, rebuilt):
    page = chromium.new_page()
    page.goto(rebuilt.as_uri())
    page.wait_for_selector("body[data-ready]")
    texts = page.locator("#network .mark-text text").all_text_contents()
    assert {"input", "stem", "up", "down", "head", "output", "+"} <= set(texts)
    assert page.locator("#network .mark-line path").count() == 7
    for cost in ("macs", "parameters"):
        labels = page.locator(f"#share-{cost} .mark-text text").all_text_contents()
        assert len([text for text in labels if "→" in text]) == 4
    page.close()


@pytest.fixture
def page(chromium, html, request):
    """The report, opened from a file; everything it complains of is an error."""
    options = getattr(request, "param", {})
    context = chromium.new_context(
        offline=True,
        viewport={"width": options.get("width", DESKTOP), "height": 900},
        color_scheme=options.get("scheme", "light"),
        permissions=["clipboard-read", "clipboard-write"],
    )
    page, complaints = context.new_page(), []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda r: complaints.append(r.url) if r.url != url else None)
    url = html.as_uri()
    page.goto(url)
    page.wait_for_selector("body[data-ready]")
    yield page
    context.close()
    assert complaints == []


def rule(page, figure):
    """Where the rule of a plot stands."""
    return page.locator(f"#{figure} .mark-rule.role-mark line").first.get_attribute(
        "transform"
    )


def test_every_plot_is_drawn_named_and_backed_by_a_table(page):
    figures = page.locator("figure")
    assert figures.count() == 1 + 4 + 3 + 2
    for figure in figures.all():
        assert figure.locator("svg path").count() > 0
        assert len(figure.locator("[role=img]").get_attribute("aria-label")) > 20
        assert figure.locator("details tbody tr").count() > 0


def test_all_plots_follow_the_pointer(page):
    plot = page.locator("#curve-macs .plot")
    plot.scroll_into_view_if_needed()
    others = ("curve-test", "curve-widths", "curve-pace", "gate-0")
    before = [rule(page, other) for other in others]
    box = plot.bounding_box()
    page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + box["height"] / 2)
    tooltip = page.locator("#vg-tooltip-element.visible")
    tooltip.wait_for()
    assert tooltip.locator("tr").all_inner_texts() == [
        "Epoch\t2",
        "full\t1,000,000",
        "<b>small\t1,000,000",
        "other\t1,000,000",
    ]
    page.wait_for_function("document.getElementById('epoch').value === '2'")
    assert all(rule(page, o) != b for o, b in zip(others, before, strict=True))
    assert "<b>small: 8.00 % error" in page.locator("#readout").inner_text()


def test_all_plots_follow_the_keyboard(page):
    before = rule(page, "curve-test")
    page.locator("#epoch").press("ArrowLeft")
    assert page.locator("#epoch-number").inner_text() == "3"
    page.wait_for_timeout(100)
    assert rule(page, "curve-test") != before


def test_another_run_can_be_shown(page):
    labels = page.locator("#architecture .mark-text.role-mark text")
    assert labels.first.text_content() == "10 → 4"
    page.locator("#run").select_option("other")
    page.wait_for_function(
        "document.querySelector('#architecture .mark-text.role-mark text').textContent"
        " === '10 → 5'"
    )


@pytest.mark.parametrize(
    ("page", "first"),
    [({"scheme": s}, s) for s in ("light", "dark")],
    indirect=["page"],
)
def test_colours_follow_the_system_until_asked_otherwise(page, first):
    def luminance():
        color = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return sum(map(int, re.findall(r"\d+", color)[:3])) / 3

    bounds = {"light": (200, 256), "dark": (0, 56)}
    second = {"light": "dark", "dark": "light"}[first]
    low, high = bounds[first]
    assert low <= luminance() < high
    page.locator("#theme").press("Enter")
    low, high = bounds[second]
    assert low <= luminance() < high


@pytest.mark.parametrize(
    "page", [{"scheme": "light"}, {"scheme": "dark"}], indirect=True, ids=str
)
def test_text_stands_out(page):
    """At least 4.5 to 1, as the accessibility guidelines ask, in text and in plots."""
    assert page.evaluate(CONTRASTS) == []


def test_code_is_copied(page):
    button = page.locator(".copy").first
    button.press("Enter")
    page.wait_for_function("document.querySelector('.copy').textContent === 'Copied'")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied.startswith("import diffprune as dp\n")
    assert copied == page.locator("pre code").first.text_content()


@pytest.mark.parametrize("page", [{"width": PHONE}], indirect=True)
def test_a_phone_scrolls_in_one_direction(page):
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE
    for plot in page.locator(".plot svg").all():
        assert plot.bounding_box()["width"] <= PHONE - 2 * 16 + 1


def test_paper_is_light(chromium, html):
    context = chromium.new_context(color_scheme="dark")
    page = context.new_page()
    page.goto(html.as_uri())
    page.wait_for_selector("body[data-ready]")
    page.emulate_media(media="print")
    color = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert color == "rgb(255, 255, 255)"
    assert page.locator("#theme").is_hidden()
    context.close()


CONTRASTS = """() => {
  const canvas = document.createElement("canvas").getContext("2d", {
    willReadFrequently: true,
  });
  const rgb = (color) => {
    canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    return canvas.getImageData(0, 0, 1, 1).data;
  };
  const luminance = (color) => {
    const [r, g, b] = [...rgb(color)].slice(0, 3).map((part) => {
      const c = part / 255;
      return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = getComputedStyle(at).backgroundColor;
      if (color !== "rgba(0, 0, 0, 0)") return color;
    }
  };
  const weak = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!own || !element.getClientRects().length || element.closest("script")) continue;
    const style = getComputedStyle(element);
    const ink = element.closest("svg") ? style.fill : style.color;
    const [a, b] = [luminance(ink), luminance(ground(element))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) weak.push(element.textContent.slice(0, 40));
  }
  return weak;
}"""
