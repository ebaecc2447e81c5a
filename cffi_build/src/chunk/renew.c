/* renew.c - a used file that this process has mapped becomes the next chunk, in one call: a queue whose consumers keep up
 * lives in a few files that go round, and what this costs is what a roll costs.
 *
 * The steps are those of shmq/storage/spares.py, where the rules stand, and where any other file is taken the long way. */
#include <errno.h>

#include "error.h"
#include "layout.h"
#include "os/named.h"
#include "os/os.h"
#include "shmq.h"

#define MAPPERS_BYTE 0u /* every mapping holds a read lock on it; whoever makes a chunk of the file, a write lock */

uint64_t shmq_chunk_used(const void *memory, uint64_t bytes, uint32_t grain)
{
    const struct chunk_header *const header = memory;
    if (header->grain != 0 && header->grain != grain) {
        return bytes; /* behind its end lies what it was before, which only one with the same grain may leave */
    }
    const uint64_t seal = hint_position(header->hint);
    if (seal > bytes - sizeof(uint64_t)) {
        return bytes;
    }
    const uint64_t word = *(const uint64_t *)((const uint8_t *)memory + seal);
    return word_state(word) == WORD_SEAL ? seal + sizeof word : bytes;
}

/* Whether nobody else has the file mapped, or ever will before it has another name: with the write lock it is ours. */
static bool alone(const shmq_renewal *it, int fd)
{
    struct os_file found;
    return os->lock_byte(fd, MAPPERS_BYTE) == 0
           && named_plainly(fd, it->directory, it->used_name, it->owner, &found) /* still: nobody made a chunk of it */
           && found.bytes == it->bytes;
}

static int renewed(const shmq_renewal *it, int fd)
{
    if (!alone(it, fd)) {
        return SHMQ_EMPTY;
    }
    shmq_chunk_clear(it->memory, it->bytes, shmq_chunk_used(it->memory, it->bytes, it->grain), it->index_spacing, it->grain);
    const int code = shmq_chunk_format(it->memory, it->bytes, it->queue_id, it->chunk_id, it->epoch, it->base,
                                       it->sequence, it->index_spacing, it->grain, it->created_ns);
    if (code != SHMQ_OK) {
        return code;
    }
    int answer = os->share_byte(fd, MAPPERS_BYTE); /* in one step: from now on it may be mapped, and not be zeroed */
    if (answer == 0) {
        answer = os->rename_new(it->directory, it->used_name, it->chunk_name);
    }
    if (answer == -EEXIST || answer == -ENOENT) {
        return SHMQ_EMPTY;
    }
    return answer < 0 ? error_system(answer, "cannot rename %s to %s", it->used_name, it->chunk_name) : SHMQ_OK;
}

int shmq_chunk_renew(const shmq_renewal *it, int *opened)
{
    const uint64_t file[2] = {it->device, it->inode};
    const int fd = os->open_same(it->directory, it->used_name, file, true);
    if (fd < 0) {
        return SHMQ_EMPTY; /* it is in use, or somebody was faster; what else may be wrong is found the long way */
    }
    const int code = renewed(it, fd);
    if (code != SHMQ_OK) {
        os->close(fd);
        return code;
    }
    *opened = fd;
    return SHMQ_OK;
}
