"""Social posts in, searchable passages out."""
