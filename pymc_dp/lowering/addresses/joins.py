"""Arrays joined a few at a time: machine code that joins many at once takes minutes to compile."""

from typing import Any

from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.basic import Join

# Arrays that are joined at once. Compiling a join of 30 takes 7 s, of 60 takes 20 s, and of 60 by eights 2 s;
# that runs a sixth longer, since all but the last joins copy once more.
AT_ONCE = 8


@node_rewriter([Join])
def joined_in_parts(fgraph: Any, node: Any) -> list[Any] | None:
    """Join parts of what is joined first."""
    parts = list(node.inputs)
    if len(parts) <= AT_ONCE:
        return None
    while len(parts) > AT_ONCE:
        parts = [_joined(node.op, parts[k : k + AT_ONCE]) for k in range(0, len(parts), AT_ONCE)]
    return [_joined(node.op, parts)]


def _joined(join: Join, parts: list[Any]) -> Any:
    return parts[0] if len(parts) == 1 else join(*parts)
