/* multipart.c - see multipart.h. */
#include "server/fields/multipart.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "config/json.h"

/* ---- headers ---------------------------------------------------------------------------------------------------- */

/* The rest of a header, up to but excluding `end`. */
struct cursor {
    const char *at, *end;
};

static void skip_blanks(struct cursor *c)
{
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t'))
        c->at++;
}

static bool is_token_character(char c)
{
    return isgraph((unsigned char)c) != 0 && strchr("()<>@,;:\\\"/[]?=", c) == NULL;
}

/* A token (with slashes, for media types) or a quoted string into out, with a NUL; false if there is none or it is too
 * long. */
static bool read_value(struct cursor *c, char *out, size_t size)
{
    size_t used = 0;
    const bool quoted = c->at < c->end && *c->at == '"';
    if (quoted)
        c->at++;
    for (; c->at < c->end; c->at++) {
        if (quoted ? *c->at == '"' : !is_token_character(*c->at) && *c->at != '/')
            break;
        if (quoted && *c->at == '\\' && c->at + 1 < c->end)
            c->at++;
        if (used + 1 >= size)
            return false;
        out[used++] = *c->at;
    }
    out[used] = '\0';
    if (!quoted)
        return used > 0;
    return c->at < c->end && *c->at++ == '"';
}

/* "; name=value": false at the end of the header, or if something else is there. */
static bool read_parameter(struct cursor *c, char *name, char *value, size_t size)
{
    skip_blanks(c);
    if (c->at >= c->end || *c->at != ';')
        return false;
    c->at++;
    skip_blanks(c);
    if (!read_value(c, name, size) || c->at >= c->end || *c->at != '=')
        return false;
    c->at++;
    return read_value(c, value, size);
}

/* Find the parameter of that name in what follows a header's first value. False if it is there twice or too long, or if
 * the header is malformed. */
static bool find_parameter(struct cursor c, const char *wanted, char *out, size_t out_size, bool *found)
{
    char name[MULTIPART_PARAMETER_MAX], value[MULTIPART_PARAMETER_MAX];
    *found = false;
    while (read_parameter(&c, name, value, sizeof name)) {
        if (strcasecmp(name, wanted) != 0)
            continue;
        const size_t length = strlen(value);
        if (*found || length >= out_size)
            return false;
        memcpy(out, value, length + 1);
        *found = true;
    }
    skip_blanks(&c);
    return c.at == c.end;
}

/* ---- one part --------------------------------------------------------------------------------------------------- */

static enum status read_disposition(struct cursor c, struct multipart_part *part, bool *named, struct error *err)
{
    char kind[MULTIPART_PARAMETER_MAX];
    bool found = false;
    if (*named || !read_value(&c, kind, sizeof kind) || strcasecmp(kind, "form-data") != 0 ||
        !find_parameter(c, "name", part->name, sizeof part->name, &found) || !found)
        return error_set(err, ERR_ARGUMENT,
                         "a part's Content-Disposition is \"%.*s\"; expected exactly one: form-data; name=\"...\"",
                         (int)(c.end - c.at < 100 ? c.end - c.at : 100), c.at);
    *named = true;
    return OK;
}

/* Is it the header of that name, in lower case with its colon? Then *c is moved to its value. */
static bool is_header(struct cursor *c, const char *name)
{
    const size_t length = strlen(name);
    if ((size_t)(c->end - c->at) <= length || strncasecmp(c->at, name, length) != 0)
        return false;
    c->at += length;
    skip_blanks(c);
    return true;
}

/* One line of a header, without its CR LF. */
static enum status read_line(const char *line, size_t size, struct multipart_part *part, bool *named, struct error *err)
{
    char coding[MULTIPART_PARAMETER_MAX];
    struct cursor c = {line, line + size};
    for (size_t i = 0; i < size; i++)
        if ((unsigned char)line[i] < ' ' && line[i] != '\t')
            return error_set(err, ERR_ARGUMENT, "a part's header has a control character; expected none");
    if (memchr(line, ':', size) == NULL || isgraph((unsigned char)line[0]) == 0)
        return error_set(err, ERR_ARGUMENT, "a part's header has no name; expected \"Name: value\" on each line");
    if (is_header(&c, "content-disposition:"))
        return read_disposition(c, part, named, err);
    if (is_header(&c, "content-type:"))
        return read_value(&c, part->type, sizeof part->type)
                   ? OK
                   : error_set(err, ERR_ARGUMENT, "a part's Content-Type is not a media type");
    if (is_header(&c, "content-transfer-encoding:") &&
        (!read_value(&c, coding, sizeof coding) ||
         (strcasecmp(coding, "binary") != 0 && strcasecmp(coding, "8bit") != 0 && strcasecmp(coding, "7bit") != 0)))
        return error_set(
            err, ERR_ARGUMENT,
            "a part has a Content-Transfer-Encoding; expected none, or binary, 8bit or 7bit (RFC 7578, 4.7)");
    return OK;
}

