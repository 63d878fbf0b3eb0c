"""Models with the confidential records integrated out."""
