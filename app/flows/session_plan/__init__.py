"""The driver of session plans: a plan is a run, its tasks are runs that it starts, and changes are its inputs."""

from __future__ import annotations

from app.flows.session_plan.driver import NAME, SessionPlan

__all__ = ["NAME", "SessionPlan"]
