"""What the repository does to itself: tables, pictures and formulas of the pages."""
