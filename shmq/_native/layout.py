"""
Where each field of a shared page stands, and each number, as the compiler has them: cffi_build/src/layout.h in Python.

Made by cffi_build/table.py; tests/house/ holds it against layout.h. Who reads or writes shared bytes in Python goes by
this table, and by no number of its own.
"""

# ruff: noqa: N801  # the classes are called as the structs are

WORD_STATE_SHIFT = 61
WORD_COUNT_SHIFT = 48
WORD_COUNT_BITS = 13
WORD_OWNER_SHIFT = 27
WORD_OWNER_BITS = 21
WORD_SPAN_BITS = 27
COUNT_MAX = 8191
SPAN_MAX = 134217727
SPAN_UNIT = 8
OWNER_SLOT_BITS = 10
OWNER_GENERATION_BITS = 11
OWNER_SLOTS = 1024
OWNER_GENERATIONS = 2048
OWNER_REPAIR = 2048
ADOPTION_BITS = 40
RECORD_HEADER_BYTES = 40
KEY_MAX = 65535
EXTRA_WORDS_MAX = 65535
DEDUP_FORWARDED = 9223372036854775808
FORMAT_VERSION = 1
BYTE_ORDER_MARK = 16909060
CHUNK_MAGIC = 7741239585810507891
GRAIN_MIN = 64
GRAIN_ZEROS = 64
CHUNK_HEADER_BYTES = 4096
HINT_ORDINAL_BITS = 36
INDEX_ENTRIES = 512
INDEX_BLOCK_BYTES = 8208
INDEX_SHARE = 64
GAP_BYTES = 24
SEAL_BYTES = 8
TAIL_RESERVE = 32
POSITION_MAX = 2147483648
CAPACITY_MIN = 16384
QUEUE_MAGIC = 7310861125194442867
QUEUE_HEADER_BYTES = 56
PAGE_BYTES = 4096
QUEUE_FILE_BYTES = 20480
MARKS_MAGIC = 7742357832085629043
MARKS_COUNT = 8
MARK_BYTES = 64
MARKS_BYTES = 576
CONTROL_MAGIC = 7814436273894811763
COUNTED_SEATS = 49
LATENCY_BUCKETS = 32
LATENCY_SHIFT = 10
LATENCY_EVERY = 64
FINISHED_SHIFT = 2
FINISHED_MASK = 3
CONTROL_BYTES = 69632
SMALL_SLOTS = 256
CONTROL_BYTES_SMALL = 20480
LOCK_BASE = 1099511627776
LOCK_PAPERS = 2199023255553
LOCK_DEDUP = 4398046511104
CHECKPOINT_MAGIC = 8390324180640163955
SNAPSHOT_OLDER = 404
SNAPSHOT_BASE = 4096
SNAPSHOT_BYTES = 12288
CHECKPOINT_BYTES = 28672
RING_MAGIC = 7453010373594933363
RING_VERSION = 2
RING_WINDOW = 65536
RING_WINDOW_MIN = 64
RING_STATE_BITS = 3
RING_COUNT_SHIFT = 3
RING_COUNT_BITS = 8
RING_OWNER_SHIFT = 11
RING_LAP_SHIFT = 32
RING_LAP_BITS = 22
RING_TERM_SHIFT = 54
RING_TERM_BITS = 10
RING_TERM_MAX = 1023
RING_TENANT_DEAD = 2048
RING_HEADER_BYTES = 12288
RING_BUCKETS = 16384
KEY_DELAYED = 32768
GATE_BUSY = 1
GATE_PARKED = 2
GATE_CHANGE = 256
LEASE_UNIT_SHIFT = 24
LEASE_TAG_BITS = 29
CELL_LAP_BITS = 37
ATTEMPTS_BITS = 16
ATTEMPTS_FORWARDED = 65536
ATTEMPTS_CELL_SHIFT = 17
SIDE_ENTRIES = 511
SIDE_DUE_SHIFT = 20
SIDE_BLOCK_BYTES = 32768
SIDE_BLOCKS_MAX = 524288
GROUP_MAGIC = 8103508893133269107
SUBSCRIPTION_MAGIC = 8314337000764041331
WORD_FREE = 0
WORD_CLAIMED = 1
WORD_DONE = 2
WORD_META = 3
WORD_PAD = 4
WORD_SEAL = 5
RECORD_EXPIRY = 1
RECORD_DELAY = 2
RECORD_DEDUP = 4
RECORD_TRACE = 8
RECORD_TRANSACTION = 16
RECORD_CONTENT_TYPE = 32
RECORD_HEADERS = 64
RECORD_UNCHECKED = 32768
CHUNK_GRAINED = 1
META_HEADER = 1
META_INDEX2INDEX = 2
META_INDEX = 3
META_GAP = 4
JOURNAL_SYNC_FAILED = 1
JOURNAL_FINISHED = 2
JOURNAL_LOSES = 4
JOURNAL_FOLLOWER = 16
JOURNAL_FENCED = 32
JOURNAL_PROMOTED = 64
SHUT_DOWN = 1
SHUT_DOWN_AT_ONCE = 2
UNFINISHED = 0
FINISHING = 1
FINISHED = 2
CHECKPOINT_EXCLUSIVE = 1
CHECKPOINT_GROUP = 2
CHECKPOINT_LONE = 3
RING_PENDING = 0
RING_CLAIMED = 1
RING_DONE = 2
RING_RETRY = 3
RING_MOVING = 4
RING_PARKED = 5
RING_FORWARDING = 6
RING_LEASES = 1
RING_ATTEMPTS = 2
RING_SMALL = 4
SIDE_FREE = 0
SIDE_PREPARED = 1
SIDE_LIVE = 2
SIDE_CLAIMED = 3
SIDE_MOVING = 4
SIDE_ENDING = 5
SIDE_FORWARDING = 6


