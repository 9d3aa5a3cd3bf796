"""What `_ralph/state` promises."""
