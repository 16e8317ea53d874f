"""The site in a real browser, opened from a file, without a network."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_search_works_from_a_file(chromium, tmp_path):
    build = [sys.executable, "-m", "mkdocs", "build", "--quiet", "-d", tmp_path]
    subprocess.run(build, cwd=ROOT, check=True)  # noqa: S603 - our own command
    context = chromium.new_context(offline=True)
    page, asked = context.new_page(), []
    page.on("request", lambda request: asked.append(request.url))
    for name in ("index.html", "howto/budget.html"):
        page.goto((tmp_path / name).as_uri())
        page.locator("[data-md-component=search-query]").fill("checkpoint")
        page.wait_for_selector(".md-search-result__item")
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    context.close()
