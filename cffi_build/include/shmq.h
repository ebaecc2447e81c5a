/* shmq.h - THE contract of the core: each call with its promise, its errors and its thread rule.
 *
 * The core knows memory that is already mapped and descriptors that are already open. It knows nothing of paths,
 * names, policies or Python. Calls return 0 or more when they did what they say, and one of the codes below when not;
 * shmq_error() then tells the story. cffi_build/shmq.cdef.h is the subset that Python may call. */
#ifndef SHMQ_H
#define SHMQ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum shmq_code {
    SHMQ_OK = 0,
    SHMQ_EMPTY = -1,     /* nothing there yet */
    SHMQ_ROLL = -2,      /* the chunk is sealed: go on in the next one */
    SHMQ_WAITING = -3,   /* the next region is claimed by an owner who lives (or cannot be judged) */
    SHMQ_FENCED = -4,    /* this owner was judged dead; what it was doing has been padded */
    SHMQ_FORKED = -5,    /* this is a forked child; the handle is its parent's */
    SHMQ_CORRUPT = -6,   /* the bytes disagree with themselves */
    SHMQ_TOO_LARGE = -7, /* fits no chunk at all */
    SHMQ_TOO_MANY = -8,  /* more messages than one claim, or more owners than slots */
    SHMQ_TIMEOUT = -9,   /* the deadline passed */
    SHMQ_SIGNAL = -10,   /* a signal arrived: let Python run its handlers, then call again */
    SHMQ_SYSTEM = -11,   /* the kernel refused; shmq_errno() says why */
    SHMQ_SHUT_DOWN = -12,
    SHMQ_FORMAT = -13,   /* newer than this library, or of another kind of machine */
    SHMQ_CONTENDED = -14, /* another thread is in this reader right now */
    SHMQ_RETIRED = -15,  /* the chunk does not belong to the queue any more */
    SHMQ_PADDED = -16,   /* there is no message of that ordinal, and there will be none */
    SHMQ_SYNC_FAILED = -17, /* the disk refused to sync; until a verified reopening nothing more counts as durable */
    SHMQ_LEAD = -18,     /* this thread leads the group commit now, and has more to sync than the core can */
    SHMQ_FULL = -19,      /* a bound is reached, or this handle does not know how far it may go: see shmq_limit */
    SHMQ_EDGE = -20,     /* a group's window is full: wait until its head moves */
    SHMQ_GROW = -21,     /* a group's side table is full, or was made larger: map it anew */
    SHMQ_LOST = -22,     /* the message was given to somebody else meanwhile, or finished */
    SHMQ_FOREIGN = -23,  /* it does not begin as its name says: not ours, or within a queue damaged */
    SHMQ_PASSED = -24    /* so many were passed that do not match a filter: call again */
};

/* The story of the last error of this thread; never NULL. Valid until the thread's next failing call. */
const char *shmq_error(void);
int shmq_errno(void); /* beside SHMQ_SYSTEM: what the kernel answered */

/* ------------------------------------------------------------------ locks
 * What carries a lock (of a seat, a checkpoint): an opening of its own of a file, which no forked child ever has, whenever
 * another thread forks it. In its user's memory, all zeros before it is opened and after it is closed. */
typedef struct {
    uint32_t entry;
    uint32_t forks; /* as it was when this was opened */
    void *kept;     /* what keeps the open file without a descriptor; NULL: there is one */
} shmq_lock;
int shmq_lock_open(shmq_lock *lock, int fd); /* OK or SYSTEM; fd only says which file, and stays the caller's */
int shmq_lock_try(shmq_lock *lock, uint64_t byte); /* 1 held, 0 somebody else has it */
int shmq_lock_share(shmq_lock *lock, uint64_t byte); /* the same, beside others who share it */
int shmq_lock_give_back(shmq_lock *lock, uint64_t byte); /* one byte; OK */
/* Keep what is locked without a descriptor, by a mapping that no forked child has; only shmq_lock_close lets go of it, and
 * nothing more is locked by it. OK or SYSTEM. Only where a mapping keeps the open file (see keeps_locks in mapping.py). */
int shmq_lock_keep(shmq_lock *lock);
int shmq_lock_fd(const shmq_lock *lock);                 /* its descriptor; -1: it has none */
void shmq_lock_close(shmq_lock *lock);                   /* all of them; a second time it does nothing */

/* ------------------------------------------------------------------ a member: this process at one queue
 * One per process and queue, reference-counted by its user. Its slot is its name in every claim. */
typedef struct shmq_member shmq_member;

/* control: the mapped control file. NULL when out of memory. It has nothing open yet, so that its user can see to its
 * end before it has. */
shmq_member *shmq_member_new(void *control);
/* Before that: how many seats the control file has, if not all. */
void shmq_member_seats(shmq_member *member, uint32_t seats);
/* Once. lock_fd and test_fd: as shmq_lock_open takes them; of that file, the first read-write. test_fd may be -1, where
 * shmq_member_by_path comes next. */
int shmq_member_open(shmq_member *member, int lock_fd, int test_fd);
/* Once, behind that. From here on each question about a seat opens the file anew: path, from that open directory, which stays
 * open as long as the member; or an absolute one. OK or SYSTEM. */
int shmq_member_by_path(shmq_member *member, int directory, const char *path);
/* Once, behind shmq_member_by_path and shmq_member_lock: keep the seat as shmq_lock_keep does. */
int shmq_member_keep(shmq_member *member);
/* Lock a free slot, under its next generation: its number, or SHMQ_TOO_MANY. Its last tenant is dead for everybody from
 * here on: bury what the slot's tenants left, from chunk *since on, with shmq_bury, then call shmq_member_join. */
int shmq_member_lock(shmq_member *member, uint64_t *since, uint32_t *generation);
/* Between the two: that was not buried. Whoever meets such a claim pads it, since it is of an older generation, and the slot
 * goes on to say where they begin, until a later tenant buries them: at the latest before a generation comes again. */
void shmq_member_left(shmq_member *member, uint64_t since);
/* Take the locked slot under the next generation. */
int shmq_member_join(shmq_member *member, uint32_t pid, uint64_t pid_namespace, uint64_t start_time, uint64_t boot_tag,
                     uint64_t since);
/* This member will claim nothing more in any chunk before `since`. */
void shmq_member_since(shmq_member *member, uint64_t since);
uint32_t shmq_member_owner(const shmq_member *member);
/* Who sits in a slot, as it said itself: its generation, or 0 when nobody ever sat there (nor in any slot behind). */
typedef struct {
    uint32_t generation;
    uint32_t pid;
    uint64_t pid_namespace;
    uint64_t start_time;
    uint64_t boot_tag;
} shmq_participant;
uint32_t shmq_participant_at(const void *control, uint32_t slot, shmq_participant *participant);
/* Is a slot held by anybody, this member included? */
int shmq_slot_locked(shmq_member *member, uint32_t slot);
/* Is our own? For who asks often: a descriptor stays open for that. */
int shmq_member_seated(shmq_member *member);
/* 1 alive, 0 dead. The member itself is alive by definition. */
int shmq_owner_alive(shmq_member *member, uint32_t owner);
/* In a forked child: 1. */
int shmq_member_forked(const shmq_member *member);
/* Give the slot back. What this member's chunks hold can still be read; it must claim nothing more. In a forked child:
 * nothing, the slot is the parent's. */
void shmq_member_leave(shmq_member *member);
/* Leave, and free. No chunk of this member may be used any more. */
void shmq_member_free(shmq_member *member);

/* ------------------------------------------------------------------ waiting
 *   seen = shmq_wait_begin(m);  look once more;  shmq_wait(m, seen, deadline) */
uint32_t shmq_wait_begin(shmq_member *member);
int shmq_wait(shmq_member *member, uint32_t seen, int64_t deadline_ns); /* OK, TIMEOUT, SIGNAL; negative = for ever */
void shmq_wake(shmq_member *member);        /* wakes only if somebody sleeps */
void shmq_wake_always(void *control);       /* after a death: bumps the bell whatever it finds */
/* Sleep until one of `count` bells moves on, at most SHMQ_ANY_MAX, or the nudge does: OK, TIMEOUT, SIGNAL, or EMPTY where the
 * kernel cannot. bells: what shmq_bell_of said; seen: what shmq_wait_begin said of each. */
