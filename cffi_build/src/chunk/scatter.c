/* scatter.c - columns in the layout of Arrow, as what shmq_put_many takes: the mirror of gather.c.
 *
 * The values of a column of bytes lie end to end already; what is missing are their lengths. The offsets come from
 * anybody, so they are checked here, once, and what is copied later is bounded by the lengths that this wrote. */
#include <inttypes.h>

#include "error.h"
#include "shmq.h"

int64_t shmq_lengths(uint32_t count, const int32_t *offsets, uint64_t bytes, uint32_t *lengths)
{
    const int32_t first = offsets[0];
    int32_t at = first;
    bool ascends = first >= 0;
    for (uint32_t i = 0; i < count; i++) {
        const int32_t next = offsets[i + 1];
        ascends = ascends && next >= at;
        lengths[i] = (uint32_t)next - (uint32_t)at;
        at = next;
    }
    if (!ascends || (uint64_t)at > bytes) {
        return error_set(SHMQ_CORRUPT, "the offsets of %" PRIu32 " values do not ascend within their %" PRIu64 " bytes",
                         count, bytes);
    }
    return first;
}
