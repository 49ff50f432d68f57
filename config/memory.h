/* memory.h - how much memory there is, and what each bound of it is by default: a share, so that all of them together
 * fit. What a user sets is taken as it is. Main thread, at start, but for memory_there_is; no state. */
#ifndef CONFIG_MEMORY_H
#define CONFIG_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "config/settings.h"
#include "config/status.h"

/* Bytes that the control group allows or, if that is less or there is none, that the machine has. 0: unknown. Any
 * thread. */
uint64_t memory_there_is(void);

/* Lower the bounds that have their default to shares of memory_max_mb or, where that is 0, of `there_is` bytes, and set
 * models_memory_max_mb, if it is 0, to what is left. Where there is much, all but the last stay as they are. */
void memory_share(struct settings *s, enum config_source sources[SETTING_COUNT], uint64_t there_is);

/* What all bounds come to, in one line: "memory: 256 MiB (control group): models 45, bodies 40, ...". */
void memory_describe(const struct settings *s, uint64_t there_is, char *out, size_t size);

/* Do all bounds together fit, and leave models more than the least? If not, and all have their defaults, ERR_CONFIG:
 * what is needed. If somebody set one, OK, and what is to be lowered in `warning`, which is otherwise empty. */
enum status memory_check(const struct settings *s, const enum config_source sources[SETTING_COUNT], uint64_t there_is,
                         char *warning, size_t size, struct error *err);

#endif
