"""Ready-made models and data, for demonstrations and reproductions.

Nothing here is needed to prune a model of your own, and names may change between
versions.
"""
