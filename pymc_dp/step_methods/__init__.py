"""Step methods: how the chain moves over records and their parameters."""
