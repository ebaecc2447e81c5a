/* crc_fold.h - sums of what is large, for vectors of one width; crc.c includes it once for each.
 *
 * Four vectors are under way at a time, FOLD bytes, since a multiplication without carries waits some cycles for the one
 * before it. A step moves what was summed up so far over FOLD bytes: the two halves of each 128 bits, by two powers of x.
 * The message as a polynomial is congruent to the FOLD bytes that are left of it, so their sum is its sum. */
#define FOLD (4 * sizeof(VECTOR))

static uint64_t NAMED(fold_by)[2];

static void NAMED(prepare)(void)
{
    NAMED(fold_by)[0] = power_of_x(8 * FOLD + 32);
    NAMED(fold_by)[1] = power_of_x(8 * FOLD - 32);
}

/* What is copied is what was summed up: each byte is read once. Past the cache, `to` is a multiple of 64. */
WITH_FOLDING __attribute__((always_inline)) static inline uint32_t NAMED(fold)(uint32_t crc, uint8_t *to, const uint8_t *at,
                                                                               size_t length, enum copying copying)
{
    const VECTOR by = BROADCAST(_mm_set_epi64x((long long)NAMED(fold_by)[1], (long long)NAMED(fold_by)[0]));
    VECTOR sum[4] = {WHOLE(setzero)(), WHOLE(setzero)(), WHOLE(setzero)(), WHOLE(setzero)()};
    for (bool first = true; length >= FOLD; first = false, at += FOLD, length -= FOLD) {
#pragma GCC unroll 4
        for (size_t i = 0; i < 4; i++) {
            const size_t place = i * sizeof(VECTOR);
            VECTOR next = WHOLE(loadu)((const void *)(at + place));
            if (copying != COPY_PAST_THE_CACHE && FETCH_AHEAD != 0) {
                __builtin_prefetch(at + FETCH_AHEAD + place, 0);
            }
            if (copying == COPY) {
                if (FETCH_AHEAD != 0) {
                    __builtin_prefetch(to + FETCH_AHEAD + place, 1);
                }
                WHOLE(storeu)((void *)(to + place), next);
            } else if (copying == COPY_PAST_THE_CACHE) {
                WHOLE(stream)((void *)(to + place), next);
            }
            if (!first) {
                next = WHOLE(xor)(next, MULTIPLIED(sum[i], by, 0x00));
                next = WHOLE(xor)(next, MULTIPLIED(sum[i], by, 0x11));
            } else if (i == 0) {
                next = WHOLE(xor)(next, WHOLE(zextsi128)(_mm_cvtsi32_si128((int)~crc)));
            }
            sum[i] = next;
        }
        to = copying == NO_COPY ? to : to + FOLD;
    }
    uint8_t left[FOLD];
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++) {
        WHOLE(storeu)((void *)(left + i * sizeof(VECTOR)), sum[i]);
    }
    _mm256_zeroupper(); /* or all that is done with half a vector from here on, by anybody, waits for the other half */
    if (copying == COPY_PAST_THE_CACHE) {
        _mm_sfence(); /* such stores are in no order with others, not even with a release */
    }
    crc = by_hardware(UINT32_MAX, left, FOLD);
    if (copying != NO_COPY) {
        memcpy(to, at, length);
        return by_hardware(crc, to, length);
    }
    return by_hardware(crc, at, length);
}

WITH_FOLDING static uint32_t NAMED(sum)(uint32_t crc, const uint8_t *at, size_t length)
{
    return NAMED(fold)(crc, NULL, at, length, NO_COPY);
}

WITH_FOLDING static uint32_t NAMED(copy)(uint32_t crc, uint8_t *to, const uint8_t *from, size_t length)
{
    return NAMED(fold)(crc, to, from, length, COPY);
}

WITH_FOLDING static uint32_t NAMED(stream)(uint32_t crc, uint8_t *to, const uint8_t *from, size_t length)
{
    const size_t head = -(uintptr_t)to % 64;
    memcpy(to, from, head);
    return NAMED(fold)(by_hardware(crc, to, head), to + head, from + head, length - head, COPY_PAST_THE_CACHE);
}

static const struct folding NAMED(folding) = {4 * FOLD, NAMED(sum), NAMED(copy), NAMED(stream)};

#undef FOLD
#undef VECTOR
#undef NAMED
#undef WHOLE
#undef BROADCAST
#undef MULTIPLIED
#undef FETCH_AHEAD
#undef WITH_FOLDING
