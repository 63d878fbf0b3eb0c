"""Parameters given records, given the records' noise, or with the records integrated out."""