#define SHMQ_ANY_MAX 127
void *shmq_bell_of(shmq_member *member);
int shmq_wait_any(void *const *bells, const uint32_t *seen, uint32_t count, uint32_t *nudge, int64_t deadline_ns);
/* The bell that says that there may be room; seen: what shmq_room_begin said. */
void *shmq_room_bell_of(shmq_member *member);
/* Which of these bells have moved on since what was seen of them: how many, and the number of each in `moved`. */
uint32_t shmq_moved(void *const *bells, const uint32_t *seen, uint32_t count, uint32_t *moved);
/* Wake whoever sleeps on the nudge, a word of this process that was 0. */
void shmq_nudge(uint32_t *nudge);
int64_t shmq_clock_monotonic_ns(void);
int64_t shmq_clock_boottime_ns(void);
int64_t shmq_clock_wall_ns(void);

/* ------------------------------------------------------------------ a chunk
 * Any number of threads may use one chunk handle at once. */
typedef struct shmq_chunk shmq_chunk;

/* Write the header and index2index of a new chunk into `bytes` zeroed bytes at `memory`. base and sequence: where it
 * will be linked, or UINT64_MAX when it is staged for adoption. grain: regions begin at multiples of so many bytes, or 0;
 * with a grain, zeroed is what shmq_chunk_clear zeroes. */
int shmq_chunk_format(void *memory, uint64_t bytes, const uint8_t queue_id[16], uint64_t chunk_id, uint64_t epoch,
                      uint64_t base, uint64_t sequence, uint32_t index_spacing, uint32_t grain, int64_t created_ns);
/* Zero what a new chunk needs to be zero in a file of `bytes` that was one, whose first `used` bytes were used. Where
 * that chunk had a grain and this has none, all of them were. Nobody else may look at it. */
void shmq_chunk_clear(void *memory, uint64_t bytes, uint64_t used, uint32_t index_spacing, uint32_t grain);
/* How much of a retired chunk was used: up to its SEAL, where the hint leads there; all of it, where that is not known, or where
 * what it was before may not be left in one with that grain. */
uint64_t shmq_chunk_used(const void *memory, uint64_t bytes, uint32_t grain);
/* Have a used file that is mapped here, used_name in a directory, become chunk_name there: OK, and a descriptor that carries the lock
 * of a mapping; EMPTY: it cannot, or somebody was faster, and if it was cleared it is still a used file. */
typedef struct {
    int directory;
    const char *used_name;
    const char *chunk_name;
    uint64_t device;
    uint64_t inode;
    void *memory;
    uint64_t bytes;
    uint32_t owner;
    const uint8_t *queue_id;
    uint64_t chunk_id;
    uint64_t epoch;
    uint64_t base;
    uint64_t sequence;
    uint32_t index_spacing;
    uint32_t grain;
    int64_t created_ns;
} shmq_renewal;
int shmq_chunk_renew(const shmq_renewal *renewal, int *opened);
/* Check the header of a mapped chunk and make a handle: NULL and an error when it is not a chunk of this queue.
 * pads: `memory` is shared, of a file that was opened for writing: claims of the dead are to be padded, whatever it is
 * mapped for.
 * writable: whether `memory` may be written. checksum: whether records carry CRCs. */
shmq_chunk *shmq_chunk_new(void *memory, uint64_t bytes, bool pads, bool writable, bool checksum, uint64_t base,
                           uint64_t sequence, const uint8_t queue_id[16], shmq_member *member, int *code);
void shmq_chunk_free(shmq_chunk *chunk);
/* Its memory was mapped and written to before, by this process: its pages need not be asked for. */
void shmq_chunk_is_populated(shmq_chunk *chunk);
uint64_t shmq_chunk_epoch(const shmq_chunk *chunk);
uint64_t shmq_chunk_first_position(const shmq_chunk *chunk);
/* Where it is mapped. */
const void *shmq_chunk_memory(const shmq_chunk *chunk);
/* Whether a record at that position, and the payload at that place, lie within it. */
bool shmq_chunk_holds(const shmq_chunk *chunk, uint64_t record, uint64_t place);
/* Whether its queue was shut down at once. */
bool shmq_shut_down_at_once(const shmq_chunk *chunk);
/* What the head of a message says whose payload was found at `payload`, when it was checked; as it lies there now. Nothing
 * behind that is looked at, whatever has been written there since. */
typedef struct {
    int64_t time_ns;
    uint64_t key;        /* position */
    uint32_t key_length;
    uint16_t type;
    uint16_t flags;      /* enum record_flag */
} shmq_head;
shmq_head shmq_head_of(const void *memory, uint64_t record, uint64_t payload);
/* About how many bytes its key, its optional fields and its payload have. */
uint64_t shmq_weight_of(uint64_t record, uint64_t place);
/* Bytes a chunk must have so that a region of so many bytes fits. */
uint64_t shmq_chunk_bytes_for(uint64_t region, uint32_t index_spacing, uint32_t grain);

/* What a message has besides its payload. NULL and 0 are "none"; time_ns = INT64_MIN is "now". */
typedef struct {
    const char *key;
    uint32_t key_length;
    uint32_t type;
    int64_t time_ns;
    const char *headers; /* an encoded map */
    uint32_t headers_length;
    uint32_t fixed_flags; /* 1 = it expires, 2 = it is delayed, 4 = it is put once */
    const char *fixed;    /* then a struct field_when or field_dedup for each, in that order */
} shmq_fields;

/* Write a struct field_when, of SHMQ_WHEN_BYTES: so many ns from now. */
enum { SHMQ_WHEN_BYTES = 24, SHMQ_DEDUP_BYTES = 24 };
void shmq_when(const shmq_chunk *chunk, int64_t after_ns, char *field);
/* Append one message; it is visible when this returns. Its index, or ROLL (sealed; nothing was written), TOO_LARGE,
 * FENCED, FORKED, SHUT_DOWN, CORRUPT. */
int64_t shmq_put(shmq_chunk *chunk, const char *payload, uint64_t length);
int64_t shmq_put_record(shmq_chunk *chunk, const shmq_fields *fields, const char *payload, uint64_t length);
/* Append `count` messages as one claim: all of them or none become visible. payloads: their bytes, end to end.
 * keys, headers: likewise, or NULL; types, times: NULL or one each; fixed_flags, fixed: of all of them, as in shmq_fields.
 * The first index, or as shmq_put, or TOO_MANY. */
int64_t shmq_put_many(shmq_chunk *chunk, uint32_t count, const char *payloads, const uint32_t *lengths,
                      const char *keys, const uint32_t *key_lengths, const uint32_t *types, const int64_t *times,
                      const char *headers, const uint32_t *header_lengths, uint32_t fixed_flags, const char *fixed);
/* Bytes of the region that these messages need, to make a chunk for them. */
uint64_t shmq_region_bytes(uint32_t count, const uint32_t *lengths, const uint32_t *key_lengths,
                           const uint32_t *header_lengths, uint32_t fixed_flags);
uint64_t shmq_record_bytes(const shmq_fields *fields, uint64_t length);
/* Could such a message be put anywhere? OK or TOO_LARGE. */
int shmq_check_fields(const shmq_fields *fields, uint64_t length);
/* Would so many messages of that region be put now, without a wait, a new chunk or an error? A guess: others may be faster. */
bool shmq_put_fits(const shmq_chunk *chunk, uint32_t count, uint64_t bytes);
/* Write the struct field_dedup of what comes of the message at that index of a group that is known by these 16 bytes. */
void shmq_forwarded_field(const char *source, uint64_t index, char *field);
/* As shmq_put_many, of messages that lie apart and have fields of their own. */
int64_t shmq_put_each(shmq_chunk *chunk, uint32_t count, const shmq_fields *fields, const char *const *payloads,
                      const uint64_t *lengths);

/* A message or batch that says who put it and which of its puts it is, of `count` ordinals from `first` on. Or, where `end` is
 * not 0, a claim that is open from `position` to there: it may become one. */
typedef struct {
    uint8_t producer[16];
    uint64_t sequence;
    uint64_t position;
    uint64_t first;
    uint64_t end;
    uint32_t count;
    uint32_t reserved;
} shmq_dedup_found;
/* Which of them are wanted: all; those that producers put; of those, of several of one producer that follow each other only the
 * last; or what was forwarded from that one source. */
enum shmq_dedup_wanted {
    SHMQ_DEDUP_ALL = 0,
    SHMQ_DEDUP_PUT = 1,
    SHMQ_DEDUP_NEWEST = 2,
    SHMQ_DEDUP_SOURCE = 3
};
/* Up to `capacity` of them from *position on (0: the first) and before `until` (0: no end): how many. *code: OK when there may
 * be more; EMPTY, ROLL, CORRUPT. */
