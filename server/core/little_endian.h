/* little_endian.h - numbers in the daemon's own binary formats, lowest byte first whatever the machine. Any thread; no
 * state. */
#ifndef SERVER_CORE_LITTLE_ENDIAN_H
#define SERVER_CORE_LITTLE_ENDIAN_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Write `bytes` (1 .. 8) bytes of a number, or read them; *at is advanced. */
static inline void le_put(uint8_t **at, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        *(*at)++ = (uint8_t)(value >> 8 * i);
}

static inline uint64_t le_take(const uint8_t **at, unsigned bytes)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++)
        value |= (uint64_t) * (*at)++ << 8 * i;
    return value;
}

/* Bytes as they are, which have no order. */
static inline void le_put_bytes(uint8_t **at, const void *bytes, size_t n)
{
    memcpy(*at, bytes, n);
    *at += n;
}

static inline void le_take_bytes(const uint8_t **at, void *bytes, size_t n)
{
    memcpy(bytes, *at, n);
    *at += n;
}

static inline void le_put_float(uint8_t **at, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    le_put(at, bits, sizeof bits);
}

static inline float le_take_float(const uint8_t **at)
{
    const uint32_t bits = (uint32_t)le_take(at, sizeof bits);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#endif
