"""One chunk file, mapped: putting into it, ending it, and what it says of itself."""

from __future__ import annotations

import functools
import mmap
import os

from shmq import errors
from shmq._core import ffi, lib
from shmq._native import layout
from shmq._native.core import BATCH_MAX, NO_LIMIT, PAGE_BYTES, Fd, Kept, address, error, inside
from shmq._native.mapping import map_file, map_private
from shmq._native.survey import SCAN_LIMIT, DedupScan, Resolved, Survey, survey_of
from shmq.hints import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from shmq._native.checkpoint import Checkpoint
    from shmq._native.core import FileMap, Handled
    from shmq._native.fields import Batch, Each
    from shmq._native.member import Member

CHUNK_ID_AT = layout.chunk_header.chunk_id
_CREATED = layout.chunk_header.created_ns
_ORDINAL, _PLACE = layout.record.ordinal, layout.record.place


_new_renewal = functools.partial(ffi.new, ffi.typeof("shmq_renewal *"))
_new_name = functools.partial(ffi.new, ffi.typeof("char[]"))


def _free_chunk(memory: Any, member: Member, handle: Any) -> None:  # noqa: ARG001  # likewise
    lib.shmq_chunk_free(handle)


class Claim:
    """A region that is claimed and not yet committed. Made before it is claimed: the core's call itself fills it in."""

    __slots__ = ("at",)

    def __init__(self) -> None:
        """Nothing is claimed."""
        self.at = ffi.new("uint64_t[3]")

    @property
    def word(self) -> int:
        """The claim as it stands in the chunk; 0 while there is none."""
        return int(self.at[0])

    @property
    def record(self) -> int:
        """The position of its word."""
        return int(self.at[1])

    @property
    def payload(self) -> int:
        """The position of its payload."""
        return int(self.at[2])


