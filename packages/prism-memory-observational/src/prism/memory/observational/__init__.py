"""Source-backed observational memory: observations that point at the entries they came from.

This distribution holds only its namespace for now: it offers no names yet.
"""

__all__: list[str] = []
