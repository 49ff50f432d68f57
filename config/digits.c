/* digits.c - see digits.h. */
#include "config/digits.h"

#include <errno.h>
#include <stdlib.h>

bool digits_read(uint64_t *ret, const char **at)
{
    char *end = NULL;
    if (**at < '0' || **at > '9') /* strtoull would take a sign or blanks */
        return false;
    errno = 0;
    const unsigned long long value = strtoull(*at, &end, 10);
    if (errno != 0)
        return false;
    *ret = value;
    *at = end;
    return true;
}
