"""What `_ralph/loop` promises."""
