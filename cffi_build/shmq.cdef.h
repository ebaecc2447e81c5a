/* shmq.cdef.h - the calls Python may make. include/shmq.h says what they promise; tests/house/ holds the two together. */
enum shmq_code {
    SHMQ_OK = 0,
    SHMQ_EMPTY = -1,
    SHMQ_ROLL = -2,
    SHMQ_WAITING = -3,
    SHMQ_FENCED = -4,
    SHMQ_FORKED = -5,
    SHMQ_CORRUPT = -6,
    SHMQ_TOO_LARGE = -7,
    SHMQ_TOO_MANY = -8,
    SHMQ_TIMEOUT = -9,
    SHMQ_SIGNAL = -10,
    SHMQ_SYSTEM = -11,
    SHMQ_SHUT_DOWN = -12,
    SHMQ_FORMAT = -13,
    SHMQ_CONTENDED = -14,
    SHMQ_RETIRED = -15,
    SHMQ_PADDED = -16,
    SHMQ_SYNC_FAILED = -17,
    SHMQ_LEAD = -18,
    SHMQ_FULL = -19,
    SHMQ_EDGE = -20,
    SHMQ_GROW = -21,
    SHMQ_LOST = -22,
    SHMQ_FOREIGN = -23,
    SHMQ_PASSED = -24
};
const char *shmq_error(void);
int shmq_errno(void);
typedef struct {
    uint32_t entry;
    uint32_t forks;
    void *kept;
} shmq_lock;
int shmq_lock_open(shmq_lock *lock, int fd);
int shmq_lock_try(shmq_lock *lock, uint64_t byte);
int shmq_lock_share(shmq_lock *lock, uint64_t byte);
int shmq_lock_give_back(shmq_lock *lock, uint64_t byte);
int shmq_lock_keep(shmq_lock *lock);
int shmq_lock_fd(const shmq_lock *lock);
void shmq_lock_close(shmq_lock *lock);

typedef struct shmq_member shmq_member;
shmq_member *shmq_member_new(void *control);
void shmq_member_seats(shmq_member *member, uint32_t seats);
int shmq_member_open(shmq_member *member, int lock_fd, int test_fd);
int shmq_member_by_path(shmq_member *member, int directory, const char *path);
int shmq_member_keep(shmq_member *member);
int shmq_member_lock(shmq_member *member, uint64_t *since, uint32_t *generation);
int shmq_member_join(shmq_member *member, uint32_t pid, uint64_t pid_namespace, uint64_t start_time, uint64_t boot_tag,
                     uint64_t since);
void shmq_member_since(shmq_member *member, uint64_t since);
void shmq_member_left(shmq_member *member, uint64_t since);
uint32_t shmq_member_owner(const shmq_member *member);
typedef struct {
    uint32_t generation;
    uint32_t pid;
    uint64_t pid_namespace;
    uint64_t start_time;
    uint64_t boot_tag;
} shmq_participant;
uint32_t shmq_participant_at(const void *control, uint32_t slot, shmq_participant *participant);
int shmq_slot_locked(shmq_member *member, uint32_t slot);
int shmq_member_seated(shmq_member *member);
int shmq_owner_alive(shmq_member *member, uint32_t owner);
int shmq_member_forked(const shmq_member *member);
void shmq_member_leave(shmq_member *member);
void shmq_member_free(shmq_member *member);
uint32_t shmq_wait_begin(shmq_member *member);
int shmq_wait(shmq_member *member, uint32_t seen, int64_t deadline_ns);
void shmq_wake(shmq_member *member);
void shmq_wake_always(void *control);
#define SHMQ_ANY_MAX 127
void *shmq_bell_of(shmq_member *member);
int shmq_wait_any(void *const *bells, const uint32_t *seen, uint32_t count, uint32_t *nudge, int64_t deadline_ns);
void *shmq_room_bell_of(shmq_member *member);
uint32_t shmq_moved(void *const *bells, const uint32_t *seen, uint32_t count, uint32_t *moved);
void shmq_nudge(uint32_t *nudge);
int64_t shmq_clock_monotonic_ns(void);
int64_t shmq_clock_boottime_ns(void);
int64_t shmq_clock_wall_ns(void);
typedef struct shmq_chunk shmq_chunk;
int shmq_chunk_format(void *memory, uint64_t bytes, const uint8_t *queue_id, uint64_t chunk_id, uint64_t epoch,
                      uint64_t base, uint64_t sequence, uint32_t index_spacing, uint32_t grain, int64_t created_ns);