int64_t shmq_scan_dedup(shmq_chunk *chunk, uint64_t *position, uint64_t *ordinal, uint64_t until, uint32_t wanted,
                        const uint8_t source[16], uint32_t capacity, shmq_dedup_found *found, int *code);

/* What is known of one producer's puts with dedup: those before that place of that chunk were looked at. */
typedef struct {
    uint8_t producer[16];
    uint64_t byte;            /* of control.shmq: who puts as that producer holds the lock on it */
    shmq_lock *lock;
    uint64_t chunk;           /* its sequence */
    uint64_t position;
    uint64_t ordinal;
    bool any;                 /* there was one: the last is that sequence, and its index */
    uint64_t sequence;
    uint64_t first;
} shmq_once;
/* Append one message, whose fields say that it is the producer's put of that sequence; or it is the last of it: its index.
 * EMPTY, ROLL, CORRUPT: nothing was put, and somebody has to look who knows more. Otherwise as shmq_put. */
int64_t shmq_put_once(shmq_chunk *chunk, shmq_once *once, uint64_t sequence, const shmq_fields *fields, const char *payload,
                      uint64_t length);

/* Claim room for a payload of `length` bytes to be filled in place. Its index; *claimed names the claim and *payload
 * is the position of its payload in the chunk. Until commit or abort, consumers wait at it. */
int64_t shmq_reserve(shmq_chunk *chunk, const shmq_fields *fields, uint64_t length, uint64_t *claimed,
                     uint64_t *record, uint64_t *payload);
/* Its user never has the chunk's own mapping: what an array that was kept stores there after the commit would change a
 * message. What was written elsewhere is copied into the payload; or the payload's pages are mapped a second time (NULL
 * when the kernel has no room for that), and unmapped or made private (0 or -errno) before the commit. */
void shmq_fill(shmq_chunk *chunk, uint64_t payload, const void *data, uint64_t length);
uint8_t *shmq_map_again(void *begin, size_t bytes);
int shmq_make_private(uint8_t *again, size_t bytes);
void shmq_unmap_again(uint8_t *again, size_t bytes);
/* Publish the claim with the first `length` bytes of its payload. OK, FENCED, FORKED. */
int shmq_commit(shmq_chunk *chunk, uint64_t record, uint64_t claimed, uint64_t length);
/* Give the claim up: it becomes padding. OK, FENCED, FORKED. */
int shmq_abort(shmq_chunk *chunk, uint64_t record, uint64_t claimed);

/* Seal the chunk at its end, whatever that is; OK also when it was sealed already. */
int shmq_seal(shmq_chunk *chunk);
/* Seal the chunk at its end with the 40-bit id of an adoption, not 0: the staged chunks of that manifest follow it. OK
 * when this call sealed it (the adoption is committed), ROLL when it was sealed already, whatever for. */
int shmq_seal_adopt(shmq_chunk *chunk, uint64_t adoption);
/* Give the SEAL of a sealed chunk another id, or 0. Only of a staged chunk that nobody else looks at, before it is
 * adopted. OK, or EMPTY when it is not sealed. */
int shmq_seal_again(shmq_chunk *chunk, uint64_t adoption);
/* From now on this handle seals its chunk with that id, also when it is full; 0 for plainly. For staged chunks, which
 * name the adoption that their successor comes by. */
void shmq_seals_as(shmq_chunk *chunk, uint64_t adoption);
/* The id in the chunk's SEAL; 0 when it is plain or not sealed. */
uint64_t shmq_adoption(shmq_chunk *chunk);
/* The ordinals of a sealed chunk, so that base + count is its successor's base; or EMPTY when it is not sealed.
 * A GAP record may set the successor's base further on: *next_index. */
int shmq_sealed(shmq_chunk *chunk, uint64_t *next_index);
/* The index behind the last claimed region, and its position. */
int shmq_tail(shmq_chunk *chunk, uint64_t *next_index, uint64_t *position);
/* Pad every open claim of this owner's slot in the chunk, whatever its generation, or of everybody when owner is 0: how
 * many regions. */
int64_t shmq_bury(shmq_chunk *chunk, uint32_t owner);

/* ------------------------------------------------------------------ reading
 * A reader is moved by the calls below, and by its user between them. Two threads that call at once: one of them gets
 * CONTENDED, and nothing has happened for it. */

/* Which messages a reader wants: what does not match is passed, by whoever meets it, before its checksum is looked at. Of a
 * consumer's name that finishes it. prefix: how its key begins; types: one of them, if there are any; headers: a msgpack map of
 * up to SHMQ_FILTER_HEADERS texts, all of which its own have, with such values. NULL: out of memory, or it is no such map. */
typedef struct shmq_filter shmq_filter;
enum { SHMQ_FILTER_HEADERS = 8 };
shmq_filter *shmq_filter_new(const char *prefix, uint32_t prefix_length, const uint16_t *types, uint32_t type_count,
                             const char *headers, uint32_t headers_length);
void shmq_filter_free(shmq_filter *filter);
/* Does the message whose record is at `position` match? 1, 0, or CORRUPT. */
int shmq_filter_matches(const shmq_filter *filter, const shmq_chunk *chunk, uint64_t position);
/* Go on from a word to the next message that matches: OK, and it is there; EMPTY at the end, or at the index `stop`; PASSED
 * once `*most` were passed; CORRUPT, FORKED, RETIRED. What is claimed is passed. */
int shmq_filter_next(const shmq_filter *filter, shmq_chunk *chunk, uint64_t *position, uint64_t *ordinal, uint64_t stop,
                     uint32_t *most);
/* Step over the word there: OK or CORRUPT. */
int shmq_filter_step(shmq_chunk *chunk, uint64_t *position, uint64_t *ordinal);
/* The same to the end: how many match, from the index `first` on, is added to *count. Never OK. */
int shmq_filter_count(const shmq_filter *filter, shmq_chunk *chunk, uint64_t *position, uint64_t *ordinal, uint64_t first,
                      uint64_t stop, uint32_t most, uint64_t *count);

typedef struct {
    uint64_t position;   /* where the next word is */
    uint64_t ordinal;    /* and its ordinal */
    uint64_t record;     /* position of the message just read */
    uint64_t index;      /* its index */
    uint64_t padded;     /* ordinals passed over because they were padding */
    uint64_t start;      /* messages of smaller index are passed over */
    uint64_t waiting_for; /* the owner it waits for, after WAITING */
    void *checkpoint;    /* a mapped checkpoint whose `handed` and head move before a message is returned; or NULL */
    uint32_t busy;       /* a thread is inside a call with this reader */
    int64_t due_ns;      /* after WAITING: it waits for this moment since boot; 0 = for an owner */
    const shmq_filter *filter; /* what it wants, or NULL; its user keeps it */
    uint64_t passed;     /* by the last call: messages that do not match */
} shmq_reader;

/* The next message: its payload's place (position << 30 | length), or EMPTY, ROLL, WAITING, CORRUPT, FORKED.
 * A claim whose owner is dead is padded on the way. Looks `spins` times before it says EMPTY or WAITING. With a filter PASSED
 * too, once 1,024 were passed: the reader stands behind them, and so does its checkpoint. */
int64_t shmq_next(shmq_chunk *chunk, shmq_reader *reader, uint32_t spins);
/* The same, and which message it is: the reader's own `record` and `index` tell that only until another thread goes on. */
typedef struct {
    uint64_t record; /* position */
    uint64_t index;
} shmq_which;
int64_t shmq_next_which(shmq_chunk *chunk, shmq_reader *reader, uint32_t spins, shmq_which *which);
/* What shmq_next_which would answer, handing out nothing: the reader stands before it. */
int64_t shmq_glance(shmq_chunk *chunk, shmq_reader *reader, shmq_which *which);
/* The same without a spin, for messages of up to 2 KiB with their header, or 32 where it is told which one it is: TOO_LARGE
 * for a larger one, which is neither checked nor passed. Then shmq_next_bytes says how many bytes its payload has, as far
 * as can be told without checking, and shmq_next_copied is shmq_next with the payload copied to `to` in the same pass, if
 * it has up to `room` bytes. */
