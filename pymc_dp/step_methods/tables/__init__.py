"""Tables of counts: moves of cells along integer directions, at a cost in cells."""
