"""Bridges to other libraries; each is imported only by who uses it."""
