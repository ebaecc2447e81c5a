/* filter.c - what a name wants: a key that begins so, one of these types, headers that equal these.
 *
 * All that was asked for must hold. A record is looked at where it lies, before its checksum is: what does not match costs
 * its head, and its headers if they are asked for. So every length that is read is held against what is left, and a message
 * that was damaged into not matching is passed over; verify finds it. Headers are a msgpack map, and are compared as values:
 * an int is the same in every width. Of a name that comes twice, the last one counts, as for whoever decodes the map. */
#include "chunk/filter.h"

#include <stdlib.h>
#include <string.h>

#include "chunk/entry.h"
#include "chunk/record.h"
#include "error.h"

#define TYPES (UINT32_C(1) << 16)

/* ------------------------------------------------------------------ msgpack */
enum kind { NIL, FALSE_, TRUE_, WHOLE, NEGATIVE, TEXT, BYTES, OTHER, ARRAY, MAP, NONSENSE };

/* A value: a number, or what lies from `at` on; of an array or a map, how many values follow. */
struct value {
    enum kind kind;
    uint64_t number;
    const uint8_t *at;
    uint64_t length;
};

/* What is left of the bytes. */
struct bytes {
    const uint8_t *at;
    const uint8_t *end;
};

static bool take_bytes(struct bytes *left, uint64_t count, const uint8_t **at)
{
    if (count > (uint64_t)(left->end - left->at)) {
        return false;
    }
    *at = left->at;
    left->at += count;
    return true;
}

/* A big-endian number of so many bytes. */
static bool take_number(struct bytes *left, uint32_t bytes, uint64_t *number)
{
    uint8_t raw[8];
    const uint8_t *at;
    if (!take_bytes(left, bytes, &at)) {
        return false;
    }
    shared_read(raw, at, bytes);
    *number = 0;
    for (uint32_t i = 0; i < bytes; i++) {
        *number = *number << 8 | raw[i];
    }
    return true;
}

/* A number of so many bytes, with its sign. */
static struct value whole(uint64_t number, uint32_t bytes, bool is_signed)
{
    const uint32_t shift = 64 - 8 * bytes;
    const bool negative = is_signed && number >> (8 * bytes - 1) != 0;
    return (struct value){.kind = negative ? NEGATIVE : WHOLE,
                          .number = negative ? (uint64_t)((int64_t)(number << shift) >> shift) : number};
}

static struct value stretch(struct bytes *left, enum kind kind, uint64_t length)
{
    struct value value = {.kind = kind, .length = length};
    return take_bytes(left, length, &value.at) ? value : (struct value){.kind = NONSENSE};
}

/* What a length of `bytes` bytes announces, and `more` bytes that belong to it: extensions have a kind of their own. */
static struct value announced(struct bytes *left, enum kind kind, uint32_t bytes, uint32_t more)
{
    uint64_t length;
    if (!take_number(left, bytes, &length)) {
        return (struct value){.kind = NONSENSE};
    }
    if (kind == ARRAY || kind == MAP) {
        return (struct value){.kind = kind, .number = kind == MAP ? 2 * length : length};
    }
    return stretch(left, kind, length + more);
}

static struct value numbered(struct bytes *left, uint32_t bytes, bool is_signed)
{
    uint64_t number;
    return take_number(left, bytes, &number) ? whole(number, bytes, is_signed) : (struct value){.kind = NONSENSE};
}

/* The value that begins there, without those that an array or a map holds. */
static struct value next_value(struct bytes *left)
{
    uint64_t head;
    if (!take_number(left, 1, &head)) {
        return (struct value){.kind = NONSENSE};
    }
    const uint32_t width = 1u << (head & 3); /* of the kinds that come in several, next to each other */
    if (head < 0x80) {
        return (struct value){.kind = WHOLE, .number = head};
    }
    if (head < 0x90) {
        return (struct value){.kind = MAP, .number = 2 * (head & 0x0f)};
    }
    if (head < 0xa0) {
        return (struct value){.kind = ARRAY, .number = head & 0x0f};
    }
    if (head < 0xc0) {
        return stretch(left, TEXT, head & 0x1f);
    }
    if (head >= 0xe0) {
        return whole(head, 1, true);
    }
    switch (head) {
    case 0xc0:
        return (struct value){.kind = NIL};
    case 0xc2:
        return (struct value){.kind = FALSE_};
    case 0xc3:
        return (struct value){.kind = TRUE_};
    case 0xc4: case 0xc5: case 0xc6:
        return announced(left, BYTES, width, 0);
    case 0xc7: case 0xc8: case 0xc9:
        return announced(left, OTHER, 1u << (head - 0xc7), 1);
    case 0xca:
        return stretch(left, OTHER, 4);
    case 0xcb:
        return stretch(left, OTHER, 8);
    case 0xcc: case 0xcd: case 0xce: case 0xcf:
        return numbered(left, width, false);
    case 0xd0: case 0xd1: case 0xd2: case 0xd3:
        return numbered(left, width, true);
    case 0xd4: case 0xd5: case 0xd6: case 0xd7: case 0xd8:
        return stretch(left, OTHER, 1 + (UINT64_C(1) << (head - 0xd4)));
    case 0xd9: case 0xda: case 0xdb:
        return announced(left, TEXT, 1u << (head - 0xd9), 0);
    case 0xdc: case 0xdd:
        return announced(left, ARRAY, 2u << (head - 0xdc), 0);
    case 0xde: case 0xdf:
        return announced(left, MAP, 2u << (head - 0xde), 0);
    default: /* 0xc1, which is never used */
        return (struct value){.kind = NONSENSE};
    }
}

