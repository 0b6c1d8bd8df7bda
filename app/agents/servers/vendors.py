"""Vendors of models behind HTTP."""

from __future__ import annotations

from app.agents.servers import anthropic_http, openai_http, services

OPENAI = services.Vendor(
    package="openai",
    key_variable="OPENAI_API_KEY",
    models={"haiku": "gpt-6-luna", "sonnet": "gpt-6.1-terra", "opus": "gpt-6.2-sol"},
    open=openai_http.ChatCompletions,
)
"""OpenAI, and services that speak Chat Completions."""

ANTHROPIC = services.Vendor(
    package="anthropic",
    key_variable="ANTHROPIC_API_KEY",
    models={"haiku": "claude-haiku-5-5", "sonnet": "claude-sonnet-5-5", "opus": "claude-opus-5-5"},
    open=anthropic_http.Messages,
)
"""Anthropic, and services that speak its Messages API."""
