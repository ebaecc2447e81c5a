/* error.c - one thread-local sentence: what was tried, on what, what the bytes or the kernel answered. */
#include "error.h"

#include <stdarg.h>
#include <stdio.h>

#include "shmq.h"

static _Thread_local char story_of_this_thread[256];
static _Thread_local int errno_of_this_thread;

static void remember(int number, const char *story, va_list arguments)
{
    vsnprintf(story_of_this_thread, sizeof story_of_this_thread, story, arguments);
    errno_of_this_thread = number;
}

int error_set(int code, const char *story, ...)
{
    va_list arguments;
    va_start(arguments, story);
    remember(0, story, arguments);
    va_end(arguments);
    return code;
}

int error_system(int answer, const char *story, ...)
{
    va_list arguments;
    va_start(arguments, story);
    remember(-answer, story, arguments);
    va_end(arguments);
    return SHMQ_SYSTEM;
}

int error_forked(void) { return error_set(SHMQ_FORKED, "this handle belongs to the parent process"); }

const char *shmq_error(void) { return story_of_this_thread; }
int shmq_errno(void) { return errno_of_this_thread; }
