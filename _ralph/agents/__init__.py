"""Agents: their commands, their events, the prompt."""
