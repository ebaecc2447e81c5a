"""This boot of the machine."""


def boot_id() -> bytes:
    """This boot's id."""
    with open("/proc/sys/kernel/random/boot_id", "rb", buffering=0) as file:  # as text it would import a codec
        return bytes.fromhex(file.read().decode("ascii").replace("-", ""))


def boot_tag() -> int:
    """The first eight bytes of this boot's id."""
    return int.from_bytes(boot_id()[:8], "little")
