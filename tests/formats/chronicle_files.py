"""
Files of Chronicle Queue, made here byte by byte from the format's page, so that they can be made wrong as well.

What the package writes is tested elsewhere, against this and against Java.
"""

import struct

META, NOT_READY, EOF = 1 << 30, 1 << 31, 0xC0000000
END_MARK = struct.pack("<I", EOF) + b"\xc3EOF"
DAY = 19676
"""2023-11-15, the cycle of 20231115F.cq4."""


def word(number):
    return struct.pack("<I", number)


def document(payload, bits=0, aligned=True):
    """One document: its word, its payload, and what fills up to a multiple of four."""
    return word(len(payload) | bits) + payload + (bytes(-len(payload) % 4) if aligned else b"")


def padded(data, at, modulus):
    """*data*, which begins at *at*, with as much padding as makes a code behind it end on a multiple of *modulus*."""
    missing = -(at + len(data) + 1) % modulus
    return data + (b"\x8f" * missing if missing < 5 else b"\x8e" + struct.pack("<I", missing - 5) + bytes(missing - 5))


def longs(name, at, values, used):
    """The payload at *at* + 4 of a page of the index."""
    head = padded(b"\xb9" + bytes((len(name),)) + name, at + 4, 8)
    return head + b"\x8d" + struct.pack(f"<QQ{len(values)}q", len(values), used, *values)


def header(count=8, spacing=1, written=(0, 0), index2index=200, indexed=0, data_format=b"\xa1\x01"):
    """The first 200 bytes of a file of version 5."""
    indexing = b"\xcaindexCount" + integer(count) + b"\xccindexSpacing" + integer(spacing)
    at = 0x6C
    indexing = padded(indexing + b"\xcbindex2Index", at, 8) + b"\xa7" + struct.pack("<q", index2index)
    indexing = padded(indexing + b"\xc9lastIndex", at, 8) + b"\xa7" + struct.pack("<q", indexed)
    fields = b"\xcdwritePosition\x8e\1\0\0\0\0\x8d" + struct.pack("<QQqQ", 2, 2, *written)
    fields += b"\xc8indexing\xb6\x0cSCQSIndexing\x82" + struct.pack("<I", len(indexing)) + indexing
    fields += b"\xcadataFormat" + data_format
    return document(b"\xb9\x06header\xb6\x08SCQStore\x82" + struct.pack("<I", len(fields)) + fields, META)


def integer(number):
    """A number as Java writes it: in one byte, two, or four."""
    if number < 1 << 8:
        return b"\xa1" + bytes((number,))
    return b"\xa5" + struct.pack("<h", number) if number < 1 << 15 else b"\xa6" + struct.pack("<i", number)


