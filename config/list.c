/* list.c - see list.h. */
#include "config/list.h"

#include <string.h>

#include "config/config.h"

const char *list_begin(const char *setting)
{
    return config_is_on(setting) ? setting : NULL;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

bool list_next(const char **at, struct list_item *ret)
{
    const char *text = *at;
    if (text == NULL)
        return false;
    size_t size = strcspn(text, ",");
    *at = text[size] == ',' ? text + size + 1 : NULL;
    for (; size > 0 && is_blank(text[0]); size--)
        text++;
    while (size > 0 && is_blank(text[size - 1]))
        size--;
    *ret = (struct list_item){text, size};
    return true;
}

bool list_item_is(const struct list_item *item, const char *text)
{
    return strlen(text) == item->size && memcmp(item->text, text, item->size) == 0;
}
