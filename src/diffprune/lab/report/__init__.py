"""Run folders in, one HTML file out: what was asked, what came out, how it went.

`sources` reads runs and `measure` makes their networks again; `networks` compares them.
`frames` turns records into rows, `charts` rows into plots, `figures` plots into figures
with words and tables. `compose` puts everything together, `page` writes it as HTML.
"""

from diffprune.lab.report.write import write_report as write_report
