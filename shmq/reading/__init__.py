"""Reading: from message to message, by index or time, as objects or as columns. It changes nothing for anybody."""
