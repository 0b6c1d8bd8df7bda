"""Engines that execute runs, and the points where a test can make them die."""