int64_t shmq_next_small(shmq_chunk *chunk, shmq_reader *reader);
int64_t shmq_next_small_which(shmq_chunk *chunk, shmq_reader *reader, shmq_which *which);
uint64_t shmq_next_bytes(const shmq_chunk *chunk, const shmq_reader *reader);
int64_t shmq_next_copied(shmq_chunk *chunk, shmq_reader *reader, char *to, uint64_t room);
/* Up to `limit` messages that are there now: how many (>= 1), their payloads' places and their records' positions
 * (places or records may be NULL); or as shmq_next when there is none. */
int64_t shmq_next_many(shmq_chunk *chunk, shmq_reader *reader, uint32_t limit, uint64_t *places, uint64_t *records);
/* Move the reader to the first word whose region holds or follows `ordinal`: OK, or ROLL when the chunk ends before it,
 * EMPTY when it has not been claimed yet. */
int shmq_reader_seek(shmq_chunk *chunk, shmq_reader *reader, uint64_t ordinal);
/* Check the record at `position` as a read would: its payload's place or CORRUPT. */
int64_t shmq_check(shmq_chunk *chunk, uint64_t position, uint64_t ordinal);

/* ------------------------------------------------------------------ many at once, column by column */
enum shmq_column {
    SHMQ_INDEX = 0,    /* uint64 */
    SHMQ_TIME = 1,     /* int64, ns since 1970 */
    SHMQ_KEY = 2,      /* bytes, absent where a message has none */
    SHMQ_TYPE = 3,     /* uint16 */
    SHMQ_PAYLOAD = 4,  /* bytes, as they were put */
    SHMQ_HEADERS = 5,  /* bytes, an encoded map, absent where a message has none */
    SHMQ_ATTEMPTS = 6, /* uint16: 1, for whoever reads without a ring keeps no count */
    SHMQ_COLUMNS = 7
};
typedef struct {
    uint32_t columns;       /* 1 << shmq_column, for each that is wanted */
    uint32_t checked;       /* look at every message's checksum, also when no bytes of it are wanted */
    uint64_t rows;          /* at most so many */
    uint64_t bytes;         /* of keys, payloads and headers together, but one message at least; below 2^31 */
    uint64_t stop;          /* before this index */
    int64_t stop_time_ns;   /* and before the first message of that time or later; INT64_MAX: there is none */
} shmq_wanted;
/* Where one column lies in a batch: offsets from its memory. Nothing has an offset of 0 but a batch without rows. */
typedef struct {
    uint64_t validity; /* a bit for each row, where `absent` is not 0 */
    uint64_t offsets;  /* int32, rows + 1, of columns of bytes */
    uint64_t values;
    uint64_t bytes;    /* of the values */
    uint64_t absent;   /* rows without a value */
} shmq_column_place;
typedef struct {
    void *memory;      /* all columns, each aligned to 64; the caller's, for shmq_gathered_free */
    uint64_t bytes;
    uint64_t first;    /* index of the first message, and of the last */
    uint64_t last;
    shmq_column_place columns[7];
} shmq_gathered;
/* The messages that are there now, copied into columns as Arrow lays them out: how many (>= 1), or as shmq_next when
 * there is none; EMPTY also at the stop. The reader and its checkpoint move as by shmq_next_many. SYSTEM: out
 * of memory, and nothing has moved. */
int64_t shmq_gather(shmq_chunk *chunk, shmq_reader *reader, const shmq_wanted *wanted, shmq_gathered *batch);
void shmq_gathered_free(void *memory);
/* The same of payloads that are records of `size` bytes: `count` of their numbers, each into a column of its own, whose
 * place is in `places`; and beside them index, time and type. `bytes` does not matter. A field lies within the record and
 * has 1, 2, 4 or 8 bytes; where a payload has another size its fields are absent, all of them, and share one `validity`.
 * Every message's checksum is looked at. TOO_LARGE: no field, or one that is none of these, or another column. */
typedef struct {
    uint32_t offset;
    uint32_t bytes;
} shmq_field;
int64_t shmq_gather_records(shmq_chunk *chunk, shmq_reader *reader, const shmq_wanted *wanted, uint32_t size,
                            uint32_t count, const shmq_field *fields, shmq_gathered *batch, shmq_column_place *places);
/* The other way: of a column of bytes in the layout of Arrow, with count + 1 offsets into `bytes` bytes of values, the
 * lengths as shmq_put_many takes them, and where the first value begins; or CORRUPT, when the offsets do not ascend
 * within the values. */
int64_t shmq_lengths(uint32_t count, const int32_t *offsets, uint64_t bytes, uint32_t *lengths);

/* ------------------------------------------------------------------ random access
 * By way of the chunk's index blocks, which are hints: what is missing or wrong there costs a longer walk, and is put
 * right where the chunk is mapped writable. What is claimed by a dead owner is padded on the way. */

/* The message of that ordinal: its payload's place and its record's position; or EMPTY (not claimed yet), ROLL (the
 * chunk ends before it), WAITING (claimed, not committed), PADDED, RETIRED, CORRUPT, FORKED. */
int64_t shmq_find(shmq_chunk *chunk, uint64_t ordinal, uint64_t *record);
/* The messages of ordinals first .. last - 1 that are there now, regions that are still claimed left out: how many.
 * Each array has room for last - first, or is NULL. CORRUPT, RETIRED, FORKED. */
int64_t shmq_range(shmq_chunk *chunk, uint64_t first, uint64_t last, uint64_t *indexes, uint64_t *records,
                   uint64_t *places);
/* The first message whose time is time_ns or later: OK and its *ordinal; or EMPTY (none yet), ROLL (none, and the
 * chunk is sealed with everything in it resolved), CORRUPT, RETIRED, FORKED. *open: the ordinal of the first claim before
 * the answer that is not committed yet, or UINT64_MAX. *time_max: after ROLL, the largest time in the chunk. */
int shmq_at(shmq_chunk *chunk, int64_t time_ns, uint64_t *ordinal, uint64_t *open, int64_t *time_max);

/* ------------------------------------------------------------------ bounds
 * A handle of a bounded queue puts as far as its limit goes, which its user computes and sets. It is good as long as
 * control->bounds is what it was; a put that meets a limit, or has none that is good, says FULL and has done nothing. */

/* What moves when limits must be computed anew, 0 in a queue that never had bounds; the bounds (0 = none), and the index
 * before which everything is dropped. Look at it before the heads. */
uint64_t shmq_bounds(const void *control, uint64_t *max_messages, uint64_t *max_bytes, uint64_t *dropped);
void shmq_bounds_set(void *control, uint64_t max_messages, uint64_t max_bytes);
/* A head went back, or a name came or went: limits must be computed anew. */
void shmq_bounds_recount(void *control);
/* The same, also in a queue that never had bounds: its consumers look at what is dropped from now on. */
void shmq_bounds_begin(void *control);
/* From now on this handle may claim ordinals below `ordinals` and bytes before `position`. One caller at a time. */
void shmq_limit(shmq_chunk *chunk, uint64_t bounds, uint64_t ordinals, uint64_t position);
/* The first word at or behind *ordinal that is neither padding nor the queue's own: OK and its ordinal and position, the
 * free end included; ROLL when the chunk is sealed before that. CORRUPT. What dead owners claimed is padded on the way. */
int shmq_floor(shmq_chunk *chunk, uint64_t *ordinal, uint64_t *position);
/* Where the chunk is filled to, and how many bytes of messages and padding lie between `start` and there. */
int shmq_filled(shmq_chunk *chunk, uint64_t start, uint64_t *end, uint64_t *bytes);
/* Drop what lies before that index for everybody, but what is handed out and not acknowledged: look at `handed` of all
 * names afterwards. */
void shmq_drop(void *control, uint64_t index);
/* Wait for room as shmq_wait_begin and shmq_wait do for messages; say that there may be some. */
uint32_t shmq_room_begin(shmq_member *member);
int shmq_room_wait(shmq_member *member, uint32_t seen, int64_t deadline_ns);
void shmq_room(void *control);
void shmq_room_always(void *control);
/* ------------------------------------------------------------------ what is whole in a chunk
 * Recovery, verify and repair. The chunk's handle needs no member here (NULL), nobody's life is asked for, and but for
 * the last three calls nothing is written. */
