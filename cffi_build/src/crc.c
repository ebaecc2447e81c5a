/* crc.c - CRC-32C (Castagnoli, polynomial 0x1EDC6F41, reflected): the processor's instruction where there is one, a
 * table where not. Both give the same value; tests/unit/test_crc.py holds them against each other and RFC 3720. */
#include "crc.h"

#include <stdbool.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "shmq.h"

#define POLYNOMIAL 0x82f63b78u /* reflected */

static uint32_t table[8][256]; /* table[k][b]: the CRC of byte b followed by k zero bytes */

/* Three streams of BLOCK bytes run side by side, since one crc32 instruction waits three cycles for the last one.
 * skip[k][b] moves a CRC whose k-th byte is b over BLOCK zero bytes, which joins the streams again. */
#define BLOCK 1024u
static uint32_t skip[4][256];
static bool hardware;

#define HEAD 16u /* bytes before each of four */

/* What is large is folded by multiplications without carries, 4 * 64 bytes at a time: a step moves what was summed up so
 * far over FOLD bytes, by multiplying the two halves of each 128 bits with these powers of x. */
#define FOLD 256u
#define FOLDING_BYTES 1024u /* less is not worth it */
#define FETCH_AHEAD 1024u /* the processor fetches ahead by itself, but not over the end of a page */
#define STREAM_BYTES (256u << 10) /* more is written past the cache: fetching a line to overwrite it costs more than that */
static bool folding;
#if defined(__x86_64__)
static uint64_t fold_by[2];
#endif

static uint32_t over_zeros(uint32_t crc, size_t zeros)
{
    while (zeros-- > 0) {
        crc = table[0][crc & 0xff] ^ crc >> 8;
    }
    return crc;
}

#if defined(__x86_64__)
/* x to that power, modulo the polynomial, reflected, as a 64-bit factor of a reflected product */
static uint64_t power_of_x(unsigned int power)
{
    uint32_t value = 1u << 31;
    while (power-- > 0) {
        value = value >> 1 ^ (value & 1 ? POLYNOMIAL : 0);
    }
    return (uint64_t)value << 1;
}
#endif

__attribute__((constructor)) static void make_tables(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) {
            crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
        }
        table[0][byte] = crc;
    }
    for (uint32_t byte = 0; byte < 256; byte++) {
        for (int k = 1; k < 8; k++) {
            table[k][byte] = table[k - 1][byte] >> 8 ^ table[0][table[k - 1][byte] & 0xff];
        }
    }
    /* The map is linear over bits, so 32 walks over BLOCK zeros give all 1,024 entries. */
    for (int k = 0; k < 4; k++) {
        for (uint32_t bit = 1; bit < 256; bit <<= 1) {
            const uint32_t moved = over_zeros(bit << 8 * k, BLOCK);
            for (uint32_t lower = 0; lower < bit; lower++) {
                skip[k][bit | lower] = skip[k][lower] ^ moved;
            }
        }
    }
#if defined(__x86_64__)
    __builtin_cpu_init();
    hardware = __builtin_cpu_supports("sse4.2");
    folding = hardware && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("vpclmulqdq");
    fold_by[0] = power_of_x(8 * FOLD + 32);
    fold_by[1] = power_of_x(8 * FOLD - 32);
#elif defined(__ARM_FEATURE_CRC32)
    hardware = true;
#endif
}

static uint32_t by_table(uint32_t crc, const uint8_t *at, size_t length)
{
    crc = ~crc;
    for (; length >= 8; at += 8, length -= 8) {
        uint64_t eight;
        memcpy(&eight, at, 8);
        eight ^= crc;
        crc = table[7][eight & 0xff] ^ table[6][eight >> 8 & 0xff] ^ table[5][eight >> 16 & 0xff]
              ^ table[4][eight >> 24 & 0xff] ^ table[3][eight >> 32 & 0xff] ^ table[2][eight >> 40 & 0xff]
              ^ table[1][eight >> 48 & 0xff] ^ table[0][eight >> 56];
    }
    while (length-- > 0) {
        crc = table[0][(crc ^ *at++) & 0xff] ^ crc >> 8;
    }
    return ~crc;
}

#if defined(__x86_64__) || defined(__ARM_FEATURE_CRC32)
#if defined(__x86_64__)
#define WITH_CRC __attribute__((target("sse4.2")))
#define STEP8(crc, value) __builtin_ia32_crc32di((crc), (value))
#define STEP1(crc, value) __builtin_ia32_crc32qi((uint32_t)(crc), (value))
#else
#include <arm_acle.h>
#define WITH_CRC
#define STEP8(crc, value) __crc32cd((uint32_t)(crc), (value))
#define STEP1(crc, value) __crc32cb((uint32_t)(crc), (value))
#endif

