"""Power cuts below a real file system. See README.md."""
