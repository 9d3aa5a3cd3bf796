"""What `_ralph/git` promises."""
