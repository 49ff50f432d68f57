/* portable_table.c - the table of one instruction set. */
#include "engine/kernels/portable.h"

#define INDEX(name) INDEX_##name,
enum { KERNEL_LIST(INDEX) COUNT };
_Static_assert(sizeof(struct kernels) == sizeof(const char *) + COUNT * sizeof(void (*)(void)),
               "a kernel is missing in the list");

#define ENTRY(name) .name = KERNEL(name),
extern const struct kernels KERNEL(kernels);
const struct kernels KERNEL(kernels) = {.isa = KERNEL_TEXT(KERNELS_ISA), KERNEL_LIST(ENTRY)};