void shmq_chunk_clear(void *memory, uint64_t bytes, uint64_t used, uint32_t index_spacing, uint32_t grain);
uint64_t shmq_chunk_used(const void *memory, uint64_t bytes, uint32_t grain);
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
shmq_chunk *shmq_chunk_new(void *memory, uint64_t bytes, bool pads, bool writable, bool checksum, uint64_t base,
                           uint64_t sequence, const uint8_t *queue_id, shmq_member *member, int *code);
void shmq_chunk_free(shmq_chunk *chunk);
void shmq_chunk_is_populated(shmq_chunk *chunk);
uint64_t shmq_chunk_epoch(const shmq_chunk *chunk);
uint64_t shmq_chunk_first_position(const shmq_chunk *chunk);
uint64_t shmq_chunk_bytes_for(uint64_t region, uint32_t index_spacing, uint32_t grain);
typedef struct {
    const char *key;
    uint32_t key_length;
    uint32_t type;
    int64_t time_ns;
    const char *headers;
    uint32_t headers_length;
    uint32_t fixed_flags;
    const char *fixed;
} shmq_fields;
int64_t shmq_put(shmq_chunk *chunk, const char *payload, uint64_t length);
int64_t shmq_put_record(shmq_chunk *chunk, const shmq_fields *fields, const char *payload, uint64_t length);
int64_t shmq_put_many(shmq_chunk *chunk, uint32_t count, const char *payloads, const uint32_t *lengths,
                      const char *keys, const uint32_t *key_lengths, const uint32_t *types, const int64_t *times,
                      const char *headers, const uint32_t *header_lengths, uint32_t fixed_flags, const char *fixed);
uint64_t shmq_region_bytes(uint32_t count, const uint32_t *lengths, const uint32_t *key_lengths,
                           const uint32_t *header_lengths, uint32_t fixed_flags);
uint64_t shmq_record_bytes(const shmq_fields *fields, uint64_t length);
int shmq_check_fields(const shmq_fields *fields, uint64_t length);
int64_t shmq_put_each(shmq_chunk *chunk, uint32_t count, const shmq_fields *fields, const char *const *payloads,
                      const uint64_t *lengths);
typedef struct {
    uint8_t producer[16];
    uint64_t sequence;
    uint64_t position;
    uint64_t first;
    uint64_t end;
    uint32_t count;
    uint32_t reserved;
} shmq_dedup_found;
enum shmq_dedup_wanted {
    SHMQ_DEDUP_ALL = 0,
    SHMQ_DEDUP_PUT = 1,
    SHMQ_DEDUP_NEWEST = 2,
    SHMQ_DEDUP_SOURCE = 3
};
int64_t shmq_scan_dedup(shmq_chunk *chunk, uint64_t *position, uint64_t *ordinal, uint64_t until, uint32_t wanted,
                        const uint8_t source[16], uint32_t capacity, shmq_dedup_found *found, int *code);
typedef struct {
    uint8_t producer[16];
    uint64_t byte;
    shmq_lock *lock;
    uint64_t chunk;
    uint64_t position;
    uint64_t ordinal;
    bool any;
    uint64_t sequence;
    uint64_t first;
} shmq_once;
int64_t shmq_put_once(shmq_chunk *chunk, shmq_once *once, uint64_t sequence, const shmq_fields *fields, const char *payload,
                      uint64_t length);
int64_t shmq_reserve(shmq_chunk *chunk, const shmq_fields *fields, uint64_t length, uint64_t *claimed,
                     uint64_t *record, uint64_t *payload);
