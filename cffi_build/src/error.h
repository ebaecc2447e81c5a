/* error.h - the story of the last error of this thread. Codes are in shmq.h. */
#ifndef SHMQ_ERROR_H
#define SHMQ_ERROR_H

/* Remember the story and return the code, so that a caller can write: return error_set(SHMQ_..., ...). */
int error_set(int code, const char *story, ...) __attribute__((format(printf, 2, 3)));

/* What the kernel answered (-errno) to what was tried: SHMQ_SYSTEM. */
int error_system(int answer, const char *story, ...) __attribute__((format(printf, 2, 3)));

/* A handle was taken along by a fork: FORKED. */
int error_forked(void);

#endif
