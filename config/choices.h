/* choices.h - the values of those settings that are one of a few words, for who reads no others: a change of the table
 * of settings (settings.h) compiles only its own readers anew. */
#ifndef CONFIG_CHOICES_H
#define CONFIG_CHOICES_H

/* X(constant, word). A setting of this kind is an enum; words are what a user writes. */
#define LOG_LEVELS(X)               \
    X(LOG_LEVEL_ERROR, "error")     \
    X(LOG_LEVEL_WARNING, "warning") \
    X(LOG_LEVEL_INFO, "info")       \
    X(LOG_LEVEL_DEBUG, "debug")
#define LOG_FORMATS(X)         \
    X(LOG_FORMAT_TEXT, "text") \
    X(LOG_FORMAT_JSON, "json")

#define MODELS_BROKEN(X)          \
    X(MODELS_BROKEN_SKIP, "skip") \
    X(MODELS_BROKEN_REFUSE, "refuse")

#define X(constant, word) constant,
enum models_broken { MODELS_BROKEN(X) };
enum log_level { LOG_LEVELS(X) };
enum log_format { LOG_FORMATS(X) };
#undef X

/* The word of a level: "warning". */
const char *log_level_word(enum log_level level);

#endif
