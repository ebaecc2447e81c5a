/* crc.h - CRC-32C for the core; the public calls are in shmq.h. */
#ifndef SHMQ_CRC_H
#define SHMQ_CRC_H

#include <stddef.h>
#include <stdint.h>

/* Continue `crc` (0 to begin) over `bytes`. The same value from every processor. */
uint32_t crc32c(uint32_t crc, const void *bytes, size_t length);

#endif
