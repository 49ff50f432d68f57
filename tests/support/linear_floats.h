/* linear_floats.h - a matrix of a model as numbers, for what computes a layer the plain way. */
#ifndef TESTS_SUPPORT_LINEAR_FLOATS_H
#define TESTS_SUPPORT_LINEAR_FLOATS_H

#include "weights/model.h"

/* [out, in], for free(). Fails the test where it cannot be read. */
float *linear_floats(const struct linear *l);

#endif
