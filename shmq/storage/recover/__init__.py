"""
What the first opening after a reboot does, when only what is on the disk counts; or that of a copied directory.

First a plan is made, and nothing is changed: the chain is walked, every word, message and batch is checked, up to the
first that does not validate. That begins with the chunk where the watermark stands: of those before it, to all of which
the disk has agreed, only the ends are looked at. In that chunk no such place may be below the watermark, else the
queue is Corrupt. Then the plan is carried out, in this order, each step synced before the next:

    staging/     what a kept SEAL has committed moves to its place, then the ledger; the rest goes
    chunks/      hints and indexes anew; the last chunk ends with zeros, GAP and SEAL; what lies behind goes to aside/
    consumers/   heads that are ahead move back
    control      anew
    queue.shmq   the journal, with the new epoch and this boot: with that, the queue is recovered

All of it is under the administrative lock, and every step depends only on what is on the disk and is not undone by
itself: whoever is killed in it leaves something of which the next one makes the same bytes.

    plan.py        what is decided, from what is on the disk alone; for whoever may only read, too
    apply.py       what is written, and in which order
    consumers.py   where names stand then
    asides.py      the folder aside/
    progress.py    what others see of it, and the report of it at the end
"""
