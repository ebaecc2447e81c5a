/* layout.h - every shared byte: the one 64-bit word, records, chunks, and the files beside them.
 *
 * docs/format.md says the same in tables; tests/house/ fails when the two disagree. Everything is
 * little-endian, 8-byte aligned and has its place fixed by a static assert below. No pointer, no address,
 * no Python object is ever stored.
 *
 * What is used from the first day is marked plain. What a later part fills in is marked [reserved]: its bytes
 * are planned here and zero until then, so that no file ever needs converting for it. */
#ifndef SHMQ_LAYOUT_H
#define SHMQ_LAYOUT_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "shmq files are little-endian; this processor is not"
#endif

/* ---------------------------------------------------------------- the word
 *
 *  63   61 60        48 47                 27 26                 0
 * +-------+------------+---------------------+--------------------+
 * | state |   count    |        owner        |        span        |
 * +-------+------------+---------------------+--------------------+
 *
 * A word moves only forward: FREE -> CLAIMED -> DONE, or CLAIMED -> PAD when its owner is dead, or FREE -> META,
 * or FREE -> SEAL. Whatever else is in a chunk can be rebuilt from these words. */
typedef uint64_t word_t;

enum word_state {
    WORD_FREE = 0,    /* nothing here yet, and nothing behind it */
    WORD_CLAIMED = 1, /* an owner is writing; nobody passes it */
    WORD_DONE = 2,    /* a whole message */
    WORD_META = 3,    /* the queue's own: header, index2index, index, gap; takes no ordinals */
    WORD_PAD = 4,     /* a region that never became messages; takes its ordinals all the same */
    WORD_SEAL = 5     /* the end of this chunk, for ever; count and span name an adoption, 0 = plain */
};

#define WORD_STATE_SHIFT 61
#define WORD_COUNT_SHIFT 48
#define WORD_COUNT_BITS 13
#define WORD_OWNER_SHIFT 27
#define WORD_OWNER_BITS 21
#define WORD_SPAN_BITS 27

#define COUNT_MAX ((1u << WORD_COUNT_BITS) - 1)          /* messages one claim can take: 8,191 */
#define SPAN_MAX ((1u << WORD_SPAN_BITS) - 1)            /* 8-byte units one region can take: just under 1 GiB */
#define SPAN_UNIT 8u

/* An owner is a participant slot and the slot's generation. Generation 0 is never an owner. */
typedef uint32_t owner_t;
#define OWNER_SLOT_BITS 10
#define OWNER_GENERATION_BITS 11
#define OWNER_SLOTS (1u << OWNER_SLOT_BITS)
#define OWNER_GENERATIONS (1u << OWNER_GENERATION_BITS)
#define OWNER_REPAIR (1u << OWNER_GENERATION_BITS) /* of padding that repair writes: nobody's, and of no bit a SEAL */

static inline word_t word_make(enum word_state state, uint32_t count, owner_t owner, uint32_t span)
{
    return (word_t)state << WORD_STATE_SHIFT | (word_t)(count & COUNT_MAX) << WORD_COUNT_SHIFT
           | (word_t)(owner & ((1u << WORD_OWNER_BITS) - 1)) << WORD_OWNER_SHIFT | (span & SPAN_MAX);
}
static inline uint32_t word_state(word_t word) { return (uint32_t)(word >> WORD_STATE_SHIFT); }
static inline uint32_t word_count(word_t word) { return (uint32_t)(word >> WORD_COUNT_SHIFT) & COUNT_MAX; }
static inline uint32_t word_span(word_t word) { return (uint32_t)word & SPAN_MAX; }
static inline uint64_t word_bytes(word_t word) { return (uint64_t)word_span(word) * SPAN_UNIT; }
static inline owner_t word_owner(word_t word)
{
    return (owner_t)(word >> WORD_OWNER_SHIFT) & ((1u << WORD_OWNER_BITS) - 1);
}
static inline owner_t owner_make(uint32_t slot, uint32_t generation)
{
    return (owner_t)(slot << OWNER_GENERATION_BITS | generation);
}
static inline uint32_t owner_slot(owner_t owner) { return owner >> OWNER_GENERATION_BITS; }
static inline uint32_t owner_generation(owner_t owner) { return owner & (OWNER_GENERATIONS - 1); }

/* A SEAL that adopts keeps the 40-bit id of its manifest where count and span would be. */
#define ADOPTION_BITS 40
static inline uint64_t word_adoption(word_t word) { return (uint64_t)word_count(word) << WORD_SPAN_BITS | word_span(word); }
static inline word_t word_seal(uint64_t adoption)
{
    return word_make(WORD_SEAL, (uint32_t)(adoption >> WORD_SPAN_BITS), 0, (uint32_t)(adoption & SPAN_MAX));
}

/* ---------------------------------------------------------------- a message
 *
 * word | fixed header | optional fields that flags announce, in the order of their bits | key, padded to 8 |
 * payload, padded to 8. The payload begins on an 8-byte boundary. The CRC covers, in this order: the chunk's epoch
 * and id, position, ordinal, length, and every byte from `ordinal` to the end; never the word. */
