"""What passes: places, the clean room, hooks, checks, single tests, the verdict."""
