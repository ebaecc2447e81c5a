/* ring_file.h - what a ring says of itself. */
#ifndef SHMQ_RING_FILE_H
#define SHMQ_RING_FILE_H

#include "group/window.h"

/* What a ring says of its size, read once. */
struct extent {
    uint32_t window;
    uint32_t buckets;
    uint32_t cells;
    uint64_t blocks;
};

/* Is it a ring of this queue, and as large as it says? */
int ring_extent(const struct ring *page, uint64_t bytes, const uint8_t queue_id[16], struct extent *extent);
/* Behind so many bytes of it the words begin. */
uint64_t ring_header_bytes(uint32_t cells);
/* Its term; 0 when it is none. */
uint64_t ring_term(const struct ring *page);
/* Where what lies in it. The handle knows its window, buckets and cells. */
void ring_set_memory(shmq_ring *ring, void *memory, uint64_t blocks);

#endif