struct record {
    word_t word;
    uint32_t length;      /* bytes from the word to the last byte of the payload; the span is this, rounded up */
    uint32_t crc;         /* CRC-32C; 0 and RECORD_UNCHECKED in flags when the queue keeps no checksums */
    uint32_t ordinal;     /* in this chunk: index = base + ordinal */
    uint16_t place;       /* in its batch, from 0 */
    uint16_t batch;       /* messages in its batch, 1 .. 8191; a cut never falls inside one */
    int64_t time_ns;      /* wall clock, since 1970; the producer's or the user's */
    uint16_t type;        /* the user's */
    uint16_t flags;       /* enum record_flag */
    uint16_t key_length;  /* bytes */
    uint16_t extra_words; /* optional fields, in 8-byte units */
};

#define RECORD_HEADER_BYTES 40u
#define KEY_MAX UINT16_MAX
#define EXTRA_WORDS_MAX UINT16_MAX

enum record_flag {
    RECORD_EXPIRY = 1 << 0,       /* struct field_when: dead after this moment */
    RECORD_DELAY = 1 << 1,        /* struct field_when: not before this moment */
    RECORD_DEDUP = 1 << 2,        /* struct field_dedup: producer and sequence */
    RECORD_TRACE = 1 << 3,        /* struct field_trace: W3C trace and span id            [reserved] */
    RECORD_TRANSACTION = 1 << 4,  /* struct field_transaction                             [reserved] */
    RECORD_CONTENT_TYPE = 1 << 5, /* struct field_bytes: a media type                     [reserved] */
    RECORD_HEADERS = 1 << 6,      /* struct field_bytes: a msgpack map of text to anything */
    RECORD_UNCHECKED = 1 << 15    /* the queue was made with checksum=False */
};

struct field_when { /* within the boot it names, boottime decides; after a reboot, the wall clock */
    int64_t wall_ns;
    int64_t boottime_ns;
    uint64_t boot_tag; /* first 8 bytes of the boot id */
};
#define DEDUP_FORWARDED (UINT64_C(1) << 63) /* of a sequence: forwarded from a group; producer is that, sequence the index there */
struct field_dedup {
    uint8_t producer[16];     /* BLAKE2b of its name, of 16 bytes */
    uint64_t sequence;        /* its own count; the same in every message of a batch */
};
struct field_trace {
    uint8_t trace_id[16];
    uint8_t span_id[8];
};
struct field_transaction {
    uint8_t transaction_id[16];
};
struct field_bytes { /* then the bytes, padded to 8 */
    uint32_t length;
    uint32_t reserved;
};

/* ---------------------------------------------------------------- a chunk
 *
 * <base index, 16 hex>-<sequence, 8 hex>.chunk: META header, META index2index, then records, META index blocks
 * among them, at last SEAL. All bytes behind the last claimed region are zero. Its base index and its sequence are
 * taken from its name, so that adoption changes no byte of it.
 *
 * Large messages get chunks with a grain: regions begin at multiples of it and end there, with a PAD behind the last
 * message; so behind the last region only the first bytes of each grain need to be zero, and a reused file is
 * not zeroed whole. No index block could be claimed there, so they stand behind index2index from the beginning. */
#define FORMAT_VERSION 1u
#define BYTE_ORDER_MARK 0x01020304u
#define CHUNK_MAGIC 0x6b6e6863716d6873u /* "shmqchnk" */

enum chunk_feature { CHUNK_GRAINED = 1 << 0 }; /* an incompatible one: who does not know it would claim between grains */
#define GRAIN_MIN 64u
#define GRAIN_ZEROS 64u /* bytes at the beginning of each grain behind the last region that are zero */

enum meta_kind { META_HEADER = 1, META_INDEX2INDEX = 2, META_INDEX = 3, META_GAP = 4 };

struct chunk_header {
    word_t word;
    uint32_t kind;           /* META_HEADER */
    uint32_t crc;            /* CRC-32C of bytes 16 .. 127 */
    uint64_t magic;
    uint32_t byte_order;
    uint32_t version;
    uint32_t incompatible;   /* feature bits: a reader that does not know one refuses the file */
    uint32_t compatible;     /* feature bits: a reader that does not know one may read on */
    uint8_t queue_id[16];
    uint64_t chunk_id;       /* random, never 0 */
    uint64_t epoch;          /* one for life; grows with every recovery that cut something */
    uint64_t capacity;       /* bytes of the file; the SEAL fits below it */
    uint32_t index_spacing;  /* an index entry about every so many messages */
    uint32_t index_entries;  /* entries in one index block */
    uint32_t index_blocks;   /* slots in index2index */
    uint32_t grain;          /* CHUNK_GRAINED: every region begins at a multiple of so many bytes; else 0 */
    int64_t created_ns;
    uint64_t born_base;      /* base and sequence under which it was linked; UINT64_MAX when it was staged and */
    uint64_t born_sequence;  /* adopted: then the manifest says where it belongs */
    uint8_t reserved1[8];
    /* below: hints, never checksummed, each in a cache line of its own; zeroed after an unclean boot */
    uint64_t hint;           /* end of some claimed region: position in units << 36 | ordinal; moved by CAS-max */
    uint8_t pad0[56];
    uint64_t index_hint;     /* index entries known to be written                              [reserved] */
    uint8_t pad1[56];
    int64_t time_max_ns;     /* running maximum of time_ns over resolved records              [reserved] */
    uint8_t pad2[56];
    uint64_t resolved_hint;  /* packed like hint: everything before it is resolved */
    uint8_t pad3[4096 - 328];
};
#define CHUNK_HEADER_BYTES 4096u
#define HINT_ORDINAL_BITS 36

