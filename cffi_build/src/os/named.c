/* named.c - what has which name in a directory of the queue's: the looks that a roll and a retirement take by the dozen.
 *
 * Each is one call here where Python would make several; what they find is decided upon in Python (shmq/storage/). */
#include "os/named.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "error.h"
#include "os/os.h"
#include "shmq.h"

#define DIGITS "0123456789abcdef"

int shmq_rename_new(int directory, const char *old_name, const char *new_name)
{
    const int answer = os->rename_new(directory, old_name, new_name);
    if (answer == -EEXIST) {
        return SHMQ_EMPTY;
    }
    return answer < 0 ? error_system(answer, "cannot rename %s to %s", old_name, new_name) : SHMQ_OK;
}

int shmq_is_there(int directory, const char *name)
{
    struct os_file found;
    const int answer = os->look_at(directory, name, &found);
    if (answer == -ENOENT) {
        return SHMQ_EMPTY;
    }
    return answer < 0 ? error_system(answer, "cannot look for %s", name) : SHMQ_OK;
}

enum { NUMBERS_MAX = 16, NAME_MAX_BYTES = 64, LISTED_BYTES = 4096 };

/* The number of a numbered name, or -1. */
static int number_in(const char *numbered, const char *name)
{
    const size_t length = strlen(name);
    if (strlen(numbered) != length + 1 || memcmp(numbered, name, length) != 0) {
        return -1;
    }
    for (int number = 0; number < NUMBERS_MAX; number++) {
        if (DIGITS[number] == numbered[length]) {
            return number;
        }
    }
    return -1;
}

/* Which numbers are worth a look: those that are listed; all, where there is too much to list. A file whose name changes
 * meanwhile may be missed, as it may be by looks that come one after the other. */
static int listed(int directory, const char *name, uint32_t *numbers)
{
    char names[LISTED_BYTES];
    const int bytes = os->list(directory, names, sizeof names);
    if (bytes == -ENOBUFS) {
        *numbers = UINT32_MAX;
        return 0;
    }
    *numbers = 0;
    for (const char *at = names; at < names + bytes; at += strlen(at) + 1) {
        const int number = number_in(at, name);
        *numbers |= number < 0 ? 0 : 1u << number;
    }
    return bytes < 0 ? bytes : 0;
}

int shmq_numbered(int directory, const char *name, uint32_t count, shmq_named *found)
{
    uint32_t numbers;
    int answer = listed(directory, name, &numbers);
    if (answer < 0) {
        return error_system(answer, "cannot look for %s files", name);
    }
    uint32_t there = 0;
    for (uint32_t number = 0; number < count && number < NUMBERS_MAX; number++) {
        char numbered[NAME_MAX_BYTES];
        struct os_file file;
        snprintf(numbered, sizeof numbered, "%s%c", name, DIGITS[number]);
        answer = (numbers >> number & 1) != 0 ? os->look_at(directory, numbered, &file) : -ENOENT;
        if (answer == 0) {
            found[there++] = (shmq_named){number, file.bytes, file.changed_ns, file.device, file.inode};
        } else if (answer != -ENOENT) {
            return error_system(answer, "cannot look for %s", numbered);
        }
    }
    return (int)there;
}

int shmq_rename_numbered(int directory, const char *old_name, const char *name, uint32_t count)
{
    char numbered[NAME_MAX_BYTES];
    struct os_file file;
    int answer = os->look_at(directory, old_name, &file);
    for (uint32_t tried = 0; answer == 0 && tried < count; tried++) {
        snprintf(numbered, sizeof numbered, "%s%c", name, DIGITS[(file.inode + tried) % count % NUMBERS_MAX]);
        answer = os->rename_new(directory, old_name, numbered);
        if (answer == 0) {
            return SHMQ_OK;
        }
        answer = answer == -EEXIST ? 0 : answer;
    }
    return answer == 0 || answer == -ENOENT ? SHMQ_EMPTY : error_system(answer, "cannot rename %s", old_name);
}

#define RIGHTS 07777u
#define SHARED_DIRECTORY 02770u /* of what a group of users shares; shmq/user_group.py says so, too */

bool named_plainly(int fd, int directory, const char *name, uint32_t owner, struct os_file *found)
{
    struct os_file now;
    struct os_file above;
    return os->look_into(fd, found) == 0 && found->regular && found->links == 1 && found->owner == owner
           && (found->mode & 077u) == 0 && os->look_at(directory, name, &now) == 0 && now.device == found->device
           && now.inode == found->inode && now.links == 1 && os->look_into(directory, &above) == 0
           && (above.mode & RIGHTS) != SHARED_DIRECTORY;
}