class record:
    """Offsets in struct record, which has 40 bytes."""

    word = 0
    length = 8
    crc = 12
    ordinal = 16
    place = 20
    batch = 22
    time_ns = 24
    type = 32
    flags = 34
    key_length = 36
    extra_words = 38


class field_when:
    """Offsets in struct field_when, which has 24 bytes."""

    wall_ns = 0
    boottime_ns = 8
    boot_tag = 16


class field_dedup:
    """Offsets in struct field_dedup, which has 24 bytes."""

    producer = 0
    sequence = 16


class field_trace:
    """Offsets in struct field_trace, which has 24 bytes."""

    trace_id = 0
    span_id = 16


class field_transaction:
    """Offsets in struct field_transaction, which has 16 bytes."""

    transaction_id = 0


class field_bytes:
    """Offsets in struct field_bytes, which has 8 bytes."""

    length = 0
    reserved = 4


class chunk_header:
    """Offsets in struct chunk_header, which has 4096 bytes."""

    word = 0
    kind = 8
    crc = 12
    magic = 16
    byte_order = 24
    version = 28
    incompatible = 32
    compatible = 36
    queue_id = 40
    chunk_id = 56
    epoch = 64
    capacity = 72
    index_spacing = 80
    index_entries = 84
    index_blocks = 88
    grain = 92
    created_ns = 96
    born_base = 104
    born_sequence = 112
    reserved1 = 120
    hint = 128
    pad0 = 136
    index_hint = 192
    pad1 = 200
    time_max_ns = 256
    pad2 = 264
    resolved_hint = 320
    pad3 = 328


class index2index:
    """Offsets in struct index2index, which has 16 bytes."""

    word = 0
    kind = 8
    blocks = 12


class index_entry:
    """Offsets in struct index_entry, which has 16 bytes."""

    place = 0
    time_max_ns = 8


class index_block:
    """Offsets in struct index_block, which has 16 bytes."""

    word = 0
    kind = 8
    number = 12


class gap:
    """Offsets in struct gap, which has 24 bytes."""

    word = 0
    kind = 8
    crc = 12
    next_index = 16


class queue_file:
    """Offsets in struct queue_file, which has 56 bytes."""

    magic = 0
    byte_order = 8
    version = 12
    incompatible = 16
    compatible = 20
    queue_id = 24
    created_ns = 40
    options_length = 48
    crc = 52


class journal_slot:
    """Offsets in struct journal_slot, which has 104 bytes."""

    sequence = 0
    epoch = 8
    boot_id = 16
    ceiling = 32
    first_live = 40
    first_index = 48
    device = 56
    inode = 64
    max_messages = 72
    max_bytes = 80
    dropped = 88
    flags = 96
    crc = 100


class journal_options:
    """Offsets in struct journal_options, which has 8 bytes."""

    length = 0
    crc = 4


class mark:
    """Offsets in struct mark, which has 64 bytes."""

    index = 0
    reserved = 8


