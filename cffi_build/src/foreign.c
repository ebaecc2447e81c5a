/* foreign.c - words of a mapped file that belongs to another program, whose other writers change them at the same time.
 *
 * Nothing is known of the file but that it is mapped, so each place is checked: that all of the word is in the mapping,
 * and that no processor would have to change it in two steps. */
#include "atomic.h"
#include "error.h"
#include "shmq.h"

static int outside(const void *memory, uint64_t bytes, uint64_t at, uint64_t width)
{
    if (at <= bytes && width <= bytes - at && ((uintptr_t)memory + at) % width == 0) {
        return SHMQ_OK;
    }
    return error_set(SHMQ_CORRUPT, "there is no word of %llu bytes at %llu in a mapping of %llu", (unsigned long long)width,
                     (unsigned long long)at, (unsigned long long)bytes);
}

static uint32_t *narrow(void *memory, uint64_t at) { return (uint32_t *)(void *)((uint8_t *)memory + at); }
static uint64_t *wide(void *memory, uint64_t at) { return (uint64_t *)(void *)((uint8_t *)memory + at); }

/* Pairs with whoever publishes a document by its word: what stands behind a word that is not 0 is seen whole. */
int64_t shmq_foreign_load32(void *memory, uint64_t bytes, uint64_t at)
{
    int code = outside(memory, bytes, at, sizeof(uint32_t));
    return code < 0 ? code : (int64_t)load_acquire(narrow(memory, at));
}

int shmq_foreign_cas32(void *memory, uint64_t bytes, uint64_t at, uint32_t expected, uint32_t desired)
{
    int code = outside(memory, bytes, at, sizeof(uint32_t));
    return code < 0 ? code : cas32_both(narrow(memory, at), expected, desired);
}

int shmq_foreign_load64(void *memory, uint64_t bytes, uint64_t at, int64_t *found)
{
    int code = outside(memory, bytes, at, sizeof(uint64_t));
    if (code == SHMQ_OK) {
        *found = (int64_t)load_acquire(wide(memory, at));
    }
    return code;
}

/* Acquire, for the next holder of a lock to see what the last one did; and release, for that to be seen. */
int shmq_foreign_cas64(void *memory, uint64_t bytes, uint64_t at, int64_t expected, int64_t desired)
{
    int code = outside(memory, bytes, at, sizeof(uint64_t));
    return code < 0 ? code : cas64_both(wide(memory, at), (uint64_t)expected, (uint64_t)desired);
}

int shmq_foreign_store64(void *memory, uint64_t bytes, uint64_t at, int64_t value)
{
    int code = outside(memory, bytes, at, sizeof(uint64_t));
    if (code == SHMQ_OK) {
        store_release(wide(memory, at), (uint64_t)value);
    }
    return code;
}