typedef struct {
    uint64_t position;        /* in: where to begin, 0 for the start. Out: everything before it is whole and proven: a */
    uint64_t ordinal;         /* word without a checksum counts when a message behind it agrees, or when it is trusted */
    uint64_t stopped;         /* where the walk ended, and the ordinals before it */
    uint64_t stopped_ordinal;
    uint64_t messages;        /* up to `position`, added to what was there */
    uint64_t bytes;           /* of their regions */
    uint64_t padded;          /* ordinals of padding up to there */
    uint64_t open_padded;     /* likewise up to the SEAL, after ROLL */
    uint64_t claims;          /* regions passed that are claimed and not committed */
    uint64_t gap_position;    /* of the GAP right before the SEAL; 0 for none */
    uint64_t gap_index;       /* the base of the next chunk by it */
    uint64_t adoption;        /* the id in the SEAL */
    uint64_t missing;         /* with `singly`: messages of the batch before `stopped` that should be there, and behind it */
    uint64_t doubted;         /* with `singly`, after CORRUPT: ordinals of padding between `position` and `stopped` */
} shmq_survey;
/* Walk on from survey->position, checking every word, message and batch: EMPTY at the end of an open chunk, ROLL at the
 * SEAL, WAITING at a claim (or over it, with pass_claims), CORRUPT at what is not whole. Words up to the position
 * `trusted` are proven as they are. A batch is whole, or the walk ends before its first message; with `singly`, for whoever
 * saves what can be saved, each message of a batch that was committed is by itself. FREE with something that is not zero
 * behind it, where words may be looked for, is a hole: CORRUPT. */
int shmq_survey_chunk(shmq_chunk *chunk, shmq_survey *survey, uint64_t trusted, bool pass_claims, bool singly);
/* Has the index of a sealed chunk an entry for each place up to so many ordinals? Nothing says that they are right. */
bool shmq_indexed(shmq_chunk *chunk, uint64_t ordinals);
/* The end of some claimed region, as far as the chunk's hint tells; its first position if that cannot be. */
void shmq_hint(const shmq_chunk *chunk, uint64_t *position, uint64_t *ordinal);
/* Damage, from the first place that is in doubt to the one behind it, where a message agrees with itself. */
typedef struct {
    uint64_t position;
    uint64_t ordinal;
    uint64_t end;
    uint64_t end_ordinal;
} shmq_damage;
/* Find what is damaged where a walk stopped, at damage->position, and the last message that agreed ended at `agreed`: OK, or
 * EMPTY when nothing whole can be found behind it in bounded time. Messages of a batch whose first word is damaged are part
 * of it: whether they were put cannot be told. */
int shmq_resync(const shmq_chunk *chunk, uint64_t agreed, uint64_t agreed_ordinal, shmq_damage *damage);
/* The same where a reader stopped. */
int shmq_resync_reader(const shmq_chunk *chunk, const shmq_reader *reader, shmq_damage *damage);
/* End a torn chunk at `position`: zeros, a GAP that names the next chunk's base, a SEAL. How many bytes were not zero
 * before, counted to the last one. Killed in between, the same call does the same again. Nobody else may be at it. */
int64_t shmq_cut(shmq_chunk *chunk, uint64_t position, uint64_t next_index);
/* Make the hints and the index of a chunk anew from its words up to `position`. Nobody else may be at it. */
int shmq_set_in_order(shmq_chunk *chunk, uint64_t position, uint64_t ordinal);
/* Make padding of `count` ordinals from `position` to `end`: OK, or TOO_LARGE where no words can say so. */
int shmq_pad_over(shmq_chunk *chunk, uint64_t position, uint64_t end, uint64_t count);
/* The same from `position` on, as far as it takes, over whatever is there: where it ends. */
int64_t shmq_pad_behind(shmq_chunk *chunk, uint64_t position, uint64_t count);
/* In a private mapping: have the chunk end here, as if nothing had been put behind it. */
void shmq_end_at(shmq_chunk *chunk, uint64_t position);
/* Zeros from there to the end: how many bytes were not. Nobody else may be at it. */
int64_t shmq_zero_from(shmq_chunk *chunk, uint64_t position);

/* ------------------------------------------------------------------ control page */
uint64_t shmq_first_live(const void *control);
void shmq_raise_first_live(void *control, uint64_t sequence); /* never lowers it */
/* One more than the sequence of the last chunk that was entered to put; 0 when none was. Never goes back. */
uint64_t shmq_newest(const void *control);
uint64_t shmq_newest_base(const void *control);
void shmq_newest_raise(void *control, uint64_t newest, uint64_t base);
uint32_t shmq_members(const void *control);
void shmq_shut_down(void *control, uint32_t how);
uint32_t shmq_is_shut_down(const void *control);
void shmq_set_finished(void *control, uint32_t finished);
uint32_t shmq_finished(const void *control);
/* So many indexes without a message came with chunks that were adopted; went with their chunk. */
void shmq_add_padding(void *control, uint64_t count);
void shmq_remove_padding(void *control, uint64_t count);
/* Ordinals of a chunk's padding. */
uint64_t shmq_pads(const shmq_chunk *chunk);
/* Around a change of what is padding, and of its count; and that nobody knows whether the count is right. */
void shmq_pads_begin(shmq_member *member);
void shmq_pads_end(shmq_member *member);
void shmq_pads_doubt(void *control);
/* 1 = somebody was killed in between: count the padding anew. */
uint32_t shmq_pads_doubted(shmq_member *member);
/* Before it is counted: OK, or WAITING while somebody living is in between. Then what was counted takes the place of
 * *padded: OK, or WAITING, when it changed meanwhile: count again. */
int shmq_pads_count(shmq_member *member, uint64_t *doubted, uint64_t *padded);
int shmq_pads_counted(shmq_member *member, uint64_t doubted, uint64_t padded, uint64_t total);
/* The next padding that takes ordinals from (*position, *ordinal) on, which are moved on; 0 to begin with: OK and its first
 * ordinal and how many they are; or EMPTY, ROLL, WAITING (a living claim is open, and those are not passed), CORRUPT, where
 * it stands then. Claims of the dead are padded on the way. */
int shmq_next_missing(shmq_chunk *chunk, bool claims, uint64_t *position, uint64_t *ordinal, uint64_t *first,
                      uint64_t *count);
void shmq_counters(const void *control, uint64_t *padded, uint64_t *fenced);

/* ------------------------------------------------------------------ counted, for whoever watches
 * More of a kind, in the line that all share; messages that were put there; how old that message is. */
enum shmq_counted {
    SHMQ_COUNT_TAKEN = 2,
    SHMQ_COUNT_ACKED = 3,
    SHMQ_COUNT_NACKED = 4,
    SHMQ_COUNT_WAITS = 5,
    SHMQ_COUNT_ROOM_WAITS = 6
};
#define SHMQ_COUNTS 7
#define SHMQ_LATENCY_BUCKETS 32
void shmq_count(void *control, uint32_t which, uint64_t by);
void shmq_count_for(const shmq_chunk *chunk, uint32_t which, uint64_t by);
/* The line of this process's seat, or NULL: then as above. Of a staged chunk: NULL. */
uint64_t *shmq_counts_of(const shmq_chunk *chunk);
void shmq_count_put(const shmq_chunk *chunk, uint64_t messages, uint64_t bytes);
void shmq_count_latency(const shmq_chunk *chunk, uint64_t record);
/* The sums over all lines, SHMQ_COUNTS of them; the buckets of ages; and the sum of those. */
void shmq_counts(const void *control, uint64_t *sums, uint64_t *latency, uint64_t *latency_ns);
/* Group commits that ended, in this boot, modulo 2^32. */
uint32_t shmq_syncs(const void *control);

/* ------------------------------------------------------------------ the pages beside the chunks
 * Make a page in memory, or check one that was read: OK, FORMAT (not ours, or newer) or CORRUPT. layout.h has the bytes. */
#define SHMQ_PAGE_BYTES 4096
#define SHMQ_QUEUE_BYTES 20480
#define SHMQ_QUEUE_HEADER_BYTES 56
#define SHMQ_CONTROL_BYTES 69632
#define SHMQ_CONTROL_BYTES_SMALL 20480
#define SHMQ_CHECKPOINT_BYTES 28672
#define SHMQ_BATCH_MAX 8191
#define SHMQ_SNAPSHOT_BASE 4096
#define SHMQ_SNAPSHOT_BYTES 12288

int shmq_queue_format(void *page, const uint8_t queue_id[16], int64_t created_ns, const char *options, uint32_t length);
/* Each of the two may be NULL, for whoever takes it from the page. */
int shmq_queue_check(const void *page, uint8_t queue_id[16], uint32_t *options_length);