/* From the end of the delimiter's line to the part's first byte. */
static enum status read_headers(struct multipart *m, struct multipart_part *part, struct error *err)
{
    const size_t looked_at = m->left < MULTIPART_HEADER_BYTES_MAX ? m->left : MULTIPART_HEADER_BYTES_MAX;
    const char *at = (const char *)m->at, *end = at + looked_at;
    bool named = false;
    for (;;) {
        const char *line_end = memmem(at, (size_t)(end - at), "\r\n", 2);
        if (line_end == NULL)
            return error_set(err, ERR_ARGUMENT, "a part's headers do not end within %d bytes, or the body is truncated",
                             MULTIPART_HEADER_BYTES_MAX);
        if (line_end == at)
            break;
        const enum status st = read_line(at, (size_t)(line_end - at), part, &named, err);
        if (st != OK)
            return st;
        at = line_end + 2;
    }
    if (!named)
        return error_set(err, ERR_ARGUMENT,
                         "a part has no Content-Disposition; expected exactly one: form-data; name=\"...\"");
    at += 2;
    m->left -= (size_t)(at - (const char *)m->at);
    m->at = (const uint8_t *)at;
    return OK;
}

/* ---- the body --------------------------------------------------------------------------------------------------- */

enum status multipart_begin(struct multipart *m, const char *content_type, const uint8_t *body, size_t size,
                            struct error *err)
{
    char type[MULTIPART_PARAMETER_MAX], boundary[MULTIPART_BOUNDARY_MAX + 1];
    struct cursor c = {content_type, content_type + strlen(content_type)};
    bool found = false;
    if (!read_value(&c, type, sizeof type) || !find_parameter(c, "boundary", boundary, sizeof boundary, &found) ||
        !found || boundary[0] == '\0')
        return error_set_param(
            err, ERR_ARGUMENT, "Content-Type",
            "Content-Type is \"%s\"; expected multipart/form-data; boundary=... of 1 to %d characters",
            json_quote(content_type).text, MULTIPART_BOUNDARY_MAX);
    *m = (struct multipart){.at = size > 0 ? body : (const uint8_t *)"", .left = size}; /* an empty body is NULL */
    const size_t length = strlen(boundary);
    memcpy(m->delimiter, "\r\n--", 4);
    memcpy(m->delimiter + 4, boundary, length);
    m->delimiter_bytes = 4 + length;
    return OK;
}

/* What follows a delimiter: blanks and the line's end, or two dashes after the last one. */
static bool ends_as_delimiter(const uint8_t *at, size_t left, size_t *skip, bool *last)
{
    size_t i = 0;
    *last = left >= 2 && at[0] == '-' && at[1] == '-';
    if (*last) {
        *skip = 2;
        return true;
    }
    while (i < left && (at[i] == ' ' || at[i] == '\t'))
        i++;
    *skip = i + 2;
    return left >= i + 2 && at[i] == '\r' && at[i + 1] == '\n';
}

/* Go on after the next delimiter, before which there are *size bytes. False if there is none. At the start of a body,
 * and of a part without content, no CR LF is left before the delimiter. */
static bool find_delimiter(struct multipart *m, size_t *size)
{
    const uint8_t *from = m->at;
    const uint8_t *const end = m->at + m->left;
    size_t skip;
    if (m->left >= m->delimiter_bytes - 2 && memcmp(from, m->delimiter + 2, m->delimiter_bytes - 2) == 0 &&
        ends_as_delimiter(from + m->delimiter_bytes - 2, m->left - (m->delimiter_bytes - 2), &skip, &m->ended)) {
        *size = 0;
        m->at += m->delimiter_bytes - 2 + skip;
        m->left = (size_t)(end - m->at);
        return true;
    }
    for (;;) {
        const uint8_t *found = memmem(from, (size_t)(end - from), m->delimiter, m->delimiter_bytes);
        if (found == NULL)
            return false;
        const uint8_t *behind = found + m->delimiter_bytes;
        if (ends_as_delimiter(behind, (size_t)(end - behind), &skip, &m->ended)) {
            *size = (size_t)(found - m->at);
            m->at = behind + skip;
            m->left = (size_t)(end - m->at);
            return true;
        }
        from = found + 2; /* a longer word that begins with the boundary */
    }
}

enum status multipart_next(struct multipart *m, struct multipart_part *ret, bool *end, struct error *err)
{
    struct multipart_part part = {.size = 0};
    size_t preamble; /* ignored, like what follows the last part (RFC 2046, 5.1.1) */
    if (!m->begun && !find_delimiter(m, &preamble))
        return error_set(err, ERR_ARGUMENT, "the body has no line \"--%.*s\", the boundary that its Content-Type gives",
                         (int)m->delimiter_bytes - 4, m->delimiter + 4);
    m->begun = true;
    if (m->ended) {
        *end = true;
        return OK;
    }
    const enum status st = read_headers(m, &part, err);
    if (st != OK)
        return st;
    part.bytes = m->at;
    if (!find_delimiter(m, &part.size))
        return error_set(err, ERR_ARGUMENT, "the part \"%s\" is truncated: there is no boundary after it",
                         json_quote(part.name).text);
    *ret = part;
    *end = false;
    return OK;
}
