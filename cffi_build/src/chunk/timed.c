/* timed.c - messages that expire, and messages that wait for their time, as a consumer meets them.
 *
 * Within the boot that a moment names it is on the clock since boot; after a reboot the wall clock decides. */
#include "chunk/timed.h"

#include <string.h>

#include "os/os.h"

static uint64_t this_boot(const shmq_chunk *chunk)
{
    const struct shmq_member *const member = chunk->member;
    return load_relaxed(&member->control->participants[member->slot].boot_tag);
}

void shmq_when(const shmq_chunk *chunk, int64_t after_ns, char *field)
{
    const struct field_when when = {
        .wall_ns = os->clock_wall_ns() + after_ns,
        .boottime_ns = os->clock_boottime_ns() + after_ns,
        .boot_tag = this_boot(chunk),
    };
    _Static_assert(sizeof when == SHMQ_WHEN_BYTES, "shmq.h says how long it is");
    memcpy(field, &when, sizeof when);
}

int64_t record_moment(const shmq_chunk *chunk, uint64_t position)
{
    struct field_when when;
    if (position + sizeof when > chunk->capacity) {
        return INT64_MAX; /* flags that were changed since the message was checked: never due, never too old */
    }
    shared_read(&when, chunk->memory + position, sizeof when);
    return when.boot_tag == this_boot(chunk) ? when.boottime_ns
                                             : when.wall_ns - os->clock_wall_ns() + os->clock_boottime_ns();
}

int record_timely(const shmq_chunk *chunk, shmq_reader *reader, uint64_t position, uint16_t times)
{
    uint64_t at = position + RECORD_HEADER_BYTES;
    reader->due_ns = 0;
    if (times & RECORD_EXPIRY) {
        if (record_moment(chunk, at) <= os->clock_boottime_ns()) {
            add_relaxed(&chunk->member->control->expired, 1);
            return SHMQ_EMPTY;
        }
        at += sizeof(struct field_when);
    }
    reader->due_ns = times & RECORD_DELAY ? record_moment(chunk, at) : 0;
    if (reader->due_ns > os->clock_boottime_ns()) {
        return SHMQ_WAITING;
    }
    reader->due_ns = 0;
    return SHMQ_OK;
}
