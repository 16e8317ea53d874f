"""A report as data (`Page`), and how it is rendered as one HTML document."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Final

import vl_convert
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from diffprune.lab.report import theme
from diffprune.lab.report.rows import Row
from diffprune.lab.report.text import Comparison, Proof, Snippet, Table, Tile

_VEGA: Final = "window.vegaEmbed = vegaEmbed;"
"""All that the page needs of the bundle that draws plots."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A plot with what people need who cannot see it.

    Attributes:
        name: Its id on the page.
        title: Above it.
        alt: What it shows, in a sentence.
        spec: For Vega-Lite; the data stands in `Page.datasets`.
        table: The numbers behind it.
    """

    name: str
    title: str
    alt: str
    spec: Mapping[str, Any]
    table: Table


@dataclass(frozen=True, kw_only=True)
class Page:
    """Everything on the page, from top to bottom."""

    title: str
    headline: str
    warning: str | None
    summary: str
    tiles: Sequence[Tile]
    comparison: Comparison
    clock: str
    runs: Sequence[str]
    architecture: Sequence[Figure]
    last_epoch: int
    curves: Sequence[Figure]
    gates: Sequence[Figure]
    front: Sequence[Figure]
    front_note: str
    proofs: Sequence[Proof]
    snippets: Sequence[Snippet]
    made_with: str
    datasets: Mapping[str, Sequence[Row]]

    @property
    def figures(self) -> list[Figure]:
        """All plots."""
        return [*self.architecture, *self.curves, *self.gates, *self.front]


def render(page: Page) -> str:
    """Write the page as one HTML document that needs nothing else."""
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_unbroken,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    template = environment.from_string(_read("template.html"))
    return template.render(
        page=page,
        style=Markup(_read("style.css")),  # noqa: S704 - our own file
        script=Markup(_read("script.js")),  # noqa: S704 - our own file
        vega=Markup(vl_convert.javascript_bundle(_VEGA)),  # noqa: S704 - a library
        data={
            "charts": {figure.name: figure.spec for figure in page.figures},
            "config": theme.CONFIG,
            "datasets": page.datasets,
        },
    )


def _unbroken(content: object) -> object:
    """Text in which no line ends inside a number, or before its percent sign."""
    if isinstance(content, Markup) or not isinstance(content, str):
        return content
    text = content.replace(" %", "\N{NO-BREAK SPACE}%")
    return re.sub(r"(\de)-(\d)", "\\1\N{NON-BREAKING HYPHEN}\\2", text)


def _read(name: str) -> str:
    return files("diffprune.lab.report").joinpath(name).read_text(encoding="utf-8")
