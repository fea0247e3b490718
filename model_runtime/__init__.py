"""Tokens in, tokens out: a sharded Mixture-of-Experts model."""
