"""The Ray Serve application. `serve run services.app` starts it."""

from services.app import app

__all__ = ["app"]