uint8_t *shmq_map_again(void *begin, size_t bytes);
int shmq_make_private(uint8_t *again, size_t bytes);
void shmq_unmap_again(uint8_t *again, size_t bytes);
void shmq_fill(shmq_chunk *chunk, uint64_t payload, const void *data, uint64_t length);
int shmq_commit(shmq_chunk *chunk, uint64_t record, uint64_t claimed, uint64_t length);
int shmq_abort(shmq_chunk *chunk, uint64_t record, uint64_t claimed);
int shmq_seal(shmq_chunk *chunk);
int shmq_seal_again(shmq_chunk *chunk, uint64_t adoption);
int shmq_seal_adopt(shmq_chunk *chunk, uint64_t adoption);
void shmq_seals_as(shmq_chunk *chunk, uint64_t adoption);
uint64_t shmq_adoption(shmq_chunk *chunk);
int shmq_sealed(shmq_chunk *chunk, uint64_t *next_index);
int shmq_tail(shmq_chunk *chunk, uint64_t *next_index, uint64_t *position);
int64_t shmq_bury(shmq_chunk *chunk, uint32_t owner);
typedef struct shmq_filter shmq_filter;
shmq_filter *shmq_filter_new(const char *prefix, uint32_t prefix_length, const uint16_t *types, uint32_t type_count,
                             const char *headers, uint32_t headers_length);
void shmq_filter_free(shmq_filter *filter);
int shmq_filter_matches(const shmq_filter *filter, const shmq_chunk *chunk, uint64_t position);
int shmq_filter_count(const shmq_filter *filter, shmq_chunk *chunk, uint64_t *position, uint64_t *ordinal, uint64_t first,
                      uint64_t stop, uint32_t most, uint64_t *count);
typedef struct {
    uint64_t position;
    uint64_t ordinal;
    uint64_t record;
    uint64_t index;
    uint64_t padded;
    uint64_t start;
    uint64_t waiting_for;
    void *checkpoint;
    uint32_t busy;
    int64_t due_ns;
    const shmq_filter *filter;
    uint64_t passed;
} shmq_reader;
int64_t shmq_next(shmq_chunk *chunk, shmq_reader *reader, uint32_t spins);
typedef struct {
    uint64_t record;
    uint64_t index;
} shmq_which;
int64_t shmq_next_which(shmq_chunk *chunk, shmq_reader *reader, uint32_t spins, shmq_which *which);
int64_t shmq_glance(shmq_chunk *chunk, shmq_reader *reader, shmq_which *which);
int64_t shmq_next_many(shmq_chunk *chunk, shmq_reader *reader, uint32_t limit, uint64_t *places, uint64_t *records);
int shmq_reader_seek(shmq_chunk *chunk, shmq_reader *reader, uint64_t ordinal);
int64_t shmq_check(shmq_chunk *chunk, uint64_t position, uint64_t ordinal);
enum shmq_column {
    SHMQ_INDEX = 0,
    SHMQ_TIME = 1,
    SHMQ_KEY = 2,
    SHMQ_TYPE = 3,
    SHMQ_PAYLOAD = 4,
    SHMQ_HEADERS = 5,
    SHMQ_ATTEMPTS = 6,
    SHMQ_COLUMNS = 7
};
typedef struct {
    uint32_t columns;
    uint32_t checked;
    uint64_t rows;
    uint64_t bytes;
    uint64_t stop;
    int64_t stop_time_ns;
} shmq_wanted;
typedef struct {
    uint64_t validity;
    uint64_t offsets;
    uint64_t values;
    uint64_t bytes;
    uint64_t absent;
} shmq_column_place;
typedef struct {
    void *memory;
    uint64_t bytes;
    uint64_t first;
    uint64_t last;
    shmq_column_place columns[7];
} shmq_gathered;
int64_t shmq_gather(shmq_chunk *chunk, shmq_reader *reader, const shmq_wanted *wanted, shmq_gathered *batch);
void shmq_gathered_free(void *memory);
typedef struct {
    uint32_t offset;
    uint32_t bytes;
} shmq_field;
int64_t shmq_gather_records(shmq_chunk *chunk, shmq_reader *reader, const shmq_wanted *wanted, uint32_t size,
                            uint32_t count, const shmq_field *fields, shmq_gathered *batch, shmq_column_place *places);
int64_t shmq_lengths(uint32_t count, const int32_t *offsets, uint64_t bytes, uint32_t *lengths);
int64_t shmq_find(shmq_chunk *chunk, uint64_t ordinal, uint64_t *record);
int64_t shmq_range(shmq_chunk *chunk, uint64_t first, uint64_t last, uint64_t *indexes, uint64_t *records,
                   uint64_t *places);
