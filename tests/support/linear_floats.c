/* linear_floats.c - see linear_floats.h. */
#include "tests/support/linear_floats.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

float *linear_floats(const struct linear *l)
{
    struct error err = {.message = ""};
    float *w = malloc(sizeof *w * l->out * l->in + 1);
    assert_non_null(w);
    if (linear_rows(l, 0, l->out, w, &err) != OK)
        fail_msg("%s", err.message);
    return w;
}
