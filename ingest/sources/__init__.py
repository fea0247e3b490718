"""One module per network: its payload -> Post | Removal, and its client."""
