/* simd_table.c - the table of one instruction set by plain C alone. */
#include "engine/kernels/lanes.h"
#include "engine/kernels/simd.h"

#define INDEX(name) INDEX_##name,
enum { KERNEL_LIST(INDEX) COUNT };
_Static_assert(sizeof(struct kernels) ==
                   3 * sizeof(const char *) + (COUNT + 2 * (size_t)PRECISION_COUNT) * sizeof(void (*)(void)),
               "a kernel is missing in the list");

extern const struct kernels KERNEL(kernels);
const struct kernels KERNEL(kernels) = KERNEL_TABLE(KERNEL_TEXT(KERNELS_ISA), KERNEL(product_f32), KERNEL(product_bf16),
                                                    false, KERNEL(product_int8), false);
