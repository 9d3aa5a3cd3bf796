"""What `_ralph/process` promises."""
