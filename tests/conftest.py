"""
What holds for all tests: property tests try the same cases every time, and take the time they need.
"""

from __future__ import annotations

import os

import hypothesis

hypothesis.settings.register_profile("steady", deadline=None, derandomize=True)
hypothesis.settings.register_profile("searching", deadline=None, max_examples=500)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))
