"""What `_ralph/agents` promises."""