static inline uint64_t hint_make(uint64_t position, uint64_t ordinal)
{
    return position / SPAN_UNIT << HINT_ORDINAL_BITS | ordinal;
}
static inline uint64_t hint_position(uint64_t hint) { return (hint >> HINT_ORDINAL_BITS) * SPAN_UNIT; }
static inline uint64_t hint_ordinal(uint64_t hint) { return hint & ((UINT64_C(1) << HINT_ORDINAL_BITS) - 1); }

struct index2index { /* then index_blocks positions of index blocks; 0 = not made yet */
    word_t word;
    uint32_t kind;
    uint32_t blocks;
};

#define INDEX_ENTRIES 512u
struct index_entry { /* entry j: the last word a walk visits whose ordinal is <= spacing * j */
    uint64_t place;       /* packed like hint; 0 = not written yet */
    int64_t time_max_ns;  /* running maximum of time_ns up to and with this word */
};
struct index_block { /* then INDEX_ENTRIES entries; claimed whole by one CAS FREE -> META, so it begins as zeros */
    word_t word;
    uint32_t kind;        /* 0 until its maker has written it; nobody needs it to skip the block */
    uint32_t number;      /* which slot of index2index points here */
};

#define INDEX_BLOCK_BYTES (sizeof(struct index_block) + INDEX_ENTRIES * sizeof(struct index_entry))
#define INDEX_SHARE 64u /* of a chunk with a grain, index blocks take no more than such a part */

struct gap { /* written by recovery only, before the SEAL of a cut chunk */
    word_t word;
    uint32_t kind;
    uint32_t crc;         /* CRC-32C of epoch, chunk id, position and next_index */
    uint64_t next_index;  /* the base of the next chunk, above every index this one could have issued */
};
#define GAP_BYTES 24u
#define SEAL_BYTES 8u
#define TAIL_RESERVE (GAP_BYTES + SEAL_BYTES) /* no claim may reach into the last so many bytes of a chunk */

#define POSITION_MAX (UINT64_C(1) << 31)      /* positions are packed into 28 bits of 8-byte units */
#define CAPACITY_MIN 16384u

/* ---------------------------------------------------------------- queue.shmq: what the queue is
 *
 * Page 0 never changes. Pages 1 and 2, and 3 and 4, are pairs of slots: a writer overwrites the one that is not the
 * newest valid one, so a torn write loses nothing. */
#define QUEUE_MAGIC 0x65756575716d6873u /* "shmqueue" */
struct queue_file {
    uint64_t magic;
    uint32_t byte_order;
    uint32_t version;
    uint32_t incompatible;
    uint32_t compatible;
    uint8_t queue_id[16];
    int64_t created_ns;
    uint32_t options_length; /* bytes of JSON that follow */
    uint32_t crc;            /* CRC-32C of the page, this field as zero */
};
#define QUEUE_HEADER_BYTES 56u
#define PAGE_BYTES 4096u
#define QUEUE_FILE_BYTES (5u * PAGE_BYTES)

struct journal_slot { /* pages 1 and 2 */
    uint64_t sequence;       /* the larger valid one counts */
    uint64_t epoch;
    uint8_t boot_id[16];     /* the boot in which the queue was last open */
    uint64_t ceiling;        /* no index at or above it has been issued; synced a chunk ahead */
    uint64_t first_live;     /* sequence of the first chunk that belongs to the log */
    uint64_t first_index;    /* and its base */
    uint64_t device;         /* of control.shmq, to tell a copied directory */
    uint64_t inode;
    uint64_t max_messages;   /* 0 = none */
    uint64_t max_bytes;      /* 0 = none */
    uint64_t dropped;        /* what lies before this index was dropped or purged, as far as it was written down */
    uint32_t flags;          /* enum journal_flag */
    uint32_t crc;            /* CRC-32C of all before it */
};
/* Behind it in its page: the options that were changed since the queue was made, as JSON, which follows. A length of 0 is
 * none. It has a checksum of its own, so that a slot of before is a valid one. */
struct journal_options {
    uint32_t length;
    uint32_t crc;            /* CRC-32C of the length and the JSON */
};
enum journal_flag {
    JOURNAL_SYNC_FAILED = 1 << 0,
    JOURNAL_FINISHED = 1 << 1, /* the stream has ended: nobody puts, until somebody opens it for writing again */
    JOURNAL_LOSES = 1 << 2, /* retention was changed to one by age or bytes: what has gone need not have been finished */
    /* Of a queue that is replicated: */
    JOURNAL_FOLLOWER = 1 << 4, /* it follows another one: nobody puts or consumes here */
    JOURNAL_FENCED = 1 << 5,   /* a follower of it was promoted: nobody puts here any more */
    JOURNAL_PROMOTED = 1 << 6  /* it was a follower, and is none any more */
};

/* How far each follower's disk agrees, in a file of its own: what a put with `replicated` waits for. Written by whoever
 * replicates to that follower, and only ever larger; it means nothing in another epoch than its own, so nobody syncs it. */
#define MARKS_MAGIC 0x6b72616d716d6873u /* "shmqmark" */
#define MARKS_COUNT 8u
#define MARK_BYTES 64u
struct mark {
    uint64_t index;          /* all before it is on the disk of that follower */
    uint8_t reserved[56];
};
struct marks {
    uint64_t magic;
    uint32_t byte_order;
    uint32_t version;
    uint64_t epoch;          /* the queue's: 0, or another one, and no mark counts */
    uint8_t reserved[40];
    struct mark mark[MARKS_COUNT]; /* in the order of the list of followers */
};
#define MARKS_BYTES 576u

