"""The window: what is seen with a browser. The only door to flask, waitress and rq-dashboard."""
