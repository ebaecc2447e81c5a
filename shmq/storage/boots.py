"""This boot of the machine."""

import os


def boot_id() -> bytes:
    """This boot's id."""
    fd = os.open("/proc/sys/kernel/random/boot_id", os.O_RDONLY | os.O_CLOEXEC)  # `open` would make twice the calls
    try:
        return bytes.fromhex(os.read(fd, 64).decode("ascii").replace("-", ""))
    finally:
        os.close(fd)


def boot_tag(boot: bytes | None = None) -> int:
    """The first eight bytes of this boot's id, which is *boot* where that was read already."""
    return int.from_bytes((boot_id() if boot is None else boot)[:8], "little")