struct watermark_slot { /* pages 3 and 4: below this, the disk is known to agree */
    uint64_t sequence;       /* the larger valid one counts; 0 is not valid */
    uint64_t epoch;
    uint64_t chunk_sequence;
    uint64_t position;       /* never inside a batch */
    uint64_t index;
    uint32_t reserved;
    uint32_t crc;
};

/* ---------------------------------------------------------------- control.shmq: who is here
 *
 * Nothing here is believed about data: it wakes, counts and hints. It means nothing after a reboot. */
#define CONTROL_MAGIC 0x6c727463716d6873u /* "shmqctrl" */
/* What was done here in this boot, for whoever watches (docs/decisions/0085). The sum of all of them is told; each only
 * rises, whoever sits in the seat. */
struct counted {
    uint64_t put_messages;
    uint64_t put_bytes;      /* of their payloads */
    uint64_t taken_messages; /* handed out by a consumer name, a second time too */
    uint64_t acked;          /* acknowledged, where that is done one by one */
    uint64_t nacked;         /* given back by their holders */
    uint64_t waits;          /* how often somebody slept until something was put */
    uint64_t room_waits;     /* how often somebody slept until there was room */
    uint64_t reserved;
};
#define COUNTED_SEATS 49u    /* seats with a line of their own, which only their tenant writes */
#define LATENCY_BUCKETS 32u  /* of 2^LATENCY_SHIFT ns, and each twice the one before; the last has all that is longer */
#define LATENCY_SHIFT 10
#define LATENCY_EVERY 64u    /* of so many messages one is timed */
struct participant {
    uint32_t generation;     /* of the last tenant; 0 = never used */
    uint32_t pid;            /* as the tenant sees itself */
    uint64_t pid_namespace;  /* inode of /proc/self/ns/pid */
    uint64_t start_time;     /* field 22 of /proc/self/stat */
    uint64_t boot_tag;       /* first 8 bytes of the boot id */
    uint64_t since;          /* chunk sequence: no claim of this tenant, or of one before it, is open in a chunk before it */
    uint64_t buried;         /* chunk sequence up to which a predecessor is known to be padded  [reserved] */
    uint64_t padding;        /* the tenant's generation << 32 | how many of it are between padding and counting it */
    uint8_t reserved[8];
};
/* Both last in memory: a shutdown until all have left, a finish as the journal says. */
enum shut_down { SHUT_DOWN = 1 /* gets drain */, SHUT_DOWN_AT_ONCE = 2 /* gets raise as well */ };
enum finished {
    UNFINISHED = 0,
    FINISHING = 1, /* puts wait; the journal says what becomes of it: whoever finds nobody at it looks there */
    FINISHED = 2   /* puts raise, gets drain */
};
#define FINISHED_SHIFT 2
#define FINISHED_MASK 3u
struct control {
    uint64_t magic;
    uint32_t byte_order;
    uint32_t version;
    uint8_t queue_id[16];
    uint8_t reserved0[32];
    uint32_t bell;           /* futex: bumped whenever sleepers must look again */
    uint8_t pad0[60];
    uint32_t sleepers;       /* 1 = somebody may be asleep on the bell */
    uint8_t pad1[60];
    uint32_t members;        /* bumped when somebody joins: watchers look again */
    uint8_t pad2[60];
    uint64_t first_live;     /* chunk sequence; rises before anything is unlinked */
    uint8_t pad3[56];
    uint64_t newest;         /* sequence + 1 of the last chunk that was entered to put; 0 = none yet */
    uint64_t newest_base;    /* its base: a hint where to look for it, believed only if there is a chunk of that name */
    uint8_t pad4[48];
    uint32_t shut_down;      /* enum shut_down: puts raise */
    uint32_t sync_failed;    /* 1: a sync failed; nobody moves the watermark before a verified reopening */
    uint64_t sync_leader;    /* owner of the running group commit; 0 = none runs */
    uint64_t durable;        /* every index below it is on the disk, as far as this boot knows */
    uint64_t durable_chunk;  /* sequence + 1 of the chunk where the next sync begins, whose name is on the disk; 0 = none */
    uint32_t sync_bell;      /* futex: bumped at the end of each group commit */
    uint32_t sync_group;     /* low half of the index that the running group commit will reach */
    uint32_t room_bell;      /* futex: bumped whenever blocked producers must look again */
    uint32_t room_waiters;   /* 1 = somebody may be asleep on the room bell */
    uint64_t durable_at;     /* lower half: a position before which all is on the disk; upper: of which chunk's sequence */
    uint32_t sync_acks;      /* 1 = somebody waits for acknowledgements to be on the disk: such a one leads next */
    uint32_t finished;       /* enum finished in the lowest bits; above them, how often it was */
    uint64_t padded;         /* ordinals that ended as PAD */
    uint64_t fenced;         /* commits that came too late */
    uint64_t expired;        /*                                                                [reserved] */
    uint64_t pads_doubted;   /* 0 = `padded` is right, but for those who are between; else whoever asks counts anew */
    uint8_t pad6[32];
    uint64_t bounds;         /* 0 = never had bounds; moved on whenever a limit computed before may be too large */
    uint64_t max_messages;   /* as the journal has it, for all to see at once */
    uint64_t max_bytes;
    uint64_t dropped;        /* what lies before this index was dropped for room, or purged; only rises */
    uint8_t reserved1[32];
    struct counted shared;   /* by whoever has no line of its own, or does not have the interpreter's lock: atomically */
    uint64_t latency_ns;     /* sum of what is in the buckets */
    uint8_t pad7[56];
    uint64_t latency[LATENCY_BUCKETS]; /* messages that were timed, by how old they were when they were first handed out */
    struct counted counted[COUNTED_SEATS]; /* by participant slot */
    struct participant participants[OWNER_SLOTS];
};
#define CONTROL_BYTES (4096u + OWNER_SLOTS * 64u)
#define SMALL_SLOTS 256u      /* an anonymous queue has so many, and a control page that ends behind them */
#define CONTROL_BYTES_SMALL (4096u + SMALL_SLOTS * 64u)
#define LOCK_BASE (UINT64_C(1) << 40) /* slot s is held by an OFD lock on byte LOCK_BASE + s of control.shmq */
#define LOCK_PAPERS ((UINT64_C(1) << 41) + 1) /* likewise: held by whoever writes the watermark or a snapshot */
#define LOCK_DEDUP (UINT64_C(1) << 42) /* likewise, and 40 bits of the producer: held by whoever puts or adopts as it */