int shmq_at(shmq_chunk *chunk, int64_t time_ns, uint64_t *ordinal, uint64_t *open, int64_t *time_max);
uint64_t shmq_bounds(const void *control, uint64_t *max_messages, uint64_t *max_bytes, uint64_t *dropped);
void shmq_bounds_set(void *control, uint64_t max_messages, uint64_t max_bytes);
void shmq_bounds_recount(void *control);
void shmq_bounds_begin(void *control);
void shmq_limit(shmq_chunk *chunk, uint64_t bounds, uint64_t ordinals, uint64_t position);
int shmq_floor(shmq_chunk *chunk, uint64_t *ordinal, uint64_t *position);
int shmq_filled(shmq_chunk *chunk, uint64_t start, uint64_t *end, uint64_t *bytes);
void shmq_drop(void *control, uint64_t index);
uint32_t shmq_room_begin(shmq_member *member);
int shmq_room_wait(shmq_member *member, uint32_t seen, int64_t deadline_ns);
void shmq_room(void *control);
void shmq_room_always(void *control);
typedef struct {
    uint64_t position;
    uint64_t ordinal;
    uint64_t stopped;
    uint64_t stopped_ordinal;
    uint64_t messages;
    uint64_t bytes;
    uint64_t padded;
    uint64_t open_padded;
    uint64_t claims;
    uint64_t gap_position;
    uint64_t gap_index;
    uint64_t adoption;
    uint64_t missing;
    uint64_t doubted;
} shmq_survey;
int shmq_survey_chunk(shmq_chunk *chunk, shmq_survey *survey, uint64_t trusted, bool pass_claims, bool singly);
bool shmq_indexed(shmq_chunk *chunk, uint64_t ordinals);
void shmq_hint(const shmq_chunk *chunk, uint64_t *position, uint64_t *ordinal);
typedef struct {
    uint64_t position;
    uint64_t ordinal;
    uint64_t end;
    uint64_t end_ordinal;
} shmq_damage;
int shmq_resync(const shmq_chunk *chunk, uint64_t agreed, uint64_t agreed_ordinal, shmq_damage *damage);
int shmq_resync_reader(const shmq_chunk *chunk, const shmq_reader *reader, shmq_damage *damage);
int64_t shmq_cut(shmq_chunk *chunk, uint64_t position, uint64_t next_index);
int shmq_set_in_order(shmq_chunk *chunk, uint64_t position, uint64_t ordinal);
int shmq_pad_over(shmq_chunk *chunk, uint64_t position, uint64_t end, uint64_t count);
int64_t shmq_pad_behind(shmq_chunk *chunk, uint64_t position, uint64_t count);
void shmq_end_at(shmq_chunk *chunk, uint64_t position);
int64_t shmq_zero_from(shmq_chunk *chunk, uint64_t position);
uint64_t shmq_first_live(const void *control);
void shmq_raise_first_live(void *control, uint64_t sequence);
uint64_t shmq_newest(const void *control);
uint64_t shmq_newest_base(const void *control);
void shmq_newest_raise(void *control, uint64_t newest, uint64_t base);
uint32_t shmq_members(const void *control);
void shmq_shut_down(void *control, uint32_t how);
uint32_t shmq_is_shut_down(const void *control);
void shmq_set_finished(void *control, uint32_t finished);
uint32_t shmq_finished(const void *control);
void shmq_add_padding(void *control, uint64_t count);
void shmq_remove_padding(void *control, uint64_t count);
uint64_t shmq_pads(const shmq_chunk *chunk);
void shmq_pads_begin(shmq_member *member);
void shmq_pads_end(shmq_member *member);
void shmq_pads_doubt(void *control);
uint32_t shmq_pads_doubted(shmq_member *member);
int shmq_pads_count(shmq_member *member, uint64_t *doubted, uint64_t *padded);
int shmq_pads_counted(shmq_member *member, uint64_t doubted, uint64_t padded, uint64_t total);
int shmq_next_missing(shmq_chunk *chunk, bool claims, uint64_t *position, uint64_t *ordinal, uint64_t *first,
                      uint64_t *count);
