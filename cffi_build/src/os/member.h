/* member.h - a process's seat at one queue: the handle that all files of the core know. */
#ifndef SHMQ_MEMBER_H
#define SHMQ_MEMBER_H

#include "layout.h"
#include "shmq.h"

struct shmq_member {
    struct control *control;
    shmq_lock lock;        /* holds the slot's byte */
    shmq_lock test;        /* a second open of the file, which never holds a lock: asks about others ... */
    char *path;            /* ... or NULL was changed to this, by which it is opened for each question, ... */
    int directory;         /* ... from there, its user's ... */
    uint64_t file[2];      /* ... and must be that one */
    uint64_t asking;       /* a descriptor and 1: that file, open to ask about our own seat often; 0 = none */
    int64_t asked_ns;      /* when it was found locked; monotonic clock */
    shmq_lock papers_lock; /* then, for LOCK_PAPERS, as long as that is held */
    const uint8_t *guard;  /* 1 here, 0 in a forked child */
    uint32_t seats;        /* that the control page has; fixed by the size of its file */
    uint32_t slot;
    uint32_t generation;   /* of this tenancy; 0 before its slot was locked */
    uint64_t left;         /* from that chunk on, claims of the slot's former tenants may be open; UINT64_MAX = none are */
    owner_t owner;         /* 0 until joined */
    struct counted *counted; /* the seat's own line; NULL = it has none */
    uint64_t papers;       /* 1 = a thread of this process has LOCK_PAPERS */
    uint64_t led_by;       /* whom its threads wait for: leader and bell of the group commit ... */
    uint64_t led_since;    /* ... and since when; monotone, in ns */
};

static inline bool member_forked(const shmq_member *member) { return *member->guard == 0; }

#endif