/* ---------------------------------------------------------------- consumers/NAME.checkpoint */
#define CHECKPOINT_MAGIC 0x74706b63716d6873u /* "shmqckpt" */
enum checkpoint_kind { CHECKPOINT_EXCLUSIVE = 1, CHECKPOINT_GROUP = 2, CHECKPOINT_LONE = 3 };
struct checkpoint {
    uint64_t magic;
    uint32_t byte_order;
    uint32_t version;
    uint8_t queue_id[16];
    uint32_t kind;
    uint16_t explicit_ack;   /* 0 = auto */
    uint16_t subscribed;     /* 1 = there is a NAME.subscription, which says more */
    int64_t created_ns;
    uint64_t start_index;
    uint32_t name_length;
    uint32_t crc;            /* CRC-32C of bytes 0 .. 127, this field as zero */
    uint8_t name[64];
    uint8_t pad0[64];
    uint64_t head;           /* live: the next index this name has not finished */
    uint64_t handed;         /* live: one more than the largest index ever handed out; with a ring, about that */
    uint64_t holder;         /* owner that holds the name, to be named in Busy; the lock decides, not this */
    uint64_t floor;          /* of a group: nothing below it is needed any more, parked messages included */
    uint8_t pad1[32];
    uint64_t cursor_sequence; /* a hint where `cursor_index` lies; believed only if its check agrees */
    uint64_t cursor_place;    /* packed like hint */
    uint64_t cursor_index;
    uint64_t cursor_check;
    uint8_t pad2[32];
    uint64_t term;            /*                                                               [reserved] */
    uint8_t pad3[56];
    uint64_t dropped;         /* live: messages that were dropped before this name came to them */
    uint8_t pad4[56];
    uint64_t acks_asked;      /* live: how many acknowledgements were asked to be on the disk, in this boot */
    uint64_t acks_synced;     /* live: how many of those are */
    uint64_t snapshot_synced; /* live: sequence of the newest snapshot known to be on the disk; 0 = not known */
    struct field_when left;   /* of a name that expires: when nobody had it any more; zeros = somebody may */
    uint8_t pad5[4096 - 496];
};
#define SNAPSHOT_OLDER 404u
struct snapshot { /* two of them, at SNAPSHOT_BASE and one SNAPSHOT_BYTES later: truth after a power cut */
    uint64_t sequence;
    uint64_t epoch;
    uint64_t head;
    uint64_t window;         /* messages the bitmap speaks of, from head on */
    uint64_t passed;         /* where the ring's head was: what is not done before it was parked */
    uint32_t parked;         /* how many are named below */
    uint32_t crc;            /* CRC-32C of all of it, this field as zero */
    uint8_t done[8192];
    uint64_t older[SNAPSHOT_OLDER];     /* parked messages before head, ascending */
    uint16_t buckets[SNAPSHOT_OLDER];   /* of their keys, in a group with order; 0 = it comes in none */
    uint64_t pad;
};
#define SNAPSHOT_BASE 4096u
#define SNAPSHOT_BYTES 12288u
#define CHECKPOINT_BYTES (SNAPSHOT_BASE + 2u * SNAPSHOT_BYTES)

/* ---------------------------------------------------------------- consumers/NAME.ring: a group at work
 *
 *  63  54 53      32 31            11 10     3 2    0
 * +------+----------+----------------+--------+------+
 * | term |   lap    |     owner      | count  |state |    one word a message, slot = index mod window
 * +------+----------+----------------+--------+------+    PARKED keeps its side entry's id in owner and count
 *
 * Header, tenants, the window's words, its leases and its attempts if the group needs them, and then blocks of the side
 * table, as many as side_blocks says. True for the deaths of processes only: at a new boot it is cleared, and the checkpoint's snapshots
 * say what was done. A word of another term or lap says nothing of a message but that nobody has it: below the head it is
 * finished, and else PENDING. Laps are counted modulo 2^22, so they are compared for being the same and never for which is
 * later; whoever has the head jump rewrites the words that would seem to be of the laps it jumps to. Terms begin at 1: no
 * word is of term 0, and a ring that says it is in none of the terms there are speaks of no boot. */
