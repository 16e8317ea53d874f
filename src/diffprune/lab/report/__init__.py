"""Run folders in, one HTML page out: what was asked, what came out, how it went.

`write` reads runs and writes the page, `run_latency` makes their networks again and
times them, `networks` compares them. `rows` turns records into rows, `charts` and
`curves` rows into plots, `figures` plots into figures with words and tables.
`assemble` puts everything together, `page` renders it as HTML.
"""

from diffprune.lab.report.frontier import Reference as Reference
from diffprune.lab.report.write import write_report as write_report