class Chunk:
    """One mapped chunk file. It stays mapped as long as anybody holds a view of it."""

    def __init__(
        self,
        fd: int,
        size: int,
        *,
        base: int,
        sequence: int,
        queue_id: bytes,
        member: Member,
        path: str,
        writable: bool,
        padding: bool,
        checksum: bool,
        ends: tuple[int, int, bool] | None = None,
        memory: FileMap | None = None,
        used: bool = False,
    ) -> None:
        """
        Map and check it, unless *memory* is that mapping, perhaps *used* before; *fd* stays the caller's.

        *ends*: (position, ordinal, torn): map it privately and have it end there, without changing the file.

        *padding*: *fd* is writable, so that a dead owner's claim can be padded through a momentary window although the
        chunk is mapped read-only.
        """
        self.base = base
        self.sequence = sequence
        self.size = size
        self.path = path
        self.member = member
        if memory is None:
            memory = map_file(fd, size, writable=writable) if ends is None else map_private(fd, size)
        self.map = memory
        self.memory = ffi.from_buffer(self.map)
        code = ffi.new("int *")
        handle = lib.shmq_chunk_new(
            self.memory, size, padding, writable, checksum, base, sequence, queue_id, member.handle, code
        )
        if handle == ffi.NULL:
            raise error(inside(code[0]), f"cannot open {path}")
        if used:
            lib.shmq_chunk_is_populated(handle)
        # A thread that is inside a call with the handle keeps the memory mapped, whatever others do to this object.
        self.handle = ffi.gc(handle, functools.partial(_free_chunk, self.memory, member))
        self._kept = Kept(self.handle)
        self.address = address(handle)
        self.memory_address = address(self.memory)
        self._fd: Fd | None = None
        if ends is not None:
            position, ordinal, torn = ends
            if torn:
                lib.shmq_end_at(self.handle, position)
            lib.shmq_set_in_order(self.handle, position, ordinal)

    def keep(self, fd: Fd) -> None:
        """Keep *fd* open as long as this chunk."""
        self._fd = fd

    @property
    def fd(self) -> int:
        """A writable descriptor of its file, if it keeps one; else -1."""
        return -1 if self._fd is None else self._fd

    def index_of(self, record: int) -> int:
        """The index of the message whose record is at that position."""
        return self.base + int.from_bytes(self.map[record + _ORDINAL : record + _PLACE], "little")

    @staticmethod
    def format(
        memory: mmap.mmap,
        queue_id: bytes,
        chunk_id: int,
        epoch: int,
        base: int,
        sequence: int,
        spacing: int,
        grain: int,
        now_ns: int,
    ) -> None:
        """Write the first two records of a new chunk."""
        code = lib.shmq_chunk_format(
            ffi.from_buffer(memory), len(memory), queue_id, chunk_id, epoch, base, sequence, spacing, grain, now_ns
        )
        if code != lib.SHMQ_OK:
            raise error(code, "cannot make a chunk")

    @staticmethod
    def clear(memory: mmap.mmap, used: int, spacing: int, grain: int) -> None:
        """Zero what must be in a file that was a chunk, of which so much was *used*, before it is one again."""
        lib.shmq_chunk_clear(ffi.from_buffer(memory), len(memory), used, spacing, grain)

    @staticmethod
    def used(memory: mmap.mmap, grain: int) -> int:
        """
        How far a retired chunk was written: to its SEAL, if the hint in its header leads there; else all of it.

        One with a grain has more behind it, of the chunks that it was before, which only one with the same may leave.
        """
        return int(lib.shmq_chunk_used(ffi.from_buffer(memory), len(memory), grain))

    @staticmethod
    def renewed(memory: mmap.mmap, old: str, new: str, queue_id: bytes, **fields: int) -> Fd | None:
        """
        A descriptor of the chunk *new*, which carries the lock of a mapping: the used file *old* has become that.

        None when it could not, or somebody was faster. *memory*: its mapping, at which nobody looks. *fields*: the
        numbers of a shmq_renewal.
        """
        whole, own = ffi.from_buffer(memory), ffi.from_buffer("uint8_t[]", queue_id)
        names = _new_name(os.fsencode(old)), _new_name(os.fsencode(new))
        renewal = _new_renewal(fields)
        renewal.memory, renewal.bytes, renewal.queue_id = whole, len(memory), own
        renewal.used_name, renewal.chunk_name = names
        found = Fd.renewed(address(renewal))
        if isinstance(found, Fd):
            return found
        if found != lib.SHMQ_EMPTY:
            raise error(found, "cannot make a chunk of a used file")
        return None

    @staticmethod
    def bytes_for(region: int, spacing: int, grain: int = 0) -> int:
        """How many bytes a chunk must have so that a region of *region* bytes fits."""
        return int(lib.shmq_chunk_bytes_for(region, spacing, grain))

    def put_record(self, fields: Any, payload: Any, length: int) -> int:
        """Append one message with fields: its index or a negative code."""
        return self._counted(int(lib.shmq_put_record(self.handle, fields, payload, length)), 1, length)

    def put_many(self, batch: Batch) -> int:
        """Append a batch as one claim: its first index or a negative code."""
        return self._counted(int(lib.shmq_put_many(self.handle, *batch.arguments)), batch.count, batch.nbytes)

    def put_each(self, each: Each) -> int:
        """The same of messages with fields of their own."""
        index = int(lib.shmq_put_each(self.handle, each.count, each.fields, each.payloads, each.lengths))
        return self._counted(index, each.count, each.nbytes)

    def _counted(self, answer: int, messages: int, nbytes: int) -> int:
        """What a put answers, which is counted unless it is a negative code, or the chunk is a staged one."""
        if answer >= 0:
            lib.shmq_count_put(self.handle, messages, nbytes)
        return answer

    def reserve(self, claim: Claim, fields: Any, length: int) -> int:
        """Have *claim*, which is empty, claim room for a payload of *length* bytes: its index, or a negative code."""
        at = claim.at
        return int(lib.shmq_reserve(self.handle, fields, length, at, at + 1, at + 2))

    def commit(self, claim: Claim, length: int) -> int:
        """Publish the claim with the first *length* bytes of its payload, which is filled."""
        return self._counted(int(lib.shmq_commit(self.handle, claim.record, claim.word, length)), 1, length)

    def timed(self, messages: int, index: int, record: int) -> None:
        """Count how old the last one is of so many that are handed out for the first time, if it is their turn."""
        if index % layout.LATENCY_EVERY < messages:
            lib.shmq_count_latency(self.handle, record)

    def abort(self, claim: Claim) -> int:
        """Turn the claim into padding."""
        return int(lib.shmq_abort(self.handle, claim.record, claim.word))

    def seal(self) -> None:
        """End this chunk here."""
        code = lib.shmq_seal(self.handle)
        if code != lib.SHMQ_OK:
            raise error(code, f"cannot seal {self.path}")

    def seal_adopt(self, adoption: int) -> bool | None:
        """
        End this chunk here, and have the staged chunks of that adoption follow.

        False when it was sealed already, None when this handle's limit forbids it.
        """
        code = lib.shmq_seal_adopt(self.handle, adoption)
        if code == lib.SHMQ_FULL:
            return None
        if code not in (lib.SHMQ_OK, lib.SHMQ_ROLL):
            raise error(code, f"cannot seal {self.path}")
        return bool(code == lib.SHMQ_OK)

    def seal_again(self, adoption: int) -> None:
        """
        Give the SEAL of a staged chunk, which nobody else looks at, another id; 0 for none.

        Raises:
            Corrupt: it is not sealed.
        """
        code = lib.shmq_seal_again(self.handle, adoption)
        if code == lib.SHMQ_EMPTY:
            raise errors.Corrupt(f"cannot adopt {self.path}: it is not sealed")
        if code != lib.SHMQ_OK:
            raise error(code, f"cannot read {self.path}")

    def seals_as(self, adoption: int) -> None:
        """Have this handle seal with that id from now on; 0 for plainly."""
        lib.shmq_seals_as(self.handle, adoption)

    def adoption(self) -> int:
        """The id in the SEAL: its successor came by that adoption. 0 when it did not, or there is no SEAL yet."""
        return int(lib.shmq_adoption(self.handle))

    def chunk_id(self) -> int:
        """The random id that it was made with."""
        return int.from_bytes(self.map[CHUNK_ID_AT : CHUNK_ID_AT + 8], "little")

    def created_ns(self) -> int:
        """When it was made, by the clock of that moment."""
        return int.from_bytes(self.map[_CREATED : _CREATED + 8], "little")

    def pads(self) -> int:
        """How many of its indexes are padding."""
        return int(lib.shmq_pads(self.handle))

    def missing(self, position: int, ordinal: int, *, claims: bool = False) -> tuple[int, int, int, int, int]:
        """(code, position, ordinal, first, count) of the next padding from there on, as shmq_next_missing has it."""
        values = ffi.new("uint64_t[4]", (position, ordinal, 0, 0))
        code = int(lib.shmq_next_missing(self.handle, claims, values, values + 1, values + 2, values + 3))
        return code, int(values[0]), int(values[1]), int(values[2]), int(values[3])

    def messages(self) -> int:
        """
        How many messages it holds, after checking each of them as a read would.

        Raises:
            Corrupt: one is damaged.
            Busy: one is claimed and not committed.
        """
        walk = reader(self, 0, None)
        count = 0
        while (more := lib.shmq_next_many(self.handle, walk, BATCH_MAX, ffi.NULL, ffi.NULL)) > 0:
            count += more
        if more == lib.SHMQ_WAITING:
            raise errors.Busy(f"a message in {self.path} is reserved and not committed")
        if more not in (lib.SHMQ_EMPTY, lib.SHMQ_ROLL):
            raise error(more, f"cannot read {self.path}")
        return count

    def survey(self) -> Survey:
        """How far it is whole and committed."""
        return survey_of(self.handle, self.size, 0, 0, pass_claims=False, singly=False)

    def descriptor(self) -> int | None:
        """One of its file, for as long as this object is there; None when it has none."""
        return self._fd

    def sealed(self) -> int | None:
        """The base of the next chunk, once this one is sealed."""
        base = ffi.new("uint64_t *")
        code = lib.shmq_sealed(self.handle, base)
        if code == lib.SHMQ_EMPTY:
            return None
        if code != lib.SHMQ_OK:
            raise error(code, f"cannot read {self.path}")
        return int(base[0])

    def next_index(self) -> int:
        """The index behind the last claimed region."""
        index, position = ffi.new("uint64_t *"), ffi.new("uint64_t *")
        code = lib.shmq_tail(self.handle, index, position)
        if code != lib.SHMQ_OK:
            raise error(code, f"cannot read {self.path}")
        return int(index[0])

    def resolved(self) -> Resolved:
        """How far everything is settled; claims of the dead are padded on the way."""
        position, index, owner = ffi.new("uint64_t *"), ffi.new("uint64_t *"), ffi.new("uint32_t *")
        code = int(lib.shmq_resolved(self.handle, position, index, owner))
        if code not in (lib.SHMQ_EMPTY, lib.SHMQ_ROLL, lib.SHMQ_WAITING):
            raise error(code, f"cannot read {self.path}")
        return Resolved(code, int(position[0]), int(index[0]), int(owner[0]))

    def pages(self, begin: int, end: int) -> tuple[mmap.mmap, int, int]:
        """The mapping, and the first byte and number of bytes of the pages that hold *begin* to before *end*."""
        first = begin - begin % mmap.PAGESIZE
        return self.map, first, end - first

    def touch(self) -> None:
        """Write every page as it is, so that the next sync writes all of them. Nobody else may write meanwhile."""
        for at in range(0, self.size, PAGE_BYTES):
            self.map[at] = self.map[at]

    def limit(self, moved: int, ordinals: int, position: int) -> None:
        """Let this handle claim ordinals below *ordinals* and bytes before *position*, while bounds are *moved*."""
        lib.shmq_limit(self.handle, moved, min(ordinals, NO_LIMIT), min(position, NO_LIMIT))

    def floor(self, index: int) -> tuple[int, int, bool]:
        """
        (index, position) of the first message or claim at or behind *index*, and whether the chunk ends before it.

        Raises:
            Corrupt: the way there is damaged.
        """
        ordinal, position = ffi.new("uint64_t *", index - self.base), ffi.new("uint64_t *")
        code = lib.shmq_floor(self.handle, ordinal, position)
        if code not in (lib.SHMQ_OK, lib.SHMQ_ROLL):
            raise error(code, f"cannot read {self.path}")
        return self.base + int(ordinal[0]), int(position[0]), bool(code == lib.SHMQ_ROLL)

    def filled(self, position: int = 0) -> tuple[int, int]:
        """Where the chunk is filled to, and how many bytes of messages and padding lie from *position* to there."""
        end, bytes_there = ffi.new("uint64_t *"), ffi.new("uint64_t *")
        code = lib.shmq_filled(self.handle, max(position, self.first_position()), end, bytes_there)
        if code != lib.SHMQ_OK:
            raise error(code, f"cannot read {self.path}")
        return int(end[0]), int(bytes_there[0])

    def scan_dedup(self, scan: DedupScan, position: int, ordinal: int, until: int = 0) -> tuple[int, int, int]:
        """
        Find the next puts with dedup, and open claims, from *position* on (0: the start) and before *until* (0: no
        end). They are in *scan* then.

        Returns (code, position, ordinal): OK when there may be more; EMPTY or ROLL at the end.

        Raises:
            Corrupt: something before it is damaged.
        """
        scan.position[0], scan.ordinal[0], scan.base = position, ordinal, self.base
        scan.count = int(
            lib.shmq_scan_dedup(
                self.handle,
                scan.position,
                scan.ordinal,
                until,
                scan.wanted,
                scan.source,
                SCAN_LIMIT,
                scan.found,
                scan.code,
            )
        )
        code = int(scan.code[0])
        if code not in (lib.SHMQ_OK, lib.SHMQ_EMPTY, lib.SHMQ_ROLL):
            raise error(code, f"cannot look for puts with dedup in {self.path}")
        return code, int(scan.position[0]), int(scan.ordinal[0])

    def bury(self, owner: int) -> int:
        """Pad every open claim of a dead owner, or of everybody for 0: how many."""
        buried = lib.shmq_bury(self.handle, owner)
        if buried < 0:
            raise error(buried, f"cannot read {self.path}")
        return int(buried)

    def first_position(self) -> int:
        """Where the first message may begin."""
        return int(lib.shmq_chunk_first_position(self.handle))


def reader(chunk: Chunk, start: int, checkpoint: Checkpoint | None, wants: Handled | None = None) -> Any:
    """
    A reader at the beginning of *chunk*, for messages from index *start* on.

    With a *checkpoint* every message is finished when it is returned: that checkpoint's live words move before it.
    *wants*: what does not match is passed, and finished with that. Both live as long as the reader, which is the
    caller's business.
    """
    return ffi.new(
        "shmq_reader *",
        {
            "position": chunk.first_position(),
            "start": start,
            "checkpoint": ffi.NULL if checkpoint is None else checkpoint.page,
            "filter": ffi.NULL if wants is None else wants.handle,
        },
    )