typedef struct {
    uint64_t sequence;
    uint64_t epoch;
    uint64_t ceiling;
    uint64_t first_live;
    uint64_t first_index;
    uint64_t device;
    uint64_t inode;
    uint64_t max_messages;
    uint64_t max_bytes;
    uint64_t dropped;
    uint32_t flags;
    uint8_t boot_id[16];
} shmq_journal;
/* options: those that were changed since the queue was made, as JSON. The check answers how long that is, or CORRUPT: the
 * page says nothing that can be believed. */
int shmq_journal_format(void *page, const shmq_journal *journal, const char *options, uint32_t length);
int shmq_journal_check(const void *page);

/* One of the two slots of the watermark; position and index are those of a word that a walk visits. */
typedef struct {
    uint64_t sequence;
    uint64_t epoch;
    uint64_t chunk_sequence;
    uint64_t position;
    uint64_t next_index;
} shmq_watermark;
int shmq_watermark_format(void *page, const shmq_watermark *mark);
int shmq_watermark_check(const void *page, shmq_watermark *mark);

int shmq_control_format(void *memory, const uint8_t queue_id[16]);
int shmq_control_check(const void *memory, uint64_t bytes, const uint8_t queue_id[16]);

int shmq_checkpoint_format(void *memory, const uint8_t queue_id[16], const char *name, uint32_t name_length,
                           uint32_t kind, bool explicit_ack, bool subscribed, uint64_t start_index,
                           int64_t created_ns);
int shmq_checkpoint_check(const void *memory, uint64_t bytes, const uint8_t queue_id[16], const char *name,
                          uint32_t name_length);
/* Make the checkpoint one of another name; all else stays. */
int shmq_checkpoint_rename(void *memory, const char *name, uint32_t name_length);
/* The live words of a checkpoint. */
uint64_t shmq_checkpoint_head(const void *memory);
void shmq_checkpoint_set_head(void *memory, uint64_t index);
void shmq_checkpoint_raise_head(void *memory, uint64_t index);
uint64_t shmq_checkpoint_handed(const void *memory);
void shmq_checkpoint_set_handed(void *memory, uint64_t index);
uint64_t shmq_checkpoint_dropped(const void *memory);
void shmq_checkpoint_set_dropped(void *memory, uint64_t count);
uint64_t shmq_checkpoint_holder(const void *memory);
void shmq_checkpoint_set_holder(void *memory, uint64_t owner);
uint32_t shmq_checkpoint_explicit(const void *memory);
uint32_t shmq_checkpoint_subscribed(const void *memory);
uint32_t shmq_checkpoint_kind(const void *memory);
uint64_t shmq_checkpoint_floor(const void *memory); /* of a name with a ring: nothing below it is needed */
/* A hint where `index` lies, so that opening need not walk to it. Load: 1 when its check agrees, else 0. */
void shmq_cursor_save(void *memory, uint64_t sequence, uint64_t position, uint64_t ordinal, uint64_t index);
int shmq_cursor_load(const void *memory, uint64_t *sequence, uint64_t *position, uint64_t *ordinal, uint64_t *index);

/* ------------------------------------------------------------------ a group's ring
 * The window of one group: layout.h, struct ring. A ring handle belongs to one thread at a time. */
typedef struct shmq_ring shmq_ring;

enum shmq_taken_kind {
    SHMQ_TAKEN_MESSAGE = 0,
    SHMQ_TAKEN_EXPIRED = 1, /* too old: to be moved, and then acknowledged */
    SHMQ_TAKEN_MOVING = 2   /* somebody died while moving it to another queue: finish that */
};
/* One message as it was handed out. What finishes it is a CAS from exactly `word`. */
typedef struct {
    uint64_t index;
    uint64_t place;    /* of its payload, and `record`, its record's position: known of those of shmq_ring_take */
    uint64_t record;
    uint64_t word;
    uint64_t entry;    /* its side entry; 0 = its word is in the window */
    uint32_t attempts; /* how often it was handed out, this time included */
    uint32_t kind;
    uint64_t bucket;   /* of its key, plus one; 0 = it comes in no order. `gate`: that of the bucket, if nothing else is there */
    uint64_t gate;
} shmq_taken;

/* Bytes of a ring file with so many side blocks. buckets: 0 = in no order. */
uint64_t shmq_ring_bytes(uint32_t window, uint32_t buckets, uint32_t cells, uint64_t side_blocks);
/* Write the header of a new ring: OK or TOO_LARGE (no such window, or so many buckets). The rest is zeros. */
int shmq_ring_format(void *memory, const uint8_t queue_id[16], const uint8_t boot_id[16], uint32_t window,
                     uint32_t buckets, uint32_t cells, uint64_t side_blocks);
/* Is it one of this queue, and of which boot? OK, FORMAT, CORRUPT. */
int shmq_ring_check(const void *memory, uint64_t bytes, const uint8_t queue_id[16], uint8_t boot_id[16]);
/* The seat `slot` was sat down in: whoever had it, and may hold messages in this ring, is dead. The first RING_HEADER_BYTES
 * are enough. OK or FORMAT. */
int shmq_ring_bury(void *memory, uint64_t bytes, const uint8_t queue_id[16], uint32_t slot);
/* At a new boot, before any member: clear the ring, and set it and the checkpoint's head by the newest valid snapshot;
 * without one, the group begins again where it was made to begin. Nothing is there before index `first` (0: not known). */
int shmq_ring_rebuild(void *memory, uint64_t bytes, void *checkpoint, const uint8_t boot_id[16], uint64_t first);
/* Clear the boot id, and begin another term: whoever opens it next rebuilds it. */
void shmq_ring_forget(void *memory);
/* A handle on a mapped ring: NULL and FORMAT or CORRUPT in *code. lease_ns: 0 = for ever. finish: to take is to finish.
 * keep_expired: expired messages are handed out as such. */
shmq_ring *shmq_ring_new(void *memory, uint64_t bytes, const uint8_t queue_id[16], void *checkpoint,
                         shmq_member *member, int64_t lease_ns, bool finish, bool keep_expired, int *code);
void shmq_ring_free(shmq_ring *ring);
/* It was mapped again, larger. */
int shmq_ring_remap(shmq_ring *ring, void *memory, uint64_t bytes);
/* The file has been made large enough for so many side blocks. */
void shmq_ring_extend(shmq_ring *ring, uint64_t blocks);
uint64_t shmq_ring_side_blocks(const shmq_ring *ring);
uint32_t shmq_ring_buckets(const shmq_ring *ring);
uint32_t shmq_ring_cells(const shmq_ring *ring);
/* Enter the group, before anything else: what this seat's last tenant held goes back. GROW: map the ring anew first. */
int shmq_ring_join(shmq_ring *ring);
/* What this process has of the group goes back, though no handle of it knows: claimed by a call that was interrupted. Only
 * when it has no other handle. GROW: map the ring anew first. */
int shmq_ring_leave(shmq_ring *ring);

/* Up to `limit` messages that nobody has had yet, from the reader on, all in this chunk: how many (>= 1), or EMPTY, ROLL,
 * WAITING, EDGE (the window is full), GROW (the side table is), CORRUPT, FORKED; with a filter PASSED, as shmq_next has it. */
int64_t shmq_ring_take(shmq_ring *ring, shmq_chunk *chunk, shmq_reader *reader, uint32_t limit, uint32_t spins,
                       shmq_taken *taken);
/* Is there one that nobody has had? 1, and the reader stands before it, or as shmq_ring_take. Nothing is handed out. */
int64_t shmq_ring_glance(shmq_ring *ring, shmq_chunk *chunk, shmq_reader *reader);
/* Is there one that came back, or whose time has come? 1, 0, or GROW, FORKED; *next_ns as below. 2: only such as are to be
 * moved elsewhere, because a dead one had begun that, or they were handed out `most` times (0 = as often as may be). */
int64_t shmq_ring_glance_back(shmq_ring *ring, uint32_t most, int64_t *next_ns);
/* Up to `limit` messages that came back or whose time has come: how many, 0 too; or GROW, FORKED. idle: nothing else is
 * there. *next_ns: when to look again, since boot; INT64_MAX = when the bell rings. */
int64_t shmq_ring_retake(shmq_ring *ring, bool idle, uint32_t limit, shmq_taken *taken, int64_t *next_ns);
/* Is it known, at now_ns since boot, that shmq_ring_retake would find nothing and has nothing else to do? */
bool shmq_ring_quiet(const shmq_ring *ring, int64_t now_ns);
/* Is this the copy that a forked child inherited? */
bool shmq_ring_forked(const shmq_ring *ring);
/* How many messages this handle was handed out and has not finished. To be told whenever EDGE is answered: a member that holds
 * many has to finish them itself. When to ask again, since boot, as *next_ns of shmq_ring_retake. */
