/* peak_openblas.c - OpenBLAS's matrix product, to be measured beside the loops; see peak.h. */
#include <cblas.h>

#include "engine/bench/peak.h"

void peak_openblas(float *c, const float *a, const float *b, size_t side)
{
    const blasint n = (blasint)side;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, n, n, 1.0f, a, n, b, n, 0.0f, c, n);
}