void shmq_counters(const void *control, uint64_t *padded, uint64_t *fenced);
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
void shmq_count_put(const shmq_chunk *chunk, uint64_t messages, uint64_t bytes);
void shmq_count_latency(const shmq_chunk *chunk, uint64_t record);
void shmq_counts(const void *control, uint64_t *sums, uint64_t *latency, uint64_t *latency_ns);
uint32_t shmq_syncs(const void *control);
#define SHMQ_PAGE_BYTES 4096
#define SHMQ_QUEUE_BYTES 20480
#define SHMQ_QUEUE_HEADER_BYTES 56
#define SHMQ_CONTROL_BYTES 69632
#define SHMQ_CONTROL_BYTES_SMALL 20480
#define SHMQ_CHECKPOINT_BYTES 28672
#define SHMQ_BATCH_MAX 8191
#define SHMQ_SNAPSHOT_BASE 4096
#define SHMQ_SNAPSHOT_BYTES 12288
int shmq_queue_format(void *page, const uint8_t *queue_id, int64_t created_ns, const char *options, uint32_t length);
int shmq_queue_check(const void *page, uint8_t *queue_id, uint32_t *options_length);
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
int shmq_journal_format(void *page, const shmq_journal *journal, const char *options, uint32_t length);
int shmq_journal_check(const void *page);
typedef struct {
    uint64_t sequence;
    uint64_t epoch;
    uint64_t chunk_sequence;
    uint64_t position;
    uint64_t next_index;
} shmq_watermark;
int shmq_watermark_format(void *page, const shmq_watermark *mark);
int shmq_watermark_check(const void *page, shmq_watermark *mark);
int shmq_control_format(void *memory, const uint8_t *queue_id);
int shmq_control_check(const void *memory, uint64_t bytes, const uint8_t *queue_id);
int shmq_checkpoint_format(void *memory, const uint8_t *queue_id, const char *name, uint32_t name_length,
                           uint32_t kind, bool explicit_ack, bool subscribed, uint64_t start_index,
                           int64_t created_ns);
int shmq_checkpoint_check(const void *memory, uint64_t bytes, const uint8_t *queue_id, const char *name,
                          uint32_t name_length);
