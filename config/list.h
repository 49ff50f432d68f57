/* list.h - settings and headers that are lists: items with commas between them, one after the other. Any thread; no
 * state. */
#ifndef CONFIG_LIST_H
#define CONFIG_LIST_H

#include <stdbool.h>
#include <stddef.h>

/* An item without the blanks around it, [size] bytes of the list; perhaps empty. */
struct list_item {
    const char *text;
    size_t size;
};

/* Where list_next is to begin in a setting that is a list; NULL if it is "off", a list of nothing. */
const char *list_begin(const char *setting);
/* The item that *at begins with; *at goes on to the next, or becomes NULL. False: *at was NULL. Every list has at least
 * one item, though it may be an empty one. */
bool list_next(const char **at, struct list_item *ret);

/* Is the item this text? */
bool list_item_is(const struct list_item *item, const char *text);

#endif
