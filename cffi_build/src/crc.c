/* crc.c - CRC-32C (Castagnoli, polynomial 0x1EDC6F41, reflected): the processor's instruction where there is one, a
 * table where not. Both give the same value; tests/unit/test_crc.py holds them against each other and RFC 3720. */
#include "crc.h"

#include <stdbool.h>
#include <string.h>

#include "shmq.h"

#define POLYNOMIAL 0x82f63b78u /* reflected */

static uint32_t table[8][256]; /* table[k][b]: the CRC of byte b followed by k zero bytes */

/* Three streams of BLOCK bytes run side by side, since one crc32 instruction waits three cycles for the last one.
 * skip[k][b] moves a CRC whose k-th byte is b over BLOCK zero bytes, which joins the streams again. */
#define BLOCK 1024u
static uint32_t skip[4][256];
static bool hardware;

static uint32_t over_zeros(uint32_t crc, size_t zeros)
{
    while (zeros-- > 0) {
        crc = table[0][crc & 0xff] ^ crc >> 8;
    }
    return crc;
}

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
#else
static uint32_t by_hardware(uint32_t crc, const uint8_t *at, size_t length) { return by_table(crc, at, length); }
#endif

uint32_t crc32c(uint32_t crc, const void *bytes, size_t length)
{
    return hardware ? by_hardware(crc, bytes, length) : by_table(crc, bytes, length);
}

uint32_t shmq_crc32c(uint32_t crc, const void *bytes, uint64_t length) { return crc32c(crc, bytes, length); }
uint32_t shmq_crc32c_table(uint32_t crc, const void *bytes, uint64_t length) { return by_table(crc, bytes, length); }
int shmq_crc32c_is_hardware(void) { return hardware; }
