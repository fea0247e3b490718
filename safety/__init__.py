"""Text in, Verdict out."""