int shmq_checkpoint_rename(void *memory, const char *name, uint32_t name_length);
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
uint64_t shmq_checkpoint_floor(const void *memory);
void shmq_cursor_save(void *memory, uint64_t sequence, uint64_t position, uint64_t ordinal, uint64_t index);
int shmq_cursor_load(const void *memory, uint64_t *sequence, uint64_t *position, uint64_t *ordinal, uint64_t *index);
typedef struct {
    uint64_t sequence;
    uint64_t epoch;
    uint64_t head;
} shmq_snapshot;
int shmq_snapshot_format(void *bytes, const shmq_snapshot *snapshot);
int shmq_snapshot_check(const void *bytes, shmq_snapshot *snapshot);
int shmq_disk_type(int fd, const char *path);
bool shmq_in_memory(int fd);
int shmq_rename_new(int directory, const char *old_name, const char *new_name);
int shmq_is_there(int directory, const char *name);
typedef struct {
    uint64_t number;
    uint64_t bytes;
    int64_t changed_ns;
    uint64_t device;
    uint64_t inode;
} shmq_named;
int shmq_numbered(int directory, const char *name, uint32_t count, shmq_named *found);
int shmq_rename_numbered(int directory, const char *old_name, const char *name, uint32_t count);
int shmq_resolved(shmq_chunk *chunk, uint64_t *position, uint64_t *next_index, uint32_t *owner);
int shmq_sync_wait(shmq_member *member, shmq_chunk *chunk, uint64_t want, int64_t deadline_ns, uint32_t *leading);
typedef struct {
    uint32_t nudge;
    int directory;
    uint64_t following;
} shmq_keeper;
int shmq_sync_keep(shmq_chunk *chunk, int64_t interval_ns, int64_t mark_due_ns, shmq_keeper *keeper);
void shmq_sync_rolled(shmq_keeper *keeper, shmq_chunk *chunk);
int shmq_sync_mapped(void *begin, size_t bytes);
uint32_t shmq_bell(const void *control);
void shmq_sync_publish(shmq_member *member, uint64_t index, uint64_t chunk, uint64_t position);
int shmq_sync_try(shmq_member *member, uint32_t *leading);
void shmq_sync_stop(shmq_member *member, uint32_t *leading);
int shmq_papers_take(shmq_member *member, uint32_t *held);
void shmq_papers_give(shmq_member *member, uint32_t *held);
uint64_t shmq_acks_ask(shmq_member *member, void *checkpoint);
int shmq_acks_wait(shmq_member *member, const void *checkpoint, uint64_t want, uint32_t *leading);
uint32_t shmq_acks_begin(shmq_member *member);
uint64_t shmq_acks_asked(const void *checkpoint);
uint64_t shmq_acks_synced(const void *checkpoint);
void shmq_acks_publish(void *checkpoint, uint64_t asked, uint64_t sequence);
uint64_t shmq_snapshot_synced(const void *checkpoint);
int shmq_start_writing(int fd);
void shmq_sync_failed(void *control, uint32_t failed);
uint32_t shmq_sync_has_failed(const void *control);
uint64_t shmq_durable(const void *control);
uint64_t shmq_durable_chunk(const void *control);
uint64_t shmq_durable_at(const void *control, uint64_t chunk);
void shmq_durable_reset(void *control, uint64_t index, uint64_t chunk);
uint32_t shmq_crc32c(uint32_t crc, const void *bytes, uint64_t length);
uint32_t shmq_crc32c_table(uint32_t crc, const void *bytes, uint64_t length);
int shmq_crc32c_is_hardware(void);
void shmq_crc32c_four(uint32_t crc, const void *heads, const void *bytes, uint64_t apart, uint64_t length, uint32_t *sums);
typedef struct shmq_ring shmq_ring;
enum shmq_taken_kind {
    SHMQ_TAKEN_MESSAGE = 0,
    SHMQ_TAKEN_EXPIRED = 1,
    SHMQ_TAKEN_MOVING = 2
};
typedef struct {
    uint64_t index;
    uint64_t place;
    uint64_t record;
    uint64_t word;
    uint64_t entry;
    uint32_t attempts;
    uint32_t kind;
    uint64_t bucket;
    uint64_t gate;
} shmq_taken;
uint64_t shmq_ring_bytes(uint32_t window, uint32_t buckets, uint32_t cells, uint64_t side_blocks);
int shmq_ring_format(void *memory, const uint8_t *queue_id, const uint8_t *boot_id, uint32_t window,
                     uint32_t buckets, uint32_t cells, uint64_t side_blocks);
int shmq_ring_check(const void *memory, uint64_t bytes, const uint8_t *queue_id, uint8_t *boot_id);
int shmq_ring_bury(void *memory, uint64_t bytes, const uint8_t *queue_id, uint32_t slot);
int shmq_ring_rebuild(void *memory, uint64_t bytes, void *checkpoint, const uint8_t *boot_id, uint64_t first);
void shmq_ring_forget(void *memory);
shmq_ring *shmq_ring_new(void *memory, uint64_t bytes, const uint8_t *queue_id, void *checkpoint,
                         shmq_member *member, int64_t lease_ns, bool finish, bool keep_expired, int *code);
void shmq_ring_free(shmq_ring *ring);
int shmq_ring_remap(shmq_ring *ring, void *memory, uint64_t bytes);
void shmq_ring_extend(shmq_ring *ring, uint64_t blocks);
uint64_t shmq_ring_side_blocks(const shmq_ring *ring);
uint32_t shmq_ring_buckets(const shmq_ring *ring);
uint32_t shmq_ring_cells(const shmq_ring *ring);
int shmq_ring_join(shmq_ring *ring);
int shmq_ring_leave(shmq_ring *ring);
int64_t shmq_ring_take(shmq_ring *ring, shmq_chunk *chunk, shmq_reader *reader, uint32_t limit, uint32_t spins,
                       shmq_taken *taken);
