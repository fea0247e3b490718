"""Figures: `python -m bench.NAME`. Ray reads how it authenticates when it is imported, so that is said here."""

import os

os.environ.setdefault("RAY_AUTH_MODE", "token")  # what a service started by `serve run` expects of who joins it