/* The values that one holds, whatever they hold. Each takes a byte at least, so it ends. */
static bool pass_inside(struct bytes *left, const struct value *value)
{
    uint64_t inside = value->kind == ARRAY || value->kind == MAP ? value->number : 0;
    while (inside > 0) {
        const struct value next = next_value(left);
        if (next.kind == NONSENSE) {
            return false;
        }
        inside += (next.kind == ARRAY || next.kind == MAP ? next.number : 0) - 1;
    }
    return true;
}

/* Bytes of our own beside bytes that somebody else may write to. */
static bool equal(const uint8_t *mine, const uint8_t *shared, uint64_t length)
{
    uint8_t piece[64];
    for (uint64_t done = 0; done < length; done += sizeof piece) {
        const uint64_t some = length - done < sizeof piece ? length - done : sizeof piece;
        shared_read(piece, shared + done, some);
        if (memcmp(mine + done, piece, some) != 0) {
            return false;
        }
    }
    return true;
}

static bool same(const struct value *mine, const struct value *shared)
{
    if (mine->kind != shared->kind || mine->number != shared->number || mine->length != shared->length) {
        return false;
    }
    return (mine->kind != TEXT && mine->kind != BYTES) || equal(mine->at, shared->at, mine->length);
}

/* ------------------------------------------------------------------ the filter */
struct header {
    struct value name;
    struct value value;
};

struct shmq_filter {
    uint32_t prefix_length;
    uint32_t header_count;
    bool by_type;
    struct header headers[SHMQ_FILTER_HEADERS];
    uint64_t types[TYPES / 64];
    uint8_t bytes[]; /* the key's beginning, and then the map of the headers */
};

/* Its own headers, out of a map that has its names once each and values that can be compared. */
static bool read_headers(shmq_filter *filter, const uint8_t *map, uint64_t length)
{
    struct bytes left = {map, map + length};
    const struct value whole_map = next_value(&left);
    if (whole_map.kind != MAP || whole_map.number > 2 * (uint64_t)SHMQ_FILTER_HEADERS) {
        return false;
    }
    for (uint32_t i = 0; i < whole_map.number / 2; i++) {
        struct header *const header = &filter->headers[i];
        header->name = next_value(&left);
        header->value = next_value(&left);
        if (header->name.kind != TEXT || header->value.kind >= OTHER) {
            return false;
        }
    }
    filter->header_count = (uint32_t)whole_map.number / 2;
    return left.at == left.end;
}

shmq_filter *shmq_filter_new(const char *prefix, uint32_t prefix_length, const uint16_t *types, uint32_t type_count,
                             const char *headers, uint32_t headers_length)
{
    shmq_filter *const filter = calloc(1, sizeof *filter + prefix_length + headers_length);
    if (filter == NULL) {
        return NULL;
    }
    filter->prefix_length = prefix_length;
    memcpy(filter->bytes, prefix, prefix_length);
    filter->by_type = type_count > 0;
    for (uint32_t i = 0; i < type_count; i++) {
        filter->types[types[i] / 64] |= UINT64_C(1) << types[i] % 64;
    }
    memcpy(filter->bytes + prefix_length, headers, headers_length);
    if (headers_length > 0 && !read_headers(filter, filter->bytes + prefix_length, headers_length)) {
        free(filter);
        return NULL;
    }
    return filter;
}

void shmq_filter_free(shmq_filter *filter) { free(filter); }