int64_t shmq_ring_holds(shmq_ring *ring, uint64_t count);
/* The indexes from `index` to before `next` will never be messages: OK, or EDGE until what is before them is finished, or
 * GROW. */
int shmq_ring_skip(shmq_ring *ring, uint64_t index, uint64_t next);
/* Finish a message that nobody has been handed: OK; EMPTY when it is finished, LOST when somebody has it or had it, EDGE. */
int shmq_ring_skip_one(shmq_ring *ring, uint64_t index);
/* The first index at or behind `start` that nobody has, if there is a message of it; EMPTY when the window has none. */
int64_t shmq_ring_peek(const shmq_ring *ring, uint64_t start);

/* Each acts on what was handed out, if it still is: OK, or LOST, and nothing has changed; or GROW, when it may have been
 * parked where we do not see it: map the ring anew, and again. `taken` may be moved on. */
int shmq_ring_ack(shmq_ring *ring, shmq_taken *taken);
int64_t shmq_ring_ack_many(shmq_ring *ring, uint32_t count, shmq_taken *taken); /* how many were not LOST; or GROW */
int shmq_ring_undo(shmq_ring *ring, shmq_taken *taken);   /* the same of what nobody came to see: it does not count */
int shmq_ring_return(shmq_ring *ring, shmq_taken *taken);                       /* whoever comes first has it */
/* Hand it out again, not before due_ns (since boot), nor before messages up to `behind` were, unless nothing else is
 * there. */
int shmq_ring_nack(shmq_ring *ring, shmq_taken *taken, int64_t due_ns, uint64_t behind);
int shmq_ring_extend_lease(shmq_ring *ring, shmq_taken *taken, int64_t ends_ns);
/* It is being moved to another queue: from here on it is never handed out to be worked at. Then ack it. */
int shmq_ring_moving(shmq_ring *ring, shmq_taken *taken);
/* What was handed out is about to be put into other queues: from here on no lease ends it. OK, LOST, GROW. *again: it may have
 * been put there before, so whoever puts looks first. _unforward: nothing was put, and it is held as before: OK, LOST. */
int shmq_ring_forward(shmq_ring *ring, shmq_taken *taken, bool *again);
/* Does this process still have its seat, so that nobody else puts what it forwards? Asked of the kernel. */
bool shmq_ring_seated(const shmq_ring *ring);
int shmq_ring_unforward(shmq_ring *ring, shmq_taken *taken);
bool shmq_taken_forwards(const shmq_taken *taken);
/* Behind a rebuild: of what lies before `end` nobody knows whether it was put elsewhere. Unless that is said already, or
 * `known` says that it is known. */
void shmq_ring_unsure(shmq_ring *ring, uint64_t end, bool known);
void shmq_ring_count_moved(shmq_ring *ring, bool expired);
void shmq_ring_count_unmoved(shmq_ring *ring);
/* As shmq_count. */
void shmq_ring_counted(const shmq_ring *ring, uint32_t which, uint64_t by);
/* Put a message aside whose word in the window is `word`: EMPTY when it was, GROW, or LOST. */
int shmq_ring_park(shmq_ring *ring, uint64_t index, uint64_t word, int64_t due_ns, uint64_t behind, uint32_t attempts,
                   uint64_t bucket);

/* The head moves over what is finished. */
void shmq_ring_advance(shmq_ring *ring);
/* Everything below has been retired. */
void shmq_ring_raise_head(shmq_ring *ring, uint64_t index);
/* Say that this process holds messages and waits for the end of the stream, or that it does not. */
void shmq_ring_rest(shmq_ring *ring, bool on);
/* Has everything been finished that a walk to the end has passed? holding: or is with those who said so, and with us. */
bool shmq_ring_drained(const shmq_ring *ring, bool holding);
/* How many indexes from `first` to before `end` are not finished, padding that no member has passed included. *head: as
 * it was then; *lowest: the first of them, or where the next one would be. */
uint64_t shmq_ring_unfinished(const shmq_ring *ring, uint64_t first, uint64_t end, uint64_t *head, uint64_t *lowest);
/* As shmq_filter_count, of those that are not before `head` and not finished. */
int shmq_ring_count(const shmq_ring *ring, uint64_t head, const shmq_filter *filter, shmq_chunk *chunk, uint64_t *position,
                    uint64_t *ordinal, uint64_t first, uint64_t stop, uint32_t most, uint64_t *count);
/* Of those from `first` to before `stop` that are not before `head`, how many are not finished. */
uint64_t shmq_ring_open_in(const shmq_ring *ring, uint64_t head, uint64_t first, uint64_t stop);
/* Up to `room` messages that are parked and not finished, in no order: how many. *entry: 0 to begin with, and then as it
 * was left. held: 1 = somebody has it. */
uint32_t shmq_ring_parked(const shmq_ring *ring, uint64_t *entry, uint32_t room, uint64_t *indexes, uint8_t *held);
void shmq_ring_count_retired(shmq_ring *ring, uint64_t count);
/* Everything below was retired: finished for everybody, whoever has it. How many nobody had finished, which whoever calls
 * counts if retention took them from the group; or GROW, FORKED. */
int64_t shmq_ring_retire(shmq_ring *ring, uint64_t first);
/* Everything below `target` is dropped: what nobody has is finished, and so is what comes back later. OK, or GROW, FORKED. */
int shmq_ring_drop(shmq_ring *ring, uint64_t target);
/* The lowest index below `target` that some living member has, or `target`; or GROW, FORKED. */
int64_t shmq_ring_held(shmq_ring *ring, uint64_t target);
/* The lowest index that is still needed, parked ones included, as it is now; or GROW. */
int64_t shmq_ring_lowest(shmq_ring *ring);
/* The same, noted in the checkpoint too. */
uint64_t shmq_ring_floor(shmq_ring *ring);
/* Write the older of the checkpoint's two snapshots: its sequence; GROW: map the ring anew first. Only as leader. */
int64_t shmq_ring_snapshot(shmq_ring *ring, uint64_t epoch);
/* The same in two steps, with something else in between: OK or GROW, and SHMQ_SNAPSHOT_BYTES are in `content`; and the sequence,
 * or EMPTY when another was written meanwhile. */
int shmq_ring_fix(shmq_ring *ring, uint64_t epoch, void *content);
int64_t shmq_ring_write_fixed(void *checkpoint, const void *content);
/* Of a snapshot: everything below *floor is done, but what lies in `runs` (begin, end: room for SHMQ_RUNS_MAX of them): how
 * many these are. */
#define SHMQ_RUNS_MAX 33172
uint64_t shmq_snapshot_open(const void *content, uint64_t *floor, uint64_t *runs);
/* Whichever of a checkpoint's snapshots counts after a power cut: everything below is done. */
uint64_t shmq_snapshots_floor(const void *checkpoint);
/* A look at the window: the head, and the enum ring_state of each of its indexes, one byte each. Nothing is changed. */
uint64_t shmq_ring_states(const shmq_ring *ring, uint8_t *states);

typedef struct {
    uint64_t head;
    uint64_t handed;      /* about how far it has come */
    uint64_t claimed;     /* handed out and not finished */
    uint64_t returned;    /* came back, and nobody has them yet */
    uint64_t parked;      /* wait for their time, or for their key outside the window */
    uint64_t waiting;     /* wait for their key in the window */
    uint64_t redelivered; /* ever: came back from the dead, or by a lease that ended */
    uint64_t expired;     /* ever */
    uint64_t moved;
    uint64_t unmoved;       /* ever: to the dead letters */
    uint64_t edges;       /* ever: found the window full */
    uint64_t window;
    uint64_t at_edge;     /* 1 = somebody waits for room in the window */
    uint64_t retired;     /* ever: taken by retention before anybody finished them */
    uint64_t dropped_to;  /* all before it is dropped, but what somebody has */
    uint64_t to_drop;     /* were dropped, and are finished and counted when the head or a member comes to them */
} shmq_ring_figures;
void shmq_ring_counts(shmq_ring *ring, shmq_ring_figures *figures);
/* One of a checkpoint's two snapshots: what is true of an exclusive name after a power cut. */
typedef struct {
    uint64_t sequence;
    uint64_t epoch;
    uint64_t head;
} shmq_snapshot;
int shmq_snapshot_format(void *bytes, const shmq_snapshot *snapshot);
int shmq_snapshot_check(const void *bytes, shmq_snapshot *snapshot);

