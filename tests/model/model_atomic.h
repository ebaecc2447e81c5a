/* model_atomic.h - the names of atomic.h, sent to the explorer.
 *
 * Included by cffi_build/src/atomic.h when SHMQ_MODEL is defined, so that the real C files of the core run over an
 * exploring memory. Every call leaves its file, line, operation and order in one section of the program: the list
 * of sites that `explorer --sites` prints and that can be weakened one by one without touching the core. */
#ifndef SHMQ_MODEL_ATOMIC_H
#define SHMQ_MODEL_ATOMIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum model_operation { MODEL_LOAD, MODEL_STORE, MODEL_CAS, MODEL_EXCHANGE, MODEL_ADD, MODEL_FENCE };
enum model_order { MODEL_RELAXED, MODEL_ACQUIRE, MODEL_RELEASE, MODEL_SEQ_CST };

/* What the explorer may do to one site to see whether anybody notices. */
enum model_weakness {
    MODEL_AS_WRITTEN,
    MODEL_ONE_STEP, /* acquire or release becomes relaxed; a fence becomes nothing */
    MODEL_SPLIT,    /* a read-modify-write becomes a load and then a store */
    MODEL_BLIND,    /* a CAS becomes a store that looks at nothing */
    MODEL_SKIP      /* a store or an addition is left out */
};

struct model_site {
    const char *file;
    int line;
    enum model_operation operation;
    enum model_order order;
    enum model_weakness weakness;
    bool reached; /* by the scenario that runs */
} __attribute__((aligned(32))); /* so that the linker lays them out as an array */

#define MODEL_SITE(operation, order)                                                                                  \
    __extension__({                                                                                                   \
        static struct model_site model_here __attribute__((section("model_sites"), used)) =                           \
            {__FILE__, __LINE__, (operation), (order), MODEL_AS_WRITTEN, false};                                      \
        &model_here;                                                                                                  \
    })

uint64_t model_load(struct model_site *site, const void *at, size_t bytes);
void model_store(struct model_site *site, void *at, size_t bytes, uint64_t value);
bool model_cas(struct model_site *site, uint64_t *at, uint64_t expected, uint64_t desired);
uint64_t model_exchange(struct model_site *site, void *at, size_t bytes, uint64_t value);
uint64_t model_add(struct model_site *site, void *at, size_t bytes, uint64_t value);
void model_fence(struct model_site *site);

/* *(p) + 0 has the type without its const. */
#define MODEL_TYPE(p) __typeof__(*(p) + 0)

#define load_relaxed(p) ((MODEL_TYPE(p))model_load(MODEL_SITE(MODEL_LOAD, MODEL_RELAXED), (p), sizeof *(p)))
#define load_acquire(p) ((MODEL_TYPE(p))model_load(MODEL_SITE(MODEL_LOAD, MODEL_ACQUIRE), (p), sizeof *(p)))
#define store_relaxed(p, value) model_store(MODEL_SITE(MODEL_STORE, MODEL_RELAXED), (p), sizeof *(p), (value))
#define store_release(p, value) model_store(MODEL_SITE(MODEL_STORE, MODEL_RELEASE), (p), sizeof *(p), (value))
#define exchange_relaxed(p, value)                                                                                    \
    model_exchange(MODEL_SITE(MODEL_EXCHANGE, MODEL_RELAXED), (p), sizeof *(p), (value))
#define exchange_acquire(p, value)                                                                                    \
    model_exchange(MODEL_SITE(MODEL_EXCHANGE, MODEL_ACQUIRE), (p), sizeof *(p), (value))
#define exchange_release(p, value)                                                                                    \
    model_exchange(MODEL_SITE(MODEL_EXCHANGE, MODEL_RELEASE), (p), sizeof *(p), (value))
#define add_relaxed(p, value) model_add(MODEL_SITE(MODEL_ADD, MODEL_RELAXED), (p), sizeof *(p), (value))
#define add_release(p, value) model_add(MODEL_SITE(MODEL_ADD, MODEL_RELEASE), (p), sizeof *(p), (value))
#define cas_relaxed(p, expected, desired) model_cas(MODEL_SITE(MODEL_CAS, MODEL_RELAXED), (p), (expected), (desired))
#define cas_acquire(p, expected, desired) model_cas(MODEL_SITE(MODEL_CAS, MODEL_ACQUIRE), (p), (expected), (desired))
#define cas_release(p, expected, desired) model_cas(MODEL_SITE(MODEL_CAS, MODEL_RELEASE), (p), (expected), (desired))
#define fence_seq_cst() model_fence(MODEL_SITE(MODEL_FENCE, MODEL_SEQ_CST))

/* Plain memory: done at once, and checked for order against every other access to the same bytes. */
void shared_write(void *to, const void *from, size_t bytes);
void shared_read(void *to, const void *from, size_t bytes);
const void *shared_span(const void *from, size_t bytes);

static inline void spin_pause(void) {}

#endif
