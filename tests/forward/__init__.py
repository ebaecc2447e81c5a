"""Messages that are forwarded by processes that are killed."""