/* Which file system that file is on, by its descriptor, or by its path where that is not NULL: 1 for ext2 to ext4, 2 for
 * xfs, on a disk of this machine; 0 for any other, and where the kernel does not say so by itself. */
int shmq_disk_type(int fd, const char *path);
/* Whether that file lies in memory (tmpfs), for whoever knows that it is on this machine. */
bool shmq_in_memory(int fd);
/* Give a file a new name that nobody has: OK, or EMPTY when that name is taken. */
int shmq_rename_new(int directory, const char *old_name, const char *new_name);
/* Whether anything has that name in a directory: OK or EMPTY. */
int shmq_is_there(int directory, const char *name);
/* What has which of the names "name0", "name1" and so on, of *count* numbers in hexadecimal: how many, in *found*, in order. */
typedef struct {
    uint64_t number;
    uint64_t bytes;
    int64_t changed_ns;
    uint64_t device;
    uint64_t inode;
} shmq_named;
int shmq_numbered(int directory, const char *name, uint32_t count, shmq_named *found);
/* Give a file a numbered name that nobody has, the one of its inode first, so that whoever knows the file finds it at the
 * first look: OK; EMPTY: all are taken, or the file has gone. */
int shmq_rename_numbered(int directory, const char *old_name, const char *name, uint32_t count);

/* ------------------------------------------------------------------ syncing
 * Everything before *position, whose index is *next_index, is resolved: claims of the dead are padded on the way. EMPTY
 * at the end of what was claimed, ROLL at the SEAL, WAITING before a claim of *owner, who lives; or CORRUPT. */
int shmq_resolved(shmq_chunk *chunk, uint64_t *position, uint64_t *next_index, uint32_t *owner);
/* Wait until every index below `want`, which lies in this chunk or before it, is on the disk; lead the group commit
 * when nobody does. OK; TIMEOUT; SIGNAL; WAITING: a living claim lies before it, sleep on the queue's bell;
 * SYNC_FAILED; LEAD: this thread leads (*leading is 1) and there is more to sync than this chunk (or it is NULL):
 * do it, then shmq_sync_publish and shmq_sync_release. Any number of threads may call this. */
int shmq_sync_wait(shmq_member *member, shmq_chunk *chunk, uint64_t want, int64_t deadline_ns, uint32_t *leading);
/* The bell as it is, for whoever sleeps until somebody dies, joins or rings anyway, and need not be told of puts. */
uint32_t shmq_bell(const void *control);
/* The same for what was put into that chunk, for ever and without an end as the leader: LEAD says that more than this
 * chunk is to be synced, and that nobody leads now. */
int shmq_sync_put(shmq_chunk *chunk, uint64_t want);
/* What the thread that keeps an interval shares with the others of its process. */
typedef struct {
    uint32_t nudge;     /* 1: it is to end */
    int directory;      /* of the chunks: their names are synced in it */
    uint64_t following; /* the chunk that this process rolled to last, or 0 */
} shmq_keeper;
/* Sleep for the interval and sync what was put into that chunk, and into those that followed it, again and again: OK once
 * there was nothing to sync, or the nudge was given; LEAD when there is more to do than that, or it did not work: look,
 * and sync in the long way. */
int shmq_sync_keep(shmq_chunk *chunk, int64_t interval_ns, int64_t mark_due_ns, shmq_keeper *keeper);
/* This process rolled to that chunk, which must live until shmq_sync_keep has returned; NULL forgets it. */
void shmq_sync_rolled(shmq_keeper *keeper, shmq_chunk *chunk);
/* Have these bytes of a file's shared mapping on the disk, as the group commit does: 0, or -errno. */
int shmq_sync_mapped(void *begin, size_t bytes);
/* Whether a sync of this chunk's queue has failed, so that nothing more may be put that must be durable. */
int shmq_sync_refuses(const shmq_chunk *chunk);
/* As leader: everything below index is on the disk, and the next sync begins in that chunk, at that position. */
void shmq_sync_publish(shmq_member *member, uint64_t index, uint64_t chunk, uint64_t position);
/* Lead the group commit if nobody does: 1, and shmq_sync_stop comes after it, or 0; *leading says the same. */
int shmq_sync_try(shmq_member *member, uint32_t *leading);
/* Give the leadership back, and wake who waits. */
void shmq_sync_release(shmq_member *member);
/* The same and shmq_acks_answer, if *leading says that it is ours; then it does not any more. One call, which no signal's
 * handler divides: whoever leads for a while calls it at the end, in any case. */
void shmq_sync_stop(shmq_member *member, uint32_t *leading);
/* As leader, who may have been overtaken: 1 and *held, if nobody else writes the watermark or a snapshot now; 0, or an
 * error. Then shmq_papers_give comes after it, in any case; it does nothing unless *held. */
int shmq_papers_take(shmq_member *member, uint32_t *held);
void shmq_papers_give(shmq_member *member, uint32_t *held);
/* A sync failed (1), or a reopening has verified what is there (0): for every process. Wakes all. */
void shmq_sync_failed(void *control, uint32_t failed);
uint32_t shmq_sync_has_failed(const void *control);
uint64_t shmq_durable(const void *control);
uint64_t shmq_durable_chunk(const void *control);
/* A position in that chunk before which everything is on the disk; 0 when none is known. */
uint64_t shmq_durable_at(const void *control, uint64_t chunk);
/* Acknowledgements that are to be on the disk. Say that what this thread has acknowledged under a name is: a number. */
uint64_t shmq_acks_ask(shmq_member *member, void *checkpoint);
/* Wait until that number, and all before it, is on the disk: OK; SIGNAL; SYNC_FAILED; LEAD: this thread leads. */
int shmq_acks_wait(shmq_member *member, const void *checkpoint, uint64_t want, uint32_t *leading);
/* As leader: whether somebody may have asked since the last leader looked. Then for each name: read what was asked, take
 * its snapshot, sync it, publish both; and once the leadership is given back, answer. */
uint32_t shmq_acks_begin(shmq_member *member);
uint64_t shmq_acks_asked(const void *checkpoint);
uint64_t shmq_acks_synced(const void *checkpoint);
void shmq_acks_publish(void *checkpoint, uint64_t asked, uint64_t sequence);
void shmq_acks_answer(shmq_member *member);
/* The sequence of the newest snapshot that is known to be on the disk; 0 = not known. */
uint64_t shmq_snapshot_synced(const void *checkpoint);
/* Have the kernel begin to write what is dirty in a file: several that are synced afterwards are written at once. */
int shmq_start_writing(int fd);
/* As leader, when one of these words cannot be true: nothing is known but what the watermark says. */
void shmq_durable_reset(void *control, uint64_t index, uint64_t chunk);

/* ------------------------------------------------------------------ files of other programs
 * A word of 4 or 8 bytes `at` some place of a shared mapping of so many `bytes`, which other processes change meanwhile:
 * loaded (acquire), stored (release), or changed if it is what was expected: 1, or 0 where it is not. CORRUPT: that place
 * is not in the mapping, or no multiple of the word's width. Any number of threads. */
int64_t shmq_foreign_load32(void *memory, uint64_t bytes, uint64_t at);
int shmq_foreign_cas32(void *memory, uint64_t bytes, uint64_t at, uint32_t expected, uint32_t desired);
int shmq_foreign_load64(void *memory, uint64_t bytes, uint64_t at, int64_t *found);
int shmq_foreign_cas64(void *memory, uint64_t bytes, uint64_t at, int64_t expected, int64_t desired);
int shmq_foreign_store64(void *memory, uint64_t bytes, uint64_t at, int64_t value);

/* ------------------------------------------------------------------ CRC-32C (Castagnoli) */
uint32_t shmq_crc32c(uint32_t crc, const void *bytes, uint64_t length);       /* as the processor can */
uint32_t shmq_crc32c_table(uint32_t crc, const void *bytes, uint64_t length); /* the portable one */
int shmq_crc32c_is_hardware(void);
/* Four at once: pieces of one length, `apart` bytes apart, each continuing the sum of a head of 16 bytes of its own. */
void shmq_crc32c_four(uint32_t crc, const void *heads, const void *bytes, uint64_t apart, uint64_t length, uint32_t *sums);

#endif
