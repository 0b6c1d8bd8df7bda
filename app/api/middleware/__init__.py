"""Middleware of the HTTP interface, each a layer of the stack that `app/api/service.py` builds."""