static uint32_t over_block(uint32_t crc)
{
    return skip[0][crc & 0xff] ^ skip[1][crc >> 8 & 0xff] ^ skip[2][crc >> 16 & 0xff] ^ skip[3][crc >> 24];
}

WITH_CRC static uint32_t by_hardware(uint32_t crc, const uint8_t *at, size_t length)
{
    uint64_t first = ~crc;
    uint64_t eight;
    for (; length >= 3 * BLOCK; length -= 3 * BLOCK, at += 3 * BLOCK) {
        uint64_t second = 0;
        uint64_t third = 0;
        for (size_t i = 0; i < BLOCK; i += 8) {
            memcpy(&eight, at + i, 8);
            first = STEP8(first, eight);
            memcpy(&eight, at + BLOCK + i, 8);
            second = STEP8(second, eight);
            memcpy(&eight, at + 2 * BLOCK + i, 8);
            third = STEP8(third, eight);
        }
        first = over_block((uint32_t)first) ^ second;
        first = over_block((uint32_t)first) ^ third;
    }
    for (; length >= 8; at += 8, length -= 8) {
        memcpy(&eight, at, 8);
        first = STEP8(first, eight);
    }
    uint32_t last = (uint32_t)first;
    while (length-- > 0) {
        last = STEP1(last, *at++);
    }
    return ~last;
}

static uint64_t eight_at(const uint8_t *at)
{
    uint64_t eight;
    memcpy(&eight, at, 8);
    return eight;
}

WITH_CRC static void four_by_hardware(uint32_t crc, const uint8_t *heads, const uint8_t *at, size_t apart, size_t length,
                                      uint32_t sums[4])
{
    uint64_t a = ~crc;
    uint64_t b = a;
    uint64_t c = a;
    uint64_t d = a;
    for (const uint8_t *head = heads; head < heads + HEAD; head += 8) {
        a = STEP8(a, eight_at(head));
        b = STEP8(b, eight_at(head + HEAD));
        c = STEP8(c, eight_at(head + 2 * HEAD));
        d = STEP8(d, eight_at(head + 3 * HEAD));
    }
    const uint8_t *const end = at + length;
    for (; end - at >= 8; at += 8) {
        a = STEP8(a, eight_at(at));
        b = STEP8(b, eight_at(at + apart));
        c = STEP8(c, eight_at(at + 2 * apart));
        d = STEP8(d, eight_at(at + 3 * apart));
    }
    for (; at < end; at++) {
        a = STEP1(a, at[0]);
        b = STEP1(b, at[apart]);
        c = STEP1(c, at[2 * apart]);
        d = STEP1(d, at[3 * apart]);
    }
    sums[0] = ~(uint32_t)a;
    sums[1] = ~(uint32_t)b;
    sums[2] = ~(uint32_t)c;
    sums[3] = ~(uint32_t)d;
}
#if defined(__x86_64__)
#define WITH_FOLDING __attribute__((target("avx512f,vpclmulqdq")))
enum copying { NO_COPY, COPY, COPY_PAST_THE_CACHE };

/* The message as a polynomial is congruent to the FOLD bytes that are left of it, so their sum is its sum. What is
 * copied is what was summed up: each byte is read once. Past the cache, `to` is a multiple of 64. */