int64_t shmq_ring_glance(shmq_ring *ring, shmq_chunk *chunk, shmq_reader *reader);
int64_t shmq_ring_glance_back(shmq_ring *ring, uint32_t most, int64_t *next_ns);
int64_t shmq_ring_retake(shmq_ring *ring, bool idle, uint32_t limit, shmq_taken *taken, int64_t *next_ns);
int64_t shmq_ring_holds(shmq_ring *ring, uint64_t count);
int shmq_ring_skip(shmq_ring *ring, uint64_t index, uint64_t next);
int shmq_ring_skip_one(shmq_ring *ring, uint64_t index);
int64_t shmq_ring_peek(const shmq_ring *ring, uint64_t start);
int shmq_ring_ack(shmq_ring *ring, shmq_taken *taken);
int64_t shmq_ring_ack_many(shmq_ring *ring, uint32_t count, shmq_taken *taken);
int shmq_ring_return(shmq_ring *ring, shmq_taken *taken);
int shmq_ring_undo(shmq_ring *ring, shmq_taken *taken);
int shmq_ring_nack(shmq_ring *ring, shmq_taken *taken, int64_t due_ns, uint64_t behind);
int shmq_ring_extend_lease(shmq_ring *ring, shmq_taken *taken, int64_t ends_ns);
int shmq_ring_moving(shmq_ring *ring, shmq_taken *taken);
int shmq_ring_forward(shmq_ring *ring, shmq_taken *taken, bool *again);
int shmq_ring_unforward(shmq_ring *ring, shmq_taken *taken);
bool shmq_taken_forwards(const shmq_taken *taken);
void shmq_ring_unsure(shmq_ring *ring, uint64_t end, bool known);
void shmq_ring_count_moved(shmq_ring *ring, bool expired);
void shmq_ring_count_unmoved(shmq_ring *ring);
void shmq_ring_advance(shmq_ring *ring);
void shmq_ring_rest(shmq_ring *ring, bool on);
bool shmq_ring_drained(const shmq_ring *ring, bool holding);
uint64_t shmq_ring_unfinished(const shmq_ring *ring, uint64_t first, uint64_t end, uint64_t *head, uint64_t *lowest);
int shmq_ring_count(const shmq_ring *ring, uint64_t head, const shmq_filter *filter, shmq_chunk *chunk, uint64_t *position,
                    uint64_t *ordinal, uint64_t first, uint64_t stop, uint32_t most, uint64_t *count);
uint64_t shmq_ring_open_in(const shmq_ring *ring, uint64_t head, uint64_t first, uint64_t stop);
uint32_t shmq_ring_parked(const shmq_ring *ring, uint64_t *entry, uint32_t room, uint64_t *indexes, uint8_t *held);
void shmq_ring_count_retired(shmq_ring *ring, uint64_t count);
int64_t shmq_ring_retire(shmq_ring *ring, uint64_t first);
int shmq_ring_drop(shmq_ring *ring, uint64_t target);
int64_t shmq_ring_held(shmq_ring *ring, uint64_t target);
int64_t shmq_ring_lowest(shmq_ring *ring);
uint64_t shmq_ring_floor(shmq_ring *ring);
int64_t shmq_ring_snapshot(shmq_ring *ring, uint64_t epoch);
int shmq_ring_fix(shmq_ring *ring, uint64_t epoch, void *content);
int64_t shmq_ring_write_fixed(void *checkpoint, const void *content);
#define SHMQ_RUNS_MAX 33172
uint64_t shmq_snapshot_open(const void *content, uint64_t *floor, uint64_t *runs);
uint64_t shmq_snapshots_floor(const void *checkpoint);
uint64_t shmq_ring_states(const shmq_ring *ring, uint8_t *states);
typedef struct {
    uint64_t head;
    uint64_t handed;
    uint64_t claimed;
    uint64_t returned;
    uint64_t parked;
    uint64_t waiting;
    uint64_t redelivered;
    uint64_t expired;
    uint64_t moved;
    uint64_t unmoved;
    uint64_t edges;
    uint64_t window;
    uint64_t at_edge;
    uint64_t retired;
    uint64_t dropped_to;
    uint64_t to_drop;
} shmq_ring_figures;
void shmq_ring_counts(shmq_ring *ring, shmq_ring_figures *figures);
int64_t shmq_foreign_load32(void *memory, uint64_t bytes, uint64_t at);
int shmq_foreign_cas32(void *memory, uint64_t bytes, uint64_t at, uint32_t expected, uint32_t desired);
int shmq_foreign_load64(void *memory, uint64_t bytes, uint64_t at, int64_t *found);
int shmq_foreign_cas64(void *memory, uint64_t bytes, uint64_t at, int64_t expected, int64_t desired);
int shmq_foreign_store64(void *memory, uint64_t bytes, uint64_t at, int64_t value);
