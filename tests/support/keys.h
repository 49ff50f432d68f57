/* keys.h - a file of keys for the daemon under test, made by the real aft. One thread. A failing step ends the test. */
#ifndef TESTS_SUPPORT_KEYS_H
#define TESTS_SUPPORT_KEYS_H

#define KEYS_TEXT_MAX 128

/* aft key add NAME --file `file` with more arguments (NULL at the end; NULL: none); the key. */
void keys_add(const char *file, const char *name, const char *const more[], char key[KEYS_TEXT_MAX]);
void keys_remove(const char *file, const char *name);

#endif