def cq4(payloads, count=8, spacing=1, end=bytes(8), index=True, size=0, meta=()):
    """
    A whole file of version 5, its index as Java writes it; *meta* are {message before which: payload} of users.

    *end* is what stands behind the last message; the file is filled with zeros up to *size*.
    """
    data = bytearray(header(count, spacing))
    pages, root = {}, 0
    if index:
        root = len(data)
        data += document(longs(b"index2index", root, [0] * count, 0), META)
        pages[0] = len(data)
        data += document(longs(b"index", len(data), [0] * count, 0), META)
        slot(data, root, 0, pages[0])
    last, indexed = 0, 0
    for number, payload in enumerate(payloads):
        for extra in dict(meta).get(number, ()):
            data += document(extra, META)
        last = len(data)
        data += document(payload)
        page, at = divmod(number // spacing, count)
        if index and number % spacing == 0 and page < count:
            if page not in pages:
                pages[page] = len(data)
                data += document(longs(b"index", len(data), [0] * count, 0), META)
                slot(data, root, page, pages[page])
            slot(data, pages[page], at, last)
            indexed = number + spacing
    encoded = (last << 32) + len(payloads) - 1 & (1 << 64) - 1 if payloads else 0
    begin = header(count, spacing, (last, encoded), root, indexed)
    data[: len(begin)] = begin
    data += end
    return bytes(data) + bytes(max(0, size - len(data)))


def slots_of(data, page):
    """Where the slots of the page at *page* begin: behind its name, padding, capacity and used."""
    at = page + 6 + data[page + 5]
    at += 1
    while data[at - 1] != 0x8D:
        at += 1 if data[at - 1] == 0x8F else 5 + struct.unpack_from("<I", data, at)[0]
    return at + 16


def slot(data, page, number, value):
    """Fill a slot of the page at *page* of the file *data*."""
    at = slots_of(data, page)
    struct.pack_into("<q", data, at + 8 * number, value)
    used = struct.unpack_from("<Q", data, at - 8)[0]
    struct.pack_into("<Q", data, at - 8, max(used, number + 1))


def table(keys=(), length=86_400_000, pattern=b"yyyyMMdd'F'", epoch=0):
    """A `metadata.cq4t`: how the queue is cut, and *keys*, {name: long}."""
    roll = b"\xc6length\xa6" + struct.pack("<i", length)
    roll += b"\xc6format" + bytes((0xE0 + len(pattern),)) + pattern
    roll += b"\xc5epoch\xa7" + struct.pack("<q", epoch)
    roll = struct.pack("<I", len(roll)) + roll
    inner = b"\xc4roll\xb6\x08SCQSRoll\x82" + roll + b"\xd7deltaCheckpointInterval\xa1\x40\xc8sourceId\xa1\x00"
    outer = b"\xc8wireType\xb6\x08WireType\xecBINARY_LIGHT\xc8metadata\xb6\x07SCQMeta\x82"
    outer += struct.pack("<I", len(inner)) + inner
    data = bytearray(document(b"\xb9\x06header\xb6\x07STStore\x82" + struct.pack("<I", len(outer)) + outer, META))
    for name, value in dict(keys).items():
        data += key(name, value, len(data))
    return bytes(data) + bytes(256)


def key(name, value, at):
    """One key of a table at *at*, a number of eight bytes behind it."""
    name = name.encode()
    return document(padded(b"\xb9" + bytes((len(name),)) + name, at + 4, 8) + b"\xa7" + struct.pack("<q", value))


def version_4(payloads, end=bytes(8), pair=True):
    """A file of version 4: documents follow without a gap, and its header says how the queue is cut."""
    roll = b"\xc6length\xa6\x00\x5c\x26\x05\xc6format\xe8yyyyMMdd\xc5epoch\x00"
    fields = b"\xc8wireType\xb6\x08WireType\xecBINARY_LIGHT"
    at = 0x1B
    if pair:
        fields = padded(fields + b"\xcdwritePosition", at, 16) + b"\x8d" + struct.pack("<QQqq", 2, 2, 0, 0)
    else:
        fields = padded(fields + b"\xcdwritePosition", at, 8) + b"\xa7" + bytes(8)
    fields += b"\xc4roll\xb6\x08SCQSRoll\x82" + struct.pack("<I", len(roll)) + roll
    indexing = b"\xcaindexCount\xa5\x00\x20\xccindexSpacing\x40"
    begin = at + len(fields) + 28
    indexing = padded(indexing + b"\xcbindex2Index", begin, 8) + b"\xa7" + bytes(8)
    indexing = padded(indexing + b"\xc9lastIndex", begin, 8) + b"\xa7" + bytes(8)
    fields += b"\xc8indexing\xb6\x0cSCQSIndexing\x82" + struct.pack("<I", len(indexing)) + indexing
    fields += b"\xc8sourceId\x00"
    first = b"\xb9\x06header\xb6\x08SCQStore\x82" + struct.pack("<I", len(fields)) + fields
    data = document(first, META, aligned=False)
    data += b"".join(document(payload, aligned=False) for payload in payloads)
    data = bytearray(data + end)
    if payloads:
        last = len(data) - len(end) - len(payloads[-1]) - 4
        at = data.index(b"writePosition") + 13
        at += next(n for n in range(8) if data[at + n] in (0x8D, 0xA7)) + 1 + (16 if pair else 0)
        struct.pack_into("<q", data, at, last)
    return bytes(data)
