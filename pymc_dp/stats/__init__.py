"""What to look at after sampling."""
