/* portable_table.c - the table of one instruction set by plain C alone. */
#include "engine/kernels/lanes.h"
#include "engine/kernels/portable.h"

#define INDEX(name) INDEX_##name,
enum { KERNEL_LIST(INDEX) COUNT };
_Static_assert(sizeof(struct kernels) ==
                   2 * sizeof(const char *) + (COUNT + 2 * (size_t)PRECISION_COUNT) * sizeof(void (*)(void)),
               "a kernel is missing in the list");

/* Four lanes are the least that every machine has: there OpenBLAS knows more of the processor than plain C does. */
#define PRODUCT_F32 (WIDTH > 4 ? KERNEL(product_f32) : NULL)

extern const struct kernels KERNEL(kernels);
const struct kernels KERNEL(kernels) = KERNEL_TABLE(KERNEL_TEXT(KERNELS_ISA), PRODUCT_F32, KERNEL(product_bf16), false,
                                                    KERNEL(product_int8), false);