/* ------------------------------------------------------------------ the verdict */
/* Does this map have all headers that are asked for, as they are asked for? A map that is none has nothing. */
static bool headers_match(const shmq_filter *filter, struct bytes left)
{
    const struct value map = next_value(&left);
    uint32_t matching = 0;
    if (map.kind != MAP) {
        return false;
    }
    for (uint64_t i = 0; i < map.number / 2; i++) {
        const struct value name = next_value(&left);
        if (name.kind == NONSENSE || !pass_inside(&left, &name)) {
            return false;
        }
        const struct value value = next_value(&left);
        if (value.kind == NONSENSE || !pass_inside(&left, &value)) {
            return false;
        }
        for (uint32_t j = 0; j < filter->header_count; j++) {
            if (same(&filter->headers[j].name, &name)) {
                const bool is = same(&filter->headers[j].value, &value);
                matching = (matching & ~(1u << j)) | (uint32_t)is << j;
            }
        }
    }
    return matching == (1u << filter->header_count) - 1;
}

int filter_matches(const shmq_filter *filter, const shmq_chunk *chunk, uint64_t position, uint64_t ordinal, word_t word)
{
    struct record record;
    const int64_t place = check_frame(chunk, position, ordinal, word, &record);
    if (place < 0) {
        return (int)place;
    }
    if (filter->by_type && (filter->types[record.type / 64] >> record.type % 64 & 1) == 0) {
        return 0;
    }
    const uint64_t key = position + RECORD_HEADER_BYTES + record.extra_words * SPAN_UNIT;
    if (record.key_length < filter->prefix_length || !equal(filter->bytes, chunk->memory + key, filter->prefix_length)) {
        return 0;
    }
    if (filter->header_count == 0) {
        return 1;
    }
    uint64_t headers;
    uint32_t length;
    if (!record_headers(chunk, position, &record, &headers, &length) || length == 0
        || length > key - headers) {
        return 0;
    }
    return headers_match(filter, (struct bytes){chunk->memory + headers, chunk->memory + headers + length});
}

int shmq_filter_matches(const shmq_filter *filter, const shmq_chunk *chunk, uint64_t position)
{
    struct record record;
    if (position < chunk->first_position || position + SEAL_BYTES > chunk->capacity || position % SPAN_UNIT != 0) {
        return corrupt(chunk, position, "no message can be there");
    }
    const struct walk walk = {position, 0};
    const word_t word = walk_look(chunk, &walk);
    if (word_state(word) != WORD_DONE || word_bytes(word) < sizeof record
        || word_bytes(word) > chunk->capacity - SEAL_BYTES - position) {
        return corrupt(chunk, position, "there is no message");
    }
    shared_read(&record, chunk->memory + position, sizeof record);
    return filter_matches(filter, chunk, position, record.ordinal, word);
}

/* ------------------------------------------------------------------ how many */
int shmq_filter_next(const shmq_filter *filter, shmq_chunk *chunk, uint64_t *position, uint64_t *ordinal, uint64_t stop,
                     uint32_t *most)
{
    struct walk walk = {*position, *ordinal};
    int code = may_look(chunk);
    while (code == SHMQ_OK) {
        const word_t word = walk_look(chunk, &walk);
        if (word_ends(word) || chunk->base + walk.ordinal >= stop) {
            code = SHMQ_EMPTY;
        } else if (*most == 0) {
            code = SHMQ_PASSED;
        } else {
            const int matches = word_state(word) == WORD_DONE
                                    ? filter_matches(filter, chunk, walk.position, walk.ordinal, word)
                                    : 0; /* what is claimed is no message yet */
            if (matches > 0) {
                break;
            }
            *most -= 1;
            code = matches < 0 ? matches : walk_past(chunk, &walk, word);
        }
    }
    *position = walk.position;
    *ordinal = walk.ordinal;
    return code;
}

int shmq_filter_step(shmq_chunk *chunk, uint64_t *position, uint64_t *ordinal)
{
    struct walk walk = {*position, *ordinal};
    const int code = walk_past(chunk, &walk, walk_look(chunk, &walk));
    *position = walk.position;
    *ordinal = walk.ordinal;
    return code;
}

int shmq_filter_count(const shmq_filter *filter, shmq_chunk *chunk, uint64_t *position, uint64_t *ordinal, uint64_t first,
                      uint64_t stop, uint32_t most, uint64_t *count)
{
    int code;
    while ((code = shmq_filter_next(filter, chunk, position, ordinal, stop, &most)) == SHMQ_OK) {
        *count += chunk->base + *ordinal >= first;
        most -= most > 0;
        code = shmq_filter_step(chunk, position, ordinal);
        if (code != SHMQ_OK) {
            break;
        }
    }
    return code;
}
