"""
All other products by name.
"""

from __future__ import annotations

from collections.abc import Mapping

from bench import workload

PRODUCTS: Mapping[str, workload.Product] = {}
"""One line for each, in the order of the table."""
