"""The folders that runs leave, and how to read and rebuild what is in them."""
