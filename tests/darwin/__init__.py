"""macOS on Linux, as far as ralph can see; and what cannot hold on either."""
