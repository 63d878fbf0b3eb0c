"""Records given parameters: how new values are proposed, and the loops that decide on them."""
