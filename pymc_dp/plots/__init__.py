"""Pictures of what one looks at after sampling."""