class marks:
    """Offsets in struct marks, which has 576 bytes."""

    magic = 0
    byte_order = 8
    version = 12
    epoch = 16
    reserved = 24
    mark = 64


class watermark_slot:
    """Offsets in struct watermark_slot, which has 48 bytes."""

    sequence = 0
    epoch = 8
    chunk_sequence = 16
    position = 24
    index = 32
    reserved = 40
    crc = 44


class counted:
    """Offsets in struct counted, which has 64 bytes."""

    put_messages = 0
    put_bytes = 8
    taken_messages = 16
    acked = 24
    nacked = 32
    waits = 40
    room_waits = 48
    reserved = 56


class participant:
    """Offsets in struct participant, which has 64 bytes."""

    generation = 0
    pid = 4
    pid_namespace = 8
    start_time = 16
    boot_tag = 24
    since = 32
    buried = 40
    padding = 48
    reserved = 56


class control:
    """Offsets in struct control, which has 69632 bytes."""

    magic = 0
    byte_order = 8
    version = 12
    queue_id = 16
    reserved0 = 32
    bell = 64
    pad0 = 68
    sleepers = 128
    pad1 = 132
    members = 192
    pad2 = 196
    first_live = 256
    pad3 = 264
    newest = 320
    newest_base = 328
    pad4 = 336
    shut_down = 384
    sync_failed = 388
    sync_leader = 392
    durable = 400
    durable_chunk = 408
    sync_bell = 416
    sync_group = 420
    room_bell = 424
    room_waiters = 428
    durable_at = 432
    sync_acks = 440
    finished = 444
    padded = 448
    fenced = 456
    expired = 464
    pads_doubted = 472
    pad6 = 480
    bounds = 512
    max_messages = 520
    max_bytes = 528
    dropped = 536
    reserved1 = 544
    shared = 576
    latency_ns = 640
    pad7 = 648
    latency = 704
    counted = 960
    participants = 4096


class checkpoint:
    """Offsets in struct checkpoint, which has 4096 bytes."""

    magic = 0
    byte_order = 8
    version = 12
    queue_id = 16
    kind = 32
    explicit_ack = 36
    subscribed = 38
    created_ns = 40
    start_index = 48
    name_length = 56
    crc = 60
    name = 64
    pad0 = 128
    head = 192
    handed = 200
    holder = 208
    floor = 216
    pad1 = 224
    cursor_sequence = 256
    cursor_place = 264
    cursor_index = 272
    cursor_check = 280
    pad2 = 288
    term = 320
    pad3 = 328
    dropped = 384
    pad4 = 392
    acks_asked = 448
    acks_synced = 456
    snapshot_synced = 464
    left = 472
    pad5 = 496


class snapshot:
    """Offsets in struct snapshot, which has 12288 bytes."""

    sequence = 0
    epoch = 8
    head = 16
    window = 24
    passed = 32
    parked = 40
    crc = 44
    done = 48
    older = 8240
    buckets = 11472
    pad = 12280


class ring:
    """Offsets in struct ring, which has 12288 bytes."""

    magic = 0
    byte_order = 8
    version = 12
    queue_id = 16
    boot_id = 32
    window = 48
    buckets = 52
    cells = 56
    reserved1 = 60
    term = 64
    pad0 = 72
    returns = 128
    pad1 = 136
    side_blocks = 192
    side_version = 200
    side_hint = 208
    pad2 = 216
    edge = 256
    pad3 = 264
    redelivered = 320
    expired = 328
    moved = 336
    edges = 344
    dropped_to = 352
    retired = 360
    unmoved = 368
    unsure_to = 376
    resting = 384
    reserved2 = 512
    tenants = 4096


class ring_bucket:
    """Offsets in struct ring_bucket, which has 32 bytes."""

    gate = 0
    low = 8
    high = 16
    block = 24


class ring_side:
    """Offsets in struct ring_side, which has 64 bytes."""

    index = 0
    state = 8
    then = 16
    due_ns = 24
    behind = 32
    lease = 40
    bucket = 48
    forwarded = 56


class side_block:
    """Offsets in struct side_block, which has 64 bytes."""

    due = 0
    used = 8
    lowest = 16
    reserved = 24


class group_file:
    """Offsets in struct group_file, which has 32 bytes."""

    magic = 0
    queue_id = 8
    options_length = 24
    crc = 28


class subscription_file:
    """Offsets in struct subscription_file, which has 32 bytes."""

    magic = 0
    queue_id = 8
    length = 24
    crc = 28
