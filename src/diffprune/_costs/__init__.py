"""What a model costs, as a function of the widths of its groups."""
