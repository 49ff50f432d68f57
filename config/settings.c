/* settings.c - the rows behind struct settings, and what can be done with a single value: find, check, parse, store,
 * describe. Where values come from and which wins is config.c's business. Any thread; no state but constants. */
#include "config/settings.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "config/digits.h"
#include "config/nearest.h"
#include "config/utf8.h"

/* ---- the table as data ----------------------------------------------------------------------------------------- */

#define NOTHING(...)
#define WORD(constant, word) word,
#define CHOICE(name, type, list, def, help) static const char *const words_of_##name[] = {list(WORD)};
SETTINGS(NOTHING, NOTHING, CHOICE, NOTHING)
#undef CHOICE
#undef WORD

#define NUMBER(name, def, min, max, help) \
    _Static_assert((def) >= (min) && (def) <= (max) && (max) <= UINT32_MAX, #name ": default out of range");
#define TEXT(name, def, help) \
    _Static_assert(sizeof(def) > 1 && sizeof(def) <= SETTING_TEXT_MAX + 1, #name ": default is empty or too long");
#define CHOICE(name, type, list, def, help) \
    _Static_assert(sizeof((struct settings *)0)->name == sizeof(uint32_t), #name ": choices are stored like numbers");
SETTINGS(NUMBER, TEXT, CHOICE, NOTHING)
#undef NUMBER
#undef TEXT
#undef CHOICE
#undef NOTHING

#define AT(name) offsetof(struct settings, name)
#define WORDS(name) (uint32_t)(sizeof words_of_##name / sizeof words_of_##name[0])
#define NUMBER(name, def, min, max, help) {#name, help, AT(name), NULL, NULL, SETTING_NUMBER, def, min, max},
#define TEXT(name, def, help) {#name, help, AT(name), def, NULL, SETTING_TEXT, 0, 1, SETTING_TEXT_MAX},
#define CHOICE(name, type, list, def, help) \
    {#name, help, AT(name), NULL, words_of_##name, SETTING_CHOICE, def, 0, WORDS(name) - 1},
#define SWITCH(name, def, help) {#name, help, AT(name), NULL, NULL, SETTING_SWITCH, def, 0, 1},
static const struct setting rows[] = {SETTINGS(NUMBER, TEXT, CHOICE, SWITCH)};
#undef NUMBER
#undef TEXT
#undef CHOICE
#undef SWITCH
#undef WORDS
#undef AT

/* How a switch may be written outside JSON. */
static const struct {
    const char *word;
    uint32_t value;
} switch_words[] = {{"true", 1}, {"false", 0}, {"1", 1}, {"0", 0}, {"yes", 1}, {"no", 0}, {"on", 1}, {"off", 0}};

/* ---- finding --------------------------------------------------------------------------------------------------- */

const struct setting *setting_at(size_t id)
{
    assert(id < SETTING_COUNT);
    return &rows[id];
}

const struct setting *setting_find(const char *name, size_t length)
{
    for (size_t id = 0; id < SETTING_COUNT; id++)
        if (nearest_is(name, length, rows[id].name))
            return &rows[id];
    return NULL;
}

const char *setting_nearest(const char *name, size_t length)
{
    struct nearest near = nearest_to(name, length);
    for (size_t id = 0; id < SETTING_COUNT; id++)
        nearest_offer(&near, rows[id].name);
    return near.name;
}

/* ---- storing --------------------------------------------------------------------------------------------------- */

void settings_init(struct settings *ret)
{
    memset(ret, 0, sizeof *ret);
    for (size_t id = 0; id < SETTING_COUNT; id++) {
        if (rows[id].kind == SETTING_TEXT)
            setting_set_text(&rows[id], ret, rows[id].def_text);
        else
            setting_set_number(&rows[id], ret, rows[id].def);
    }
}

void setting_set_number(const struct setting *s, struct settings *to, uint32_t value)
{
    char *at = (char *)to + s->offset;
    assert(s->kind != SETTING_TEXT && value >= s->min && value <= s->max);
    if (s->kind == SETTING_SWITCH)
        *(bool *)at = value != 0;
    else
        memcpy(at, &value, sizeof value);
}

void setting_set_text(const struct setting *s, struct settings *to, const char *text)
{
    const size_t length = strlen(text);
    assert(s->kind == SETTING_TEXT && length <= SETTING_TEXT_MAX);
    memcpy((char *)to + s->offset, text, length + 1);
}

uint32_t setting_number(const struct setting *s, const struct settings *from)
{
    const char *at = (const char *)from + s->offset;
    uint32_t value = 0;
    assert(s->kind != SETTING_TEXT);
    if (s->kind == SETTING_SWITCH)
        return *(const bool *)at ? 1 : 0;
    memcpy(&value, at, sizeof value);
    return value;
}

const char *setting_text(const struct setting *s, const struct settings *from)
{
    assert(s->kind == SETTING_TEXT);
    return (const char *)from + s->offset;
}

/* ---- reading and describing ------------------------------------------------------------------------------------ */

void setting_describe(const struct setting *s, char *out, size_t size)
{
    switch (s->kind) {
    case SETTING_NUMBER:
        (void)snprintf(out, size, "a whole number from %u to %u", s->min, s->max);
        break;
    case SETTING_TEXT:
        (void)snprintf(out, size, "1 to %d bytes of UTF-8 without control characters", SETTING_TEXT_MAX);
        break;
    case SETTING_CHOICE: {
        int used = snprintf(out, size, "one of ");
        for (uint32_t i = 0; i <= s->max && used >= 0 && (size_t)used < size; i++)
            used += snprintf(out + used, size - (size_t)used, "%s%s", i == 0 ? "" : ", ", s->words[i]);
        break;
    }
    case SETTING_SWITCH:
        (void)snprintf(out, size, "true or false");
        break;
    }
}

static bool is_fine_text(const char *text)
{
    const size_t length = strlen(text);
    for (const char *at = text; *at != '\0'; at += utf8_length(at))
        if (utf8_length(at) == 0 || (unsigned char)*at < 0x20 || *at == 0x7f)
            return false;
    return length > 0 && length <= SETTING_TEXT_MAX;
}

static bool parse_number(const char *text, const struct setting *s, uint32_t *ret)
{
    uint64_t value = 0;
    const bool fine = digits_read(&value, &text) && *text == '\0' && value >= s->min && value <= s->max;
    *ret = (uint32_t)value;
    return fine;
}

static bool parse_choice(const char *text, const struct setting *s, uint32_t *ret)
{
    *ret = 0;
    while (*ret <= s->max && strcmp(text, s->words[*ret]) != 0)
        ++*ret;
    return *ret <= s->max;
}

static bool parse_switch(const char *text, uint32_t *ret)
{
    for (size_t i = 0; i < sizeof switch_words / sizeof switch_words[0]; i++) {
        if (strcasecmp(text, switch_words[i].word) == 0) {
            *ret = switch_words[i].value;
            return true;
        }
    }
    return false;
}

bool setting_parse(const struct setting *s, const char *text, struct settings *to)
{
    uint32_t value = 0;
    if (s->kind == SETTING_TEXT) {
        if (!is_fine_text(text))
            return false;
        setting_set_text(s, to, text);
        return true;
    }
    if (!(s->kind == SETTING_NUMBER   ? parse_number(text, s, &value)
          : s->kind == SETTING_CHOICE ? parse_choice(text, s, &value)
                                      : parse_switch(text, &value)))
        return false;
    setting_set_number(s, to, value);
    return true;
}

const char *log_level_word(enum log_level level)
{
    assert((size_t)level < sizeof words_of_log_level / sizeof words_of_log_level[0]);
    return words_of_log_level[level];
}
