"""How Python functions become machine code, and where it is kept."""
