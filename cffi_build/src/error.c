/* error.c - one thread-local sentence: what was tried, on what, what the bytes or the kernel answered. */
#include "error.h"

#include <stdarg.h>
#include <stdio.h>

#include "shmq.h"

static _Thread_local char story_of_this_thread[256];

int error_set(int code, const char *story, ...)
{
    va_list arguments;
    va_start(arguments, story);
    vsnprintf(story_of_this_thread, sizeof story_of_this_thread, story, arguments);
    va_end(arguments);
    return code;
}

const char *shmq_error(void) { return story_of_this_thread; }
