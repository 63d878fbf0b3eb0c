"""What generated source of kernels has in common."""

from collections.abc import Sequence


def indented(lines: Sequence[str], by: int) -> list[str]:
    """Return lines of source further to the right."""
    return [" " * by + line for line in lines]
