/* crc.h - CRC-32C for the core; the public calls are in shmq.h. */
#ifndef SHMQ_CRC_H
#define SHMQ_CRC_H

#include <stddef.h>
#include <stdint.h>

/* Continue `crc` (0 to begin) over `bytes`. The same value from every processor. */
uint32_t crc32c(uint32_t crc, const void *bytes, size_t length);

/* The same of four pieces of one length that lie `apart` bytes apart, each behind a head of 16 bytes of its own: in little
 * more than the time of one, for a processor that waits for the last step of a sum has nothing else to do. */
void crc32c_four(uint32_t crc, const void *heads, const void *bytes, size_t apart, size_t length, uint32_t sums[4]);

/* Copy `length` bytes and continue `crc` over the copy: what is summed up is what was stored, whatever others do to the
 * original meanwhile. The second one may write past the cache, for what another process is to read. */
uint32_t crc32c_copy(uint32_t crc, void *to, const void *from, size_t length);
uint32_t crc32c_stream(uint32_t crc, void *to, const void *from, size_t length);

#endif