#define RING_MAGIC 0x676e6972716d6873u /* "shmqring" */
#define RING_VERSION 2u /* 2: FORWARDING, and a bit for what may have been put elsewhere */
enum ring_state {
    RING_PENDING = 0, /* nobody has it */
    RING_CLAIMED = 1, /* its owner has it */
    RING_DONE = 2,    /* finished, for ever */
    RING_RETRY = 3,   /* came back: whoever comes first has it */
    RING_MOVING = 4,  /* its owner (0 = none any more) moves it to another queue */
    RING_PARKED = 5,  /* its side entry says more */
    RING_FORWARDING = 6 /* its owner puts it into other queues: it ends that, or its death does; no lease, and nobody else */
};
enum ring_cells {
    RING_LEASES = 1 << 0,  /* what is handed out may be taken back by time */
    RING_ATTEMPTS = 1 << 1, /* what is handed out may come again */
    RING_SMALL = 1 << 2    /* of a small queue: tenants for SMALL_SLOTS participants alone, and perhaps no side table yet */
};
#define RING_WINDOW 65536u /* messages a group may have in flight; also the largest window */
#define RING_WINDOW_MIN 64u
#define RING_STATE_BITS 3
#define RING_COUNT_SHIFT 3
#define RING_COUNT_BITS 8
#define RING_OWNER_SHIFT 11
#define RING_LAP_SHIFT 32
#define RING_LAP_BITS 22
#define RING_TERM_SHIFT 54
#define RING_TERM_BITS 10
#define RING_TERM_MAX ((1u << RING_TERM_BITS) - 1)

struct ring {
    uint64_t magic;
    uint32_t byte_order;
    uint32_t version;
    uint8_t queue_id[16];
    uint8_t boot_id[16];     /* the boot it speaks of */
    uint32_t window;         /* messages; a power of two */
    uint32_t buckets;        /* of keys, whose messages come in order; a power of two, 0 = in no order */
    uint32_t cells;          /* enum ring_cells: which there are besides the words */
    uint32_t reserved1;
    uint64_t term;
    uint8_t pad0[56];
    uint64_t returns;        /* bumped after a message came back: whoever finds another number looks for it */
    uint8_t pad1[56];
    uint64_t side_blocks;    /* blocks of the side table; only grows */
    uint64_t side_version;   /* bumped after an entry became LIVE */
    uint64_t side_hint;      /* where to look for a free entry */
    uint8_t pad2[40];
    uint64_t edge;           /* so many messages of the window are finished, or the head moves: then ring; 0 = nobody waits */
    uint8_t pad3[56];
    uint64_t redelivered;    /* came back from the dead, or by a lease that ended */
    uint64_t expired;        /* were too old when their turn came */
    uint64_t moved;          /* went to another queue */
    uint64_t edges;          /* how often somebody found the window full */
    uint64_t dropped_to;     /* what lies before it is finished when it comes back, or is come to; only rises */
    uint64_t retired;        /* were taken by retention before anybody finished them */
    uint64_t unmoved;        /* could not be moved to another queue when it was tried, and are tried again */
    uint64_t unsure_to;      /* of what lies before it nobody knows whether it was put elsewhere; UINT64_MAX = set it to the end */
    uint64_t resting[OWNER_SLOTS / 64]; /* by participant slot, a bit: holds messages, and waits for the end of the stream */
    uint8_t reserved2[4096 - 512];
    uint64_t tenants[OWNER_SLOTS]; /* by participant slot: generation of whoever may hold messages here, RING_TENANT_DEAD
                                    * once another sat down there; 0 = nobody */
};
#define RING_TENANT_DEAD (UINT64_C(1) << OWNER_GENERATION_BITS)
#define RING_HEADER_BYTES 12288u /* of one that is not RING_SMALL; then the words, and as `cells` says the leases and the attempts: window * 8 bytes each; if
                                  * there are buckets, the keys (the same), the buckets, a bit for each of them; the side table */

/* Order by key: a bucket is IDLE or BUSY, and IDLE says that every message of its keys that a walker has met is finished.
 * A cell of the keys is as the attempts: term and lap of its message, and below them its bucket, plus one. */
#define RING_BUCKETS 16384u
#define KEY_DELAYED (UINT64_C(1) << 15) /* it has a time, which only walkers know */
struct ring_bucket {
    uint64_t gate;           /* bit 0: BUSY; bit 1: some of them may be parked; from bit 8 on, changes */
    uint64_t low;            /* every message of it before this index is finished */
    uint64_t high;           /* one more than the largest index that a walker has met */
    uint64_t block;          /* a hint: the side block where its lowest was found last */
};
#define GATE_BUSY 1u
#define GATE_PARKED 2u
#define GATE_CHANGE 256u

/* A lease: when it ends, in units of 2^24 ns since boot, and the low half of the ring word it belongs to, without its
 * state. One that belongs to another word says nothing. */
#define LEASE_UNIT_SHIFT 24
#define LEASE_TAG_BITS 29

/* Attempts: the term (10 bits) and the lap (37 bits) they are of, whether somebody may have put it into other queues (1 bit),
 * and how often it was handed out. Not every lap writes every cell of these and of the keys, so their laps are wide enough
 * never to come again. */
#define CELL_LAP_BITS 37
#define ATTEMPTS_BITS 16
#define ATTEMPTS_FORWARDED (UINT64_C(1) << ATTEMPTS_BITS)
#define ATTEMPTS_CELL_SHIFT 17

/*  63     48 47      32 31            11 10     3 2    0
 * +---------+----------+----------------+--------+------+
 * | version | attempts |     owner      | count  |state |   `state` of a side entry
 * +---------+----------+----------------+--------+------+ */
