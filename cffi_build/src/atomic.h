/* atomic.h - the only file that names a memory order.
 *
 * Five primitives and one fence are all the core needs, in the words of C11: an acquire load that reads what a
 * release wrote sees everything its writer did before; relaxed promises nothing but an untorn value; a fence puts
 * what is before it and what is behind it into one order that all threads agree on. Each use in the core says which
 * store on the other side it pairs with.
 *
 * This file is also a seam: with SHMQ_MODEL the same names go to the explorer of tests/model/, which tries every
 * interleaving and every value a load may legally return, and can weaken any one call site by a step. The
 * shared_... calls are plain memory; the explorer uses them to see unordered access to the same bytes. */
#ifndef SHMQ_ATOMIC_H
#define SHMQ_ATOMIC_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef SHMQ_MODEL
#include "model_atomic.h"
#else

#define load_relaxed(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define load_acquire(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define store_relaxed(p, value) __atomic_store_n((p), (value), __ATOMIC_RELAXED)
#define store_release(p, value) __atomic_store_n((p), (value), __ATOMIC_RELEASE)
#define exchange_relaxed(p, value) __atomic_exchange_n((p), (value), __ATOMIC_RELAXED)
#define exchange_acquire(p, value) __atomic_exchange_n((p), (value), __ATOMIC_ACQUIRE)
#define exchange_release(p, value) __atomic_exchange_n((p), (value), __ATOMIC_RELEASE)
#define exchange_both(p, value) __atomic_exchange_n((p), (value), __ATOMIC_ACQ_REL) /* acquire, and release */
#define add_relaxed(p, value) __atomic_fetch_add((p), (value), __ATOMIC_RELAXED)
#define add_release(p, value) __atomic_fetch_add((p), (value), __ATOMIC_RELEASE)
#define fence_seq_cst() __atomic_thread_fence(__ATOMIC_SEQ_CST)

/* A failed CAS tells nothing but that it failed: load again, with the order that the next step needs. */
static inline bool cas_relaxed(uint64_t *p, uint64_t expected, uint64_t desired)
{
    return __atomic_compare_exchange_n(p, &expected, desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}
static inline bool cas_acquire(uint64_t *p, uint64_t expected, uint64_t desired)
{
    return __atomic_compare_exchange_n(p, &expected, desired, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}
static inline bool cas_release(uint64_t *p, uint64_t expected, uint64_t desired)
{
    return __atomic_compare_exchange_n(p, &expected, desired, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}
/* Acquire and release at once, for locks and words of other programs' files (foreign.c), which no explorer visits. */
static inline bool cas64_both(uint64_t *p, uint64_t expected, uint64_t desired)
{
    return __atomic_compare_exchange_n(p, &expected, desired, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}
static inline bool cas32_both(uint32_t *p, uint32_t expected, uint32_t desired)
{
    return __atomic_compare_exchange_n(p, &expected, desired, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

/* Plain memory that another process may look at once a word says so. */
static inline void shared_write(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
static inline void shared_read(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); }
static inline const void *shared_span(const void *from, size_t bytes) { (void)bytes; return from; }

static inline void spin_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}
#endif /* SHMQ_MODEL */

#endif
