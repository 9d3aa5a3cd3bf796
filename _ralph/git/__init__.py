"""git: places, snapshots, branches."""