enum side_state {
    SIDE_FREE = 0,
    SIDE_PREPARED = 1, /* its owner is about to park a message here; `then` is what it becomes */
    SIDE_LIVE = 2,     /* a parked message that nobody has */
    SIDE_CLAIMED = 3,  /* one that its owner has */
    SIDE_MOVING = 4,   /* one that its owner (0 = none any more) moves to another queue */
    SIDE_ENDING = 5,   /* finished; on its way to FREE */
    SIDE_FORWARDING = 6 /* as RING_FORWARDING */
};
struct ring_side { /* a parked message */
    uint64_t index;          /* plus one; 0 = none */
    uint64_t state;
    uint64_t then;           /* what a PREPARED one becomes */
    uint64_t due_ns;         /* since boot: not before */
    uint64_t behind;         /* not before messages up to here were looked at, or nothing else is there */
    uint64_t lease;          /* as in the window */
    uint64_t bucket;         /* of its key, plus one; 0 = it comes in no order */
    uint64_t forwarded;      /* 1 = somebody may have put it into other queues */
};
#define SIDE_ENTRIES 511u    /* in a block, behind its header */
struct side_block {          /* then SIDE_ENTRIES entries */
    uint64_t due;            /* a bound: nothing in it is due before; milliseconds << 20 | changes */
    uint64_t used;           /* entries that are not FREE, about */
    uint64_t lowest;         /* a bound: no message in it has a smaller index; index << 20 | changes */
    uint64_t reserved[5];
};
#define SIDE_DUE_SHIFT 20
#define SIDE_BLOCK_BYTES 32768u
#define SIDE_BLOCKS_MAX 524288u

/* ---------------------------------------------------------------- consumers/NAME.group: what a group was made with */
#define GROUP_MAGIC 0x70757267716d6873u /* "shmqgrup" */
struct group_file { /* then options_length bytes of JSON */
    uint64_t magic;
    uint8_t queue_id[16];
    uint32_t options_length;
    uint32_t crc;            /* CRC-32C of the JSON */
};

/* ---------------------------------------------------------------- consumers/NAME.subscription: what else it was made with */
#define SUBSCRIPTION_MAGIC 0x73627573716d6873u /* "shmqsubs" */
struct subscription_file { /* then length bytes of JSON */
    uint64_t magic;
    uint8_t queue_id[16];
    uint32_t length;
    uint32_t crc;            /* CRC-32C of the JSON */
};

