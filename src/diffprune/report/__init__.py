"""Run folders in, one HTML file out: what was asked, what came out, how it went.

`sources` reads runs and `measure` rebuilds their networks; `networks` compares, `frames`
turns records into rows and `charts` rows into plots; `words` puts it into sentences and
`page` onto a page.
"""

from diffprune.report.write import write_report as write_report
