"""
Which message makes a handler fail, and with which others before it. For `shmq bisect`.

    child       one run of the handler over some messages; the program of a process of its own
    runs        starts that process, watches it, and says what came of it
    search      which messages to run next, until the failing message and few others are left
    report      the verb, from the first run to the last word
    case        the case as files: a test for pytest and its messages
"""