WITH_FOLDING __attribute__((always_inline)) static inline uint32_t fold(uint32_t crc, uint8_t *to, const uint8_t *at,
                                                                        size_t length, enum copying copying)
{
    const __m512i by = _mm512_broadcast_i32x4(_mm_set_epi64x((long long)fold_by[1], (long long)fold_by[0]));
    __m512i sum[FOLD / 64] = {_mm512_zextsi128_si512(_mm_cvtsi32_si128((int)~crc))};
    for (bool first = true; length >= FOLD; first = false, at += FOLD, length -= FOLD) {
        for (size_t i = 0; i < FOLD / 64; i++) {
            const __m512i next = _mm512_loadu_si512(at + 64 * i);
            if (copying != COPY_PAST_THE_CACHE) {
                __builtin_prefetch(at + FETCH_AHEAD + 64 * i, 0);
            }
            if (copying == COPY) {
                __builtin_prefetch(to + FETCH_AHEAD + 64 * i, 1);
                _mm512_storeu_si512(to + 64 * i, next);
            } else if (copying == COPY_PAST_THE_CACHE) {
                _mm512_stream_si512((void *)(to + 64 * i), next);
            }
            const __m512i low = first ? sum[i] : _mm512_clmulepi64_epi128(sum[i], by, 0x00);
            const __m512i high = first ? _mm512_setzero_si512() : _mm512_clmulepi64_epi128(sum[i], by, 0x11);
            sum[i] = _mm512_xor_si512(_mm512_xor_si512(low, high), next);
        }
        to = copying == NO_COPY ? to : to + FOLD;
    }
    uint8_t left[FOLD];
    for (size_t i = 0; i < FOLD / 64; i++) {
        _mm512_storeu_si512(left + 64 * i, sum[i]);
    }
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
WITH_FOLDING static uint32_t by_folding(uint32_t crc, const uint8_t *at, size_t length)
{
    return fold(crc, NULL, at, length, NO_COPY);
}
WITH_FOLDING static uint32_t copy_folding(uint32_t crc, uint8_t *to, const uint8_t *from, size_t length)
{
    return fold(crc, to, from, length, COPY);
}
WITH_FOLDING static uint32_t stream_folding(uint32_t crc, uint8_t *to, const uint8_t *from, size_t length)
{
    const size_t head = -(uintptr_t)to % 64;
    memcpy(to, from, head);
    return fold(by_hardware(crc, to, head), to + head, from + head, length - head, COPY_PAST_THE_CACHE);
}
#else
static uint32_t by_folding(uint32_t crc, const uint8_t *at, size_t length) { return by_hardware(crc, at, length); }
#endif
#else
static uint32_t by_folding(uint32_t crc, const uint8_t *at, size_t length) { return by_table(crc, at, length); }
static uint32_t by_hardware(uint32_t crc, const uint8_t *at, size_t length) { return by_table(crc, at, length); }
#endif

uint32_t crc32c(uint32_t crc, const void *bytes, size_t length)
{
    if (folding && length >= FOLDING_BYTES) {
        return by_folding(crc, bytes, length);
    }
    return hardware ? by_hardware(crc, bytes, length) : by_table(crc, bytes, length);
}

void crc32c_four(uint32_t crc, const void *heads, const void *bytes, size_t apart, size_t length, uint32_t sums[4])
{
#if defined(__x86_64__) || defined(__ARM_FEATURE_CRC32)
    if (hardware) {
        four_by_hardware(crc, heads, bytes, apart, length, sums);
        return;
    }
#endif
    for (size_t i = 0; i < 4; i++) {
        const uint32_t head = by_table(crc, (const uint8_t *)heads + i * HEAD, HEAD);
        sums[i] = by_table(head, (const uint8_t *)bytes + i * apart, length);
    }
}

/* Pieces find what was just copied in the nearest cache. */
#define PIECE_BYTES 12288u
static uint32_t copy_in_pieces(uint32_t crc, uint8_t *to, const uint8_t *from, size_t length)
{
    while (length > 0) {
        const size_t piece = length < PIECE_BYTES ? length : PIECE_BYTES;
        memcpy(to, from, piece);
        crc = crc32c(crc, to, piece);
        to += piece;
        from += piece;
        length -= piece;
    }
    return crc;
}

uint32_t crc32c_copy(uint32_t crc, void *to, const void *from, size_t length)
{
#if defined(__x86_64__)
    if (folding && length >= FOLDING_BYTES) {
        return copy_folding(crc, to, from, length);
    }
#endif
    return copy_in_pieces(crc, to, from, length);
}

uint32_t crc32c_stream(uint32_t crc, void *to, const void *from, size_t length)
{
#if defined(__x86_64__)
    if (folding && length >= STREAM_BYTES) {
        return stream_folding(crc, to, from, length);
    }
#endif
    return crc32c_copy(crc, to, from, length);
}

uint32_t shmq_crc32c(uint32_t crc, const void *bytes, uint64_t length) { return crc32c(crc, bytes, length); }
uint32_t shmq_crc32c_table(uint32_t crc, const void *bytes, uint64_t length) { return by_table(crc, bytes, length); }
int shmq_crc32c_is_hardware(void) { return hardware; }
void shmq_crc32c_four(uint32_t crc, const void *heads, const void *bytes, uint64_t apart, uint64_t length, uint32_t *sums)
{
    crc32c_four(crc, heads, bytes, apart, length, sums);
}
