"""Power cuts, failing calls and full disks: what the real library makes of them. See README.md."""
