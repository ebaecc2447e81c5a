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

int shmq_disk_type(int fd, const char *path) { return os->disk_type(fd, path); }

bool shmq_in_memory(int fd) { return os->in_memory(fd); }

int shmq_is_there(int directory, const char *name)
{
    struct os_file found;
    const int answer = os->look_at(directory, name, &found);
    if (answer == -ENOENT) {
        return SHMQ_EMPTY;
    }
    return answer < 0 ? error_system(answer, "cannot look for %s", name) : SHMQ_OK;
}

enum { NUMBERS_MAX = 16, NAME_MAX_BYTES = 64, LISTED_MAX = 100 };

/* Which numbers are worth a look: those that are listed; all, where there is too much to list. A file whose name changes
 * meanwhile may be missed, as it may be by looks that come one after the other. */
struct numbers {
    const char *name;
    size_t length;
    uint32_t names; /* seen */
    uint32_t found;
};

static bool take_number(void *context, const char *name)
{
    struct numbers *const numbers = context;
    if (++numbers->names > LISTED_MAX) {
        numbers->found = UINT32_MAX;
        return false;
    }
    if (strlen(name) == numbers->length + 1 && memcmp(name, numbers->name, numbers->length) == 0) {
        for (uint32_t number = 0; number < NUMBERS_MAX; number++) {
            numbers->found |= DIGITS[number] == name[numbers->length] ? 1u << number : 0;
        }
    }
    return true;
}

int shmq_numbered(int directory, const char *name, uint32_t count, shmq_named *found)
{
    struct numbers numbers = {name, strlen(name), 0, 0};
    int answer = os->list(directory, take_number, &numbers);
    if (answer < 0) {
        return error_system(answer, "cannot look for %s files", name);
    }
    uint32_t there = 0;
    for (uint32_t number = 0; number < count && number < NUMBERS_MAX; number++) {
        char numbered[NAME_MAX_BYTES];
        struct os_file file;
        snprintf(numbered, sizeof numbered, "%s%c", name, DIGITS[number]);
        answer = (numbers.found >> number & 1) != 0 ? os->look_at(directory, numbered, &file) : -ENOENT;
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
