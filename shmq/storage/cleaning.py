"""A damaged chunk made one that a queue can have: what is not whole becomes padding, and it ends where it should."""

from __future__ import annotations

from shmq import _native, errors
from shmq.hints import NamedTuple


class Written(NamedTuple):
    """
    Of one chunk: its whole messages, and how many indexes have none any more; the index behind all that was put there,
    and how many ordinals it can have had; whether more may be lost.
    """

    messages: int
    lost: int
    end: int
    room: int = 0
    at_least: bool = False


def _pad(made: _native.DetachedChunk, position: int, ordinal: int, wanted: int) -> tuple[int, int]:
    """
    Position and ordinal behind padding for what is lost at the end: a batch that is not whole ends with it. Where it
    has no room for that, behind one word of padding that says no more than that.
    """
    if wanted <= ordinal:
        return position, ordinal
    for reached in (wanted, ordinal):
        end = made.pad_behind(position, reached - ordinal)
        if end is not None:
            return end, reached
    return position, ordinal


def _pad_damage(made: _native.DetachedChunk, survey: _native.Survey, room: int) -> _native.Damage | None:
    """Make padding of what is damaged where that survey stopped; None where nothing whole that may be is behind it."""
    damage = made.resync(survey)
    if damage is None or damage.end_ordinal > room:
        return None
    padded = made.pad_over(damage.position, damage.end, damage.end_ordinal - damage.ordinal)
    return damage if padded else None


def _end_of(survey: _native.Survey, room: int) -> tuple[int, int, bool]:
    """Where what is whole ends, and whether it is sealed there; before padding that the successor has no room for."""
    if survey.stopped_ordinal > room >= survey.ordinal:
        return survey.position, survey.ordinal, False
    if survey.stopped_ordinal > room:
        raise errors.Corrupt("it has more messages than its successor leaves room for")
    return survey.stopped, survey.stopped_ordinal, survey.code == _native.ROLL


def clean(made: _native.DetachedChunk, base: int, next_base: int | None, known: int) -> Written:
    """
    Turn what is damaged in a chunk into padding, and end it where its successor begins; the last one behind what is
    whole, though *known* ordinals were given in it.
    """
    messages = lost = 0
    position, ordinal = made.first_position(), 0
    room = _native.STAGED if next_base is None else next_base - base
    while True:
        survey = made.survey(position=position, ordinal=ordinal, singly=True, trusted=made.size)
        messages += survey.messages
        position, ordinal = survey.stopped, survey.stopped_ordinal
        if survey.code == _native.WAITING:
            made.pad_claim(position)
        elif survey.code == _native.CORRUPT:
            damage = _pad_damage(made, survey, room)
            if damage is None:
                break
            lost += damage.end_ordinal - damage.ordinal
            position, ordinal = damage.end, damage.end_ordinal
        else:
            break
    position, ordinal, sealed = _end_of(survey, room)
    wanted = max(known, ordinal + survey.missing) if next_base is None else room
    if next_base is None:
        if not sealed:
            lost += wanted - ordinal
            position, ordinal = _pad(made, position, ordinal, wanted)
            made.zero_from(position)
    elif not sealed or (survey.gap_index or base + ordinal) != next_base:
        lost += room - ordinal
        if not sealed:
            position, ordinal = _pad(made, position, ordinal, wanted)
        position = min(survey.gap_position or position, made.size - _native.TAIL_RESERVE)
        made.cut(position, next_base)
    made.set_in_order(survey.gap_position or position, ordinal)
    end = next_base if next_base is not None else (survey.gap_index if sealed else 0) or base + ordinal
    return Written(messages, lost, end)
