"""How fast 64 bytes can go from one process to another at all, and how fast shmq is beside it."""
