"""The error that tools answer with."""


class ToolError(ValueError):
    """A tool refused a call. The text says why, and what to do; an agent can read it."""
