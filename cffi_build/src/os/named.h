/* named.h - what has which name in a directory. */
#ifndef SHMQ_OS_NAMED_H
#define SHMQ_OS_NAMED_H

#include <stdbool.h>
#include <stdint.h>

#include "os/os.h"

/* Is what fd has open a regular file of *owner* alone, which has that name in the directory still, and no other one; and
 * is the directory no group's? Then *found* says what it is. Else somebody has to look more closely, and to say why. */
bool named_plainly(int fd, int directory, const char *name, uint32_t owner, struct os_file *found);

#endif
