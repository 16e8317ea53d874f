"""What a choice that the paper leaves open is worth: small runs with it and without.

Every file has the same four parts: a `Result`, `measure` which trains for minutes and
returns results, `table` which shows them, and `run`, one run of it.
"""