#define AT(type, field, offset) static_assert(offsetof(struct type, field) == (offset), #type "." #field)
#define SIZE(type, bytes) static_assert(sizeof(struct type) == (bytes), "sizeof " #type)
AT(record, length, 8); AT(record, crc, 12); AT(record, ordinal, 16); AT(record, place, 20); AT(record, batch, 22);
AT(record, time_ns, 24); AT(record, type, 32); AT(record, flags, 34); AT(record, key_length, 36);
AT(record, extra_words, 38); SIZE(record, RECORD_HEADER_BYTES);
SIZE(field_when, 24); SIZE(field_dedup, 24); SIZE(field_trace, 24); SIZE(field_transaction, 16); SIZE(field_bytes, 8);
AT(chunk_header, kind, 8); AT(chunk_header, crc, 12); AT(chunk_header, magic, 16); AT(chunk_header, byte_order, 24);
AT(chunk_header, version, 28); AT(chunk_header, incompatible, 32); AT(chunk_header, compatible, 36);
AT(chunk_header, queue_id, 40); AT(chunk_header, chunk_id, 56); AT(chunk_header, epoch, 64);
AT(chunk_header, capacity, 72); AT(chunk_header, index_spacing, 80); AT(chunk_header, index_entries, 84);
AT(chunk_header, index_blocks, 88); AT(chunk_header, grain, 92); AT(chunk_header, created_ns, 96); AT(chunk_header, born_base, 104);
AT(chunk_header, born_sequence, 112); AT(chunk_header, hint, 128);
AT(chunk_header, index_hint, 192); AT(chunk_header, time_max_ns, 256); AT(chunk_header, resolved_hint, 320);
SIZE(chunk_header, CHUNK_HEADER_BYTES);
AT(index2index, kind, 8); AT(index2index, blocks, 12); SIZE(index2index, 16);
AT(index_entry, place, 0); AT(index_entry, time_max_ns, 8); SIZE(index_entry, 16);
AT(index_block, kind, 8); AT(index_block, number, 12); SIZE(index_block, 16);
AT(gap, kind, 8); AT(gap, crc, 12); AT(gap, next_index, 16); SIZE(gap, GAP_BYTES);
AT(queue_file, byte_order, 8); AT(queue_file, version, 12); AT(queue_file, incompatible, 16);
AT(queue_file, compatible, 20); AT(queue_file, queue_id, 24); AT(queue_file, created_ns, 40);
AT(queue_file, options_length, 48); AT(queue_file, crc, 52); SIZE(queue_file, QUEUE_HEADER_BYTES);
AT(journal_slot, sequence, 0); AT(journal_slot, epoch, 8); AT(journal_slot, boot_id, 16);
AT(journal_slot, ceiling, 32); AT(journal_slot, first_live, 40); AT(journal_slot, first_index, 48);
AT(journal_slot, device, 56); AT(journal_slot, inode, 64); AT(journal_slot, max_messages, 72);
AT(journal_slot, max_bytes, 80); AT(journal_slot, dropped, 88); AT(journal_slot, flags, 96); AT(journal_slot, crc, 100);
SIZE(journal_slot, 104);
AT(journal_options, length, 0); AT(journal_options, crc, 4); SIZE(journal_options, 8);
AT(mark, index, 0); SIZE(mark, MARK_BYTES);
AT(marks, byte_order, 8); AT(marks, version, 12); AT(marks, epoch, 16); AT(marks, mark, 64); SIZE(marks, MARKS_BYTES);
AT(watermark_slot, epoch, 8); AT(watermark_slot, chunk_sequence, 16); AT(watermark_slot, position, 24);
AT(watermark_slot, index, 32); AT(watermark_slot, crc, 44); SIZE(watermark_slot, 48);
AT(counted, taken_messages, 16); AT(counted, acked, 24); AT(counted, waits, 40); SIZE(counted, 64);
AT(participant, pid, 4); AT(participant, pid_namespace, 8); AT(participant, start_time, 16);
AT(participant, boot_tag, 24); AT(participant, since, 32); AT(participant, buried, 40); AT(participant, padding, 48); SIZE(participant, 64);
AT(control, byte_order, 8); AT(control, version, 12); AT(control, queue_id, 16); AT(control, bell, 64);
AT(control, sleepers, 128); AT(control, members, 192); AT(control, first_live, 256); AT(control, newest, 320);
AT(control, shut_down, 384); AT(control, sync_failed, 388); AT(control, sync_leader, 392);
AT(control, durable, 400); AT(control, durable_chunk, 408); AT(control, sync_bell, 416); AT(control, sync_group, 420);
AT(control, durable_at, 432); AT(control, sync_acks, 440); AT(control, finished, 444);
AT(control, room_bell, 424); AT(control, room_waiters, 428); AT(control, bounds, 512); AT(control, max_messages, 520);
AT(control, max_bytes, 528); AT(control, dropped, 536); AT(control, padded, 448); AT(control, fenced, 456); AT(control, expired, 464); AT(control, pads_doubted, 472); AT(control, shared, 576); AT(control, latency_ns, 640); AT(control, latency, 704); AT(control, counted, 960);
AT(control, participants, 4096);
SIZE(control, CONTROL_BYTES);
AT(checkpoint, byte_order, 8); AT(checkpoint, version, 12); AT(checkpoint, queue_id, 16); AT(checkpoint, kind, 32);
AT(checkpoint, explicit_ack, 36); AT(checkpoint, subscribed, 38); AT(checkpoint, created_ns, 40); AT(checkpoint, start_index, 48);
AT(checkpoint, name_length, 56); AT(checkpoint, crc, 60); AT(checkpoint, name, 64); AT(checkpoint, head, 192);
AT(checkpoint, handed, 200); AT(checkpoint, holder, 208);
AT(checkpoint, floor, 216); AT(checkpoint, cursor_sequence, 256); AT(checkpoint, cursor_place, 264);
AT(checkpoint, cursor_index, 272); AT(checkpoint, cursor_check, 280); AT(checkpoint, term, 320);
AT(checkpoint, dropped, 384); AT(checkpoint, acks_asked, 448); AT(checkpoint, acks_synced, 456);
AT(checkpoint, snapshot_synced, 464); AT(checkpoint, left, 472);
SIZE(checkpoint, SNAPSHOT_BASE);
AT(snapshot, epoch, 8); AT(snapshot, head, 16); AT(snapshot, window, 24); AT(snapshot, passed, 32);
AT(snapshot, parked, 40); AT(snapshot, crc, 44); AT(snapshot, done, 48); AT(snapshot, older, 8240);
AT(snapshot, buckets, 11472); AT(snapshot, pad, 12280);
AT(ring, byte_order, 8); AT(ring, version, 12); AT(ring, queue_id, 16); AT(ring, boot_id, 32); AT(ring, window, 48);
AT(ring, buckets, 52); AT(ring, cells, 56); AT(ring, term, 64); AT(ring, returns, 128); AT(ring, side_blocks, 192);
AT(ring, side_version, 200); AT(ring, side_hint, 208); AT(ring, edge, 256); AT(ring, redelivered, 320); AT(ring, expired, 328);
AT(ring, moved, 336); AT(ring, edges, 344); AT(ring, dropped_to, 352); AT(ring, retired, 360); AT(ring, unsure_to, 376); AT(ring, resting, 384);
AT(ring, tenants, 4096); SIZE(ring, RING_HEADER_BYTES);
AT(ring_side, state, 8); AT(ring_side, then, 16); AT(ring_side, due_ns, 24); AT(ring_side, behind, 32);
AT(ring_side, bucket, 48); AT(ring_side, forwarded, 56); SIZE(ring_side, 64);
AT(side_block, used, 8); AT(side_block, lowest, 16); SIZE(side_block, sizeof(struct ring_side));
AT(ring_bucket, low, 8); AT(ring_bucket, high, 16); AT(ring_bucket, block, 24); SIZE(ring_bucket, 32);
static_assert(ATTEMPTS_CELL_SHIFT == ATTEMPTS_BITS + 1 && RING_TERM_BITS + CELL_LAP_BITS + ATTEMPTS_CELL_SHIFT == 64, "a cell");
static_assert(SIDE_BLOCK_BYTES == (SIDE_ENTRIES + 1) * sizeof(struct ring_side), "a block");
AT(group_file, queue_id, 8); AT(group_file, options_length, 24); AT(group_file, crc, 28); SIZE(group_file, 32);
AT(subscription_file, queue_id, 8); AT(subscription_file, length, 24); AT(subscription_file, crc, 28);
SIZE(subscription_file, 32);
#undef AT
#undef SIZE

#endif
