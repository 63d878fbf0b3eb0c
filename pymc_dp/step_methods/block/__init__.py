"""One block of records, lowered: the model's graph as native functions of flat arrays."""
