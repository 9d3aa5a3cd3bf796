"""What `_ralph/show` promises."""
