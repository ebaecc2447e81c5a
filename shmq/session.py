"""
A queue that is open: its directory, this process's seat at it, its codec. It is what every handle holds.

Opening and closing a queue happen here, once for all who need one open: `shmq.open`, a group that moves messages to
another queue, and the verbs that look after a queue. It puts and takes nothing; handles do, which borrow what they need
(`Handle`), and may outlive the object that made them.
"""

from __future__ import annotations

import contextlib
import os
import sys

from shmq import _native, ending, errors, later, locks, log, membership, roles, roots, user_group
from shmq import codec as codecs
from shmq.closable import Closable
from shmq.hints import TYPE_CHECKING
from shmq.loan import Loan
from shmq.options import CHANGEABLE, ERA, PART, Options
from shmq.reading.access import Access
from shmq.storage import blocks, directory, files, making, names, shm, small_json, volatile
from shmq.storage.chain import Chain
from shmq.where import absolute, says_where

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from shmq.storage.recover.progress import Recovery


@says_where("path", "__init__")
class Session(Closable):
    """
    One opening of a queue. Safe to share between threads; sits down anew in a forked child.

    Attributes:
        path: the queue's directory.
        place: what opens it again: its directory, or shm:NAME.
        flags: read_only, trusted and unsafe_filesystem, as it was opened; group, who shares it.
        closed: whether it was closed; nothing is lent any more then.
        lock: what its threads take turns by; it may be taken again by whoever has it.
        options: what the queue was made with.
        codec: what encodes and decodes its payloads.
        recovery: what was found and done when this opening was the first one after a reboot; None when it was not.
    """

    def __init__(
        self,
        path: str | None,
        *,
        create: bool = True,
        read_only: bool = False,
        options: Options | None = None,
        trusted: bool = False,
        unsafe_filesystem: bool = False,
        group: int | None = None,
    ) -> None:
        """As `shmq.open`. *group*: another user of that group may have made it, as if *options* named it."""
        if path is not None and (not isinstance(path, str) or not path):
            raise ValueError(f"{path!r} is not a path")
        self._volatile = volatile.is_volatile(path)
        self.path = shm.ROOT  # for what goes wrong before it has a name
        if options is not None and options.group is not None:
            group = options.group
        if self._volatile:
            path = volatile.place_of(path, group)
            group = volatile.group_of(path)
            options = volatile.shared_by(options, group)
        assert path is not None  # noqa: S101  # an anonymous one has a name by now
        self.path = volatile.home_of(path) if self._volatile else absolute(path)
        self.place = path if self._volatile else self.path
        self.flags: dict[str, Any] = {
            "read_only": read_only,
            "trusted": trusted,
            "unsafe_filesystem": unsafe_filesystem,
            "group": group,
        }
        log.be_silent()
        self.closed = False
        self.lock = locks.Lock()
        self._loan = Loan()
        self._access: Access | None = None
        self.brought: codecs.Codec[Any] | None = None
        """Its codec, where whoever opened it brought that."""
        self.recovery: Recovery | None = None
        try:
            self._open(options, create=create and not read_only)
        except BaseException:
            self.close()
            raise

    # ---- opening
    def _open(self, options: Options | None, *, create: bool) -> None:
        self._open_home(options, create=create)
        try:
            self._take_up(options)
        finally:
            self.home.keep_at_hand(-1)

    def _take_up(self, options: Options | None) -> None:
        self.options = self.home.options
        if options is not None:
            options.check_against(self.options, self.path)
        self.brought = None if options is None else options.brought
        self.codec = self._find_codec(self.options)
        self._recover()
        control = self.joined().control
        bounds = self.home.follow_from(control)
        self._take_up_bounds(bounds)
        self._take_up_drops(control, bounds)
        ending.take_up(self.home, control)
        self.chain().check()
        self._verify(control)
        self.sweep()

    def _open_home(self, options: Options | None, *, create: bool) -> None:
        if self._volatile:
            self._open_volatile(options or Options(), create=create)
            return
        kind = "unknown" if self.flags["unsafe_filesystem"] else self._safe_kind()
        try:
            self._open_existing()
        except errors.NotFound:
            roots.refuse(self.path, create=create)
            if not create:
                raise
            made = options or Options()
            self.brought = made.brought
            self._find_codec(made)  # refuse before anything is made
            making.create(self.path, made)
            self._open_existing()
        if not self.flags["read_only"]:
            self.home.warn_of_sigbus(kind)

    def _safe_kind(self) -> str:
        """
        The type of the file system there.

        Raises:
            UnsafeFilesystem: several machines may share it.
        """
        kind = blocks.disk_type(self.path)
        if kind:  # which is no network, and says so in a tenth of the time that all mounts take
            return kind
        above = os.path.dirname(self.path)
        if not os.path.exists(above):
            return "unknown"
        return files.refuse_network(self.path, self.path if os.path.exists(self.path) else above)

    def _open_volatile(self, options: Options, *, create: bool) -> None:
        if options.durability.kind != "process":
            raise ValueError(
                f"cannot open {self.place} with durability={options.durability!r}: a volatile queue is in memory, "
                "and no disk keeps it"
            )
        hold = volatile.Hold(self.place)
        try:
            hold.enter(create=create)
            if hold.alone:
                self.brought = options.brought
                self._find_codec(options)
                making.create(self.path, options)
            self._open_existing()
            if _native.in_memory(self.home.fd):  # of this machine, as whatever is mounted at /dev/shm
                self.home.kind = "tmpfs"
            hold.settle()
            self.home.at_end, self.home.hold = hold.leave, hold
        except BaseException:
            hold.leave()
            raise
        hold.leave_with(self.home)

    def kept_for_child(self) -> Any:
        """
        While multiprocessing pickles this for a process that it starts: the lock that says that a volatile queue is
        used, as that process gets it, which has the queue last until it has opened it. Else None.
        """
        starting = getattr(sys.modules.get("multiprocessing.context"), "get_spawning_popen", lambda: None)()
        hold = None if starting is None or self.closed else self.home.hold
        return None if hold is None else sys.modules["multiprocessing.reduction"].DupFd(volatile.lend(hold, starting))

    def _open_existing(self) -> None:
        read_only = self.flags["read_only"]
        self._loan.have(
            directory.Directory(
                self.path, read_only=read_only, trust_owner=read_only, group=self.flags["group"], stays_at_hand=True
            )
        )
        self.flags["group"] = self.home.options.group  # for whoever gets this one pickled

    def _find_codec(self, options: Options) -> codecs.Coding:
        name, trusted = options.codec, self.flags["trusted"]
        if name == "pickle" and options.group is not None:  # its file says so, which any of them can have written
            raise errors.Untrusted(
                f"cannot open {self.path}: its messages are said to be pickles, which run code when read, and "
                f"{user_group.told(options.group)} may write it; no trusted=True changes that"
            )
        if name not in codecs.NAMES:
            if self.brought is not None:
                return codecs.coding_of(self.brought)
            if trusted:  # who moves payloads, and looks at none
                return codecs.unknown(name, self.path)
            raise codecs.missing(name, self.path, "open")
        try:
            return codecs.codec(name, trusted=trusted)
        except errors.Untrusted as problem:
            raise errors.Untrusted(f"cannot open {self.path}: {problem}") from None

    def _recover(self) -> None:
        """Have only what is on the disk count, when this is the first opening since the machine started."""
        if self.home.unclean():
            later.ready("shmq.storage.recover.apply")
            from shmq.storage.recover import apply, plan, progress  # noqa: PLC0415  # once in a boot

            if self.flags["read_only"]:
                self.home.view = plan.view(self.home)
            else:
                self.recovery = apply.recover(self.home)
                progress.tell_of(self.home, self.recovery)

    def _take_up_bounds(self, now: _native.Bounds) -> None:
        """The control page of a new queue, or of a new boot, knows no bounds yet."""
        stored = self.home.journal
        if not self.flags["read_only"] and now[1:3] != (stored.max_messages, stored.max_bytes):
            with self.home.admin():
                self._publish_bounds(self.home.read_journal())

    def _take_up_drops(self, control: _native.Control, now: _native.Bounds) -> None:
        """What was purged, or dropped for room, stays so in a new boot, and when whoever purged was killed at it."""
        stored = self.home.journal.dropped
        if self.flags["read_only"] or stored <= now.dropped or stored <= self.chain().first_index():
            return
        with self.home.admin(), names.finishing(self.home, self.joined().member) as finish:
            finish(min(stored, self.next_index))
            control.drop_for_all(min(stored, self.next_index))

    def _verify(self, control: _native.Control) -> None:
        """After a sync that failed: whoever has the queue alone finds out what is on the disk."""
        if self.flags["read_only"] or not (
            control.sync_failed() or self.home.journal.flags & _native.JOURNAL_SYNC_FAILED
        ):
            return
        later.ready("shmq.durability")
        from shmq import durability  # noqa: PLC0415  # rare

        control.fail_sync(failed=True)
        with contextlib.suppress(errors.Busy):
            durability.verify(self.home, self.joined())

    def sweep(self) -> None:
        """Finish or remove what killed processes have left in staging, unless somebody else administers the queue."""
        if self.flags["read_only"] or not self.home.has_staged():
            return
        later.ready("shmq.storage.ledger")
        from shmq.storage import ledger, staging  # noqa: PLC0415  # only where something was staged

        if staging.names(self.home):
            # Without room for the ledger, what is adopted stays where it is, and is read there.
            with contextlib.suppress(errors.Busy, errors.DiskFull), self.home.admin(timeout=0):
                ledger.fold(self.home, self.chain())

    # ---- lending
    @property
    def home(self) -> directory.Directory:
        """The queue's directory and what is known of its files."""
        assert self._loan.home is not None  # noqa: S101  # it was opened
        return self._loan.home

    def joined(self) -> membership.Membership:
        """This process's membership; a new one in a forked child."""
        with self.lock:
            if self.closed:
                raise errors.Closed(f"{self.path} was closed; open it again")
            return membership.lent(self.home, self._loan)

    def chain(self) -> Chain:
        """The chunk files, as they are now."""
        return Chain(self.home, self.joined().member)

    def access(self) -> Access:
        """Random access for this process; made anew in a forked child."""
        access = self._access
        if access is None or access.forked():
            with self.lock:
                access = self._access = Access(self.home, self.joined(), self.codec.decode)
        return access

    @property
    def first_index(self) -> int:
        """The first index still there."""
        return self.chain().first_index()

    @property
    def next_index(self) -> int:
        """The index behind the last claimed one."""
        end = self.chain().end_of_last()
        return self.access().next_index() if end is None else end

    def from_end(self, index: int) -> int:
        """The index meant by one that counts from the end if it is negative."""
        return index if index >= 0 else max(self.next_index + index, 0)

    def refuse_read_only(self, what: str) -> None:
        """
        Refuse *what*, which changes something, where nothing is to be changed.

        Raises:
            Closed: it was opened read-only.
        """
        if self.flags["read_only"]:
            raise errors.Closed(f"cannot {what}: {self.path} was opened read-only")

    def refuse_change(self, what: str, *, taking: bool = False) -> None:
        """
        The same, and where the queue follows another one; *taking*: nothing is added to what is there.

        Raises:
            Closed: it was opened read-only.
            Fenced: the change belongs into another queue.
        """
        self.refuse_read_only(what)
        roles.refuse(self.home, what, taking=taking)

    # ---- options that change
    def configure(self, changes: Mapping[str, Any]) -> None:
        """Have everybody's next put go by the options that these *changes* make."""
        with self.home.admin():
            journal = self.home.read_journal()
            options = self.home.options.__replace__(**changes)
            kept = small_json.loads(journal.changed) if journal.changed else {}
            made_with, now = self.home.made_with.to_json(), options.to_json()
            differs = {name: now[name] for name in CHANGEABLE if now[name] != made_with[name]}
            differs |= {name: kept[name] for name in (ERA, PART) if name in kept}
            later.ready("json")
            import json  # noqa: PLC0415

            journal = journal._replace(
                max_messages=options.max_messages or 0,
                max_bytes=options.max_bytes or 0,
                changed=json.dumps(differs, separators=(",", ":")).encode() if differs else b"",
                flags=journal.flags | (_native.JOURNAL_LOSES if options.retention.loses else 0),
            )
            self.home.write_journal(journal)
            self.joined().control.set_bounds(journal.max_messages, journal.max_bytes)  # also has all look at the rest
            self.home.note(self.home.journal)
            self.options = self.home.options

    def current_options(self) -> Options:
        """What they are now, whoever has changed them; once it is closed, what they were."""
        if not self.closed:
            with contextlib.suppress(OSError, errors.ShmqError):
                self.home.look_at_options()
                self.options = self.home.options
        return self.options

    def _publish_bounds(self, journal: _native.Journal) -> None:
        """Say what the journal says to all who put now. Under the administrative lock."""
        control = self.joined().control
        now = control.bounds()
        if (now.max_messages, now.max_bytes) != (journal.max_messages, journal.max_bytes):
            control.set_bounds(journal.max_messages, journal.max_bytes)
        self.home.note(journal)
        self.options = self.home.options

    # ---- closing
    def close(self) -> None:
        """Lend nothing any more. What was lent stays usable until it is given back. Closing twice is fine."""
        with self.lock:
            self.closed = True
            self._access = None
        if self._loan.is_over():
            return
        joined = self._loan.membership
        if joined is not None and not (self.flags["read_only"] or joined.member.forked()):
            joined.control.wake()  # readers that follow
        self._loan.give_back()

    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        """Close, unless the process ends, which closes everything."""
        if not is_ending():
            self._end_quietly(self.close)


class Handle(Closable):
    """What producers, consumers and readers have in common: they borrow a session's home and membership."""

    _session: Session
    _loan: Loan
    _home: directory.Directory
    _membership: membership.Membership

    def _borrow(self) -> None:
        """Have the home and the membership, until the loan is given back."""
        session = self._session
        with session.lock:
            joined = session.joined()
            self._home, self._membership = session.home, joined  # before it can have to give them back
            self._loan.have(self._home)
            self._loan.sit(joined)
