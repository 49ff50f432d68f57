/* keys.h - a file of keys for the daemon under test, made by the real aft. One thread. A failing step ends the test. */
#ifndef TESTS_SUPPORT_KEYS_H
#define TESTS_SUPPORT_KEYS_H

#include <jansson.h>

#define KEYS_TEXT_MAX 128

/* aft key add NAME --file `file` with more arguments (NULL at the end; NULL: none); the key. */
void keys_add(const char *file, const char *name, const char *const more[], char key[KEYS_TEXT_MAX]);
void keys_remove(const char *file, const char *name);
/* As with an editor: copy an entry under another name, or give it a field; the value is taken. */
void keys_copy(const char *file, const char *name, const char *as);
void keys_set(const char *file, const char *name, const char *field, json_t *value);

#endif
