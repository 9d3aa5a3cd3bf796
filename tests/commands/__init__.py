"""What `_ralph/commands` promises."""
