"""Table 1 on equal terms: every system it compares, in one harness."""
