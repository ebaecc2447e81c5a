"""
Why a queue is stuck or slow: findings in sentences, each with what to do, from what shared memory and /proc say.

    for finding in shmq.why("orders"):
        print(finding.sentence, finding.advice)

A map of the package:
    finding     what is found
    facts       what is looked at, twice: the names, who has what, locks, the disk
    causes      from facts to findings
    words       how they are said
    tried       where to look: a queue, or all that lie below a directory
    stack       what a process of Python is doing, by py-spy
"""

from shmq.diagnosis.finding import Finding
from shmq.diagnosis.tried import why

__all__ = ["Finding", "why"]
