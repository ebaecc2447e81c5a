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

/* How what is large is summed up, with vectors of one width, where the processor has them. */
struct folding {
    size_t least; /* so many bytes; less is not worth it */
    uint32_t (*sum)(uint32_t crc, const uint8_t *at, size_t length);
    uint32_t (*copy)(uint32_t crc, uint8_t *to, const uint8_t *from, size_t length);
    uint32_t (*stream)(uint32_t crc, uint8_t *to, const uint8_t *from, size_t length);
};
static const struct folding *folding; /* NULL: it is not folded */
#define STREAM_BYTES (256u << 10) /* more is written past the cache: fetching a line to overwrite it costs more than that */

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
enum copying { NO_COPY, COPY, COPY_PAST_THE_CACHE };

#define VECTOR __m512i
#define NAMED(name) name##_of_64
#define WHOLE(operation) _mm512_##operation##_si512
#define BROADCAST(value) _mm512_broadcast_i32x4(value)
#define MULTIPLIED(a, b, halves) _mm512_clmulepi64_epi128(a, b, halves)
#define FETCH_AHEAD 1024u /* the processor fetches ahead by itself, but not over the end of a page */
#define WITH_FOLDING __attribute__((target("avx512f,vpclmulqdq")))
#include "crc_fold.h"

/* These processors are as long at multiplying as at fetching, so there is nothing to win by asking ahead. */
#define VECTOR __m256i
#define NAMED(name) name##_of_32
#define WHOLE(operation) _mm256_##operation##_si256
#define BROADCAST(value) _mm256_broadcastsi128_si256(value)
#define MULTIPLIED(a, b, halves) _mm256_clmulepi64_epi128(a, b, halves)
#define FETCH_AHEAD 0u
#define WITH_FOLDING __attribute__((target("avx2,vpclmulqdq")))
#include "crc_fold.h"

__attribute__((constructor)) static void choose_folding(void)
{
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("vpclmulqdq")) {
        return;
    }
    if (__builtin_cpu_supports("avx512f")) {
        prepare_of_64();
        folding = &folding_of_64;
    } else if (__builtin_cpu_supports("avx2")) {
        prepare_of_32();
        folding = &folding_of_32;
    }
}
#endif
#else
static uint32_t by_hardware(uint32_t crc, const uint8_t *at, size_t length) { return by_table(crc, at, length); }
#endif

uint32_t crc32c(uint32_t crc, const void *bytes, size_t length)
{
    if (folding != NULL && length >= folding->least) {
        return folding->sum(crc, bytes, length);
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
    if (folding != NULL && length >= folding->least) {
        return folding->copy(crc, to, from, length);
    }
    return copy_in_pieces(crc, to, from, length);
}

uint32_t crc32c_stream(uint32_t crc, void *to, const void *from, size_t length)
{
    if (folding != NULL && length >= STREAM_BYTES) {
        return folding->stream(crc, to, from, length);
    }
    return crc32c_copy(crc, to, from, length);
}

uint32_t shmq_crc32c(uint32_t crc, const void *bytes, uint64_t length) { return crc32c(crc, bytes, length); }
uint32_t shmq_crc32c_table(uint32_t crc, const void *bytes, uint64_t length) { return by_table(crc, bytes, length); }
int shmq_crc32c_is_hardware(void) { return hardware; }
void shmq_crc32c_four(uint32_t crc, const void *heads, const void *bytes, uint64_t apart, uint64_t length, uint32_t *sums)
{
    crc32c_four(crc, heads, bytes, apart, length, sums);
}
