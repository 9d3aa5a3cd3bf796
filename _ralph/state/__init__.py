"""The three files, and all that is derived from them."""
