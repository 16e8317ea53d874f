"""Neural networks that get smaller while they train."""
