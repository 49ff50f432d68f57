/* config.c - merges defaults < file < environment < flags into struct config.
 * Main thread, at start. The flags are read first, because they name the file, but stored last. A value is checked
 * where it is read, so that the message can say who wrote it; what holds between settings is checked after merging. */
#include "config/config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <jansson.h>

#include "config/file.h"
#include "config/json_memory.h"
#include "config/memory.h"
#include "config/nearest.h"

enum { VALUE_SHOWN_MAX = 80 }; /* bytes of a wrong value that a message repeats */

/* No default may be above its maximum: the first setting of each pair is at most the second. */
static const struct {
    enum setting_id lower, upper;
} ordered[] = {
    {SETTING_timeout_ms, SETTING_timeout_ms_max},
    {SETTING_max_tokens, SETTING_max_tokens_max},
};

/* The command line as written: not yet checked, borrowed from argv. */
struct flags {
    const char *values[SETTING_COUNT]; /* NULL where none was given */
    char models[SETTING_TEXT_MAX +
                2];   /* the values of --model, if it is repeated; one byte more shows too long a text */
    const char *path; /* --config */
    enum config_action action;
};

static size_t setting_id(const struct setting *s)
{
    return (size_t)(s - setting_at(0));
}

/* ---- messages -------------------------------------------------------------------------------------------------- */

/* A value as ASCII JSON, truncated: whatever it holds, it cannot upset a terminal. NULL stands for a text that is not
 * UTF-8. */
static void show_value(const json_t *value, char out[VALUE_SHOWN_MAX + 4])
{
    /* Not json_dumpb: where a text does not fit it leaves out a part in the middle. */
    char *text = value != NULL ? json_print(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    const char *shown = text != NULL ? text : value == NULL ? "a text that is not UTF-8" : "a value";
    (void)snprintf(out, VALUE_SHOWN_MAX + 4, "%.*s%s", VALUE_SHOWN_MAX, shown,
                   strlen(shown) > VALUE_SHOWN_MAX ? "..." : "");
    free(text);
}

static enum status refuse_value(const struct config *c, size_t id, const json_t *value, struct error *err)
{
    char shown[VALUE_SHOWN_MAX + 4], expected[ERROR_MESSAGE_MAX / 2], source[SETTING_TEXT_MAX + 64];
    show_value(value, shown);
    setting_describe(setting_at(id), expected, sizeof expected);
    config_describe_source(c, (enum setting_id)id, source, sizeof source);
    return error_set_param(err, ERR_CONFIG, setting_at(id)->name, "%s = %s: expected %s (from %s)",
                           setting_at(id)->name, shown, expected, source);
}

/* Refuse a name that no setting has; `dash` is what users write for '_' there. */
static enum status refuse_name(const char *where, const char *name, size_t length, char dash, struct error *err)
{
    const char *near = setting_nearest(name, length);
    char shown[VALUE_SHOWN_MAX + 4], suggestion[ERROR_PARAM_MAX] = "";
    json_t *text = json_stringn(name, length);
    show_value(text, shown);
    json_decref(text);
    if (near != NULL)
        (void)snprintf(suggestion, sizeof suggestion, "; did you mean %s%s?", dash == '-' ? "--" : "", near);
    for (char *c = suggestion; *c != '\0'; c++)
        *c = (char)(*c == '_' ? dash : *c);
    return error_set(err, ERR_CONFIG, "%s: no setting is named %s%s", where, shown, suggestion);
}

/* ---- flags ----------------------------------------------------------------------------------------------------- */

static bool take_action(struct flags *flags, const char *name, size_t length)
{
    static const struct {
        const char *name;
        enum config_action action;
    } actions[] = {
#define X(name, action, help) {name, action},
        CONFIG_ACTIONS(X)
#undef X
    };
    for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++) {
        if (nearest_is(name, length, actions[i].name)) {
            flags->action = actions[i].action;
            return true;
        }
    }
    return false;
}

/* Where the value of the flag --NAME goes; NULL if there is no such flag. */
static const char **value_slot(struct flags *flags, const char *name, size_t length)
{
    if (nearest_is(name, length, "config"))
        return &flags->path;
    const struct setting *s = setting_find(name, length);
    return s != NULL ? &flags->values[setting_id(s)] : NULL;
}

/* A repeated flag replaces the value before it, except --model, which adds a model: the setting is a list. */
static void take_value(struct flags *flags, const char **slot, const char *value)
{
    if (slot != &flags->values[SETTING_model] || *slot == NULL) {
        *slot = value;
        return;
    }
    if (*slot != flags->models)
        (void)snprintf(flags->models, sizeof flags->models, "%s", *slot);
    const size_t used = strlen(flags->models);
    (void)snprintf(flags->models + used, sizeof flags->models - used, ",%s", value);
    *slot = flags->models;
}

static enum status read_flags(struct flags *flags, int argc, char *const argv[], struct error *err)
{
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        if (strcmp(arg, "-h") == 0) /* a common habit */
            arg = "--help";
        if (strncmp(arg, "--", 2) != 0 || arg[2] == '\0')
            return error_set_param(err, ERR_CONFIG, arg,
                                   "\"%.80s\" is not a flag: expected --NAME VALUE or --NAME=VALUE", arg);
        const char *name = arg + 2;
        const char *equals = strchr(name, '=');
        const size_t length = equals != NULL ? (size_t)(equals - name) : strlen(name);
        if (equals == NULL && take_action(flags, name, length)) {
            if (flags->action == CONFIG_HELP || flags->action == CONFIG_VERSION)
                return OK;
            continue;
        }
        const char **slot = value_slot(flags, name, length);
        if (slot == NULL)
            return refuse_name("command line", name, length, '-', err);
        if (equals == NULL && i + 1 == argc)
            return error_set_param(err, ERR_CONFIG, name, "--%.80s: expected a value after it", name);
        take_value(flags, slot, equals != NULL ? equals + 1 : argv[++i]);
    }
    return OK;
}

static enum status store_text(struct config *c, size_t id, const char *text, enum config_source source,
                              struct error *err)
{
    const bool fine = setting_parse(setting_at(id), text, &c->settings);
    c->sources[id] = source;
    if (fine)
        return OK;
    json_t *value = json_string(text);
    const enum status st = refuse_value(c, id, value, err);
    json_decref(value);
    return st;
}

static enum status merge_flags(struct config *c, const struct flags *flags, struct error *err)
{
    enum status st = OK;
    for (size_t id = 0; id < SETTING_COUNT && st == OK; id++) {
        if (flags->values[id] != NULL)
            st = store_text(c, id, flags->values[id], CONFIG_FROM_FLAG, err);
    }
    return st;
}

/* ---- environment ----------------------------------------------------------------------------------------------- */

/* LISTEN_PORT -> listen_port. False for a name with lower case or one that does not fit: no setting is spelled that
 * way. */
static bool lower_name(const char *name, size_t length, char *out, size_t size)
{
    if (length >= size)
        return false;
    for (size_t i = 0; i < length; i++) {
        if ((name[i] >= 'a' && name[i] <= 'z') || name[i] == '-')
            return false;
        out[i] = (char)(name[i] >= 'A' && name[i] <= 'Z' ? name[i] - 'A' + 'a' : name[i]);
    }
    out[length] = '\0';
    return true;
}

static void warn_variable(const char *name, size_t length, config_warning *warn, void *arg)
{
    char message[ERROR_MESSAGE_MAX];
    if (warn == NULL)
        return;
    (void)snprintf(message, sizeof message,
                   "environment: " CONFIG_ENVIRONMENT_PREFIX "%.*s matches no setting and is ignored",
                   (int)(length < VALUE_SHOWN_MAX ? length : VALUE_SHOWN_MAX), name);
    warn(arg, message);
}

static enum status merge_environment(struct config *c, char *const envp[], config_warning *warn, void *arg,
                                     struct error *err)
{
    const size_t prefix = strlen(CONFIG_ENVIRONMENT_PREFIX);
    for (; envp != NULL && *envp != NULL; envp++) {
        const char *equals = strchr(*envp, '=');
        if (strncmp(*envp, CONFIG_ENVIRONMENT_PREFIX, prefix) != 0 || equals == NULL)
            continue;
        char lower[64];
        const char *name = *envp + prefix;
        const size_t length = (size_t)(equals - name);
        const struct setting *s = lower_name(name, length, lower, sizeof lower) ? setting_find(lower, length) : NULL;
        if (s == NULL) {
            warn_variable(name, length, warn, arg);
            continue;
        }
        const enum status st = store_text(c, setting_id(s), equals + 1, CONFIG_FROM_ENVIRONMENT, err);
        if (st != OK)
            return st;
    }
    return OK;
}

/* ---- file ------------------------------------------------------------------------------------------------------ */

/* False if the value is not what the setting accepts: of the right type, it is what its text says. */
static bool store_json(const struct setting *s, const json_t *value, struct settings *to)
{
    char number[24];
    switch (s->kind) {
    case SETTING_NUMBER:
        (void)snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        return json_is_integer(value) && setting_parse(s, number, to);
    case SETTING_SWITCH:
        return json_is_boolean(value) && setting_parse(s, json_is_true(value) ? "true" : "false", to);
    case SETTING_TEXT:
    case SETTING_CHOICE:
        break;
    }
    return json_is_string(value) && setting_parse(s, json_string_value(value), to);
}

static enum status merge_object(struct config *c, json_t *object, struct error *err)
{
    const char *key = NULL;
    json_t *value = NULL;
    if (!json_is_object(object))
        return error_set(err, ERR_CONFIG, "%s: expected a JSON object of settings", c->path);
    json_object_foreach(object, key, value)
    {
        const struct setting *s = setting_find(key, strlen(key));
        if (s == NULL ||
            strcmp(s->name, key) != 0) /* dashes are for flags only: a single spelling, so that none is given twice */
            return refuse_name(c->path, key, strlen(key), '_', err);
        const size_t id = setting_id(s);
        c->sources[id] = CONFIG_FROM_FILE;
        if (!store_json(s, value, &c->settings))
            return refuse_value(c, id, value, err);
    }
    return OK;
}

/* The default file; NULL if there is none. One that cannot be looked at is there: no other takes its place. */
static const char *default_path(void)
{
    static const char *const paths[] = {CONFIG_TREE_PATH, CONFIG_INSTALLED_PATH};
    struct stat there;
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        if (stat(paths[i], &there) == 0 || (errno != ENOENT && errno != ENOTDIR))
            return paths[i];
    return NULL;
}

/* `path` NULL: the default one, which need not exist. */
static enum status merge_file(struct config *c, const char *path, struct error *err)
{
    json_error_t parse;
    struct error why;
    bool lacked_memory = false;
    json_t *root = NULL;
    char *bytes = NULL;
    size_t size = 0;
    const char *from = path != NULL ? path : default_path();
    if (from == NULL)
        return OK;
    enum status st = file_read_all(&bytes, &size, from, CONFIG_FILE_MAX, &why);
    if (st != OK)
        return error_set_param(err, st == ERR_FORMAT ? ERR_CONFIG : st, "config", "%s", why.message);
    (void)snprintf(c->path, sizeof c->path, "%s", from);
    root = json_scan(bytes, size, JSON_REJECT_DUPLICATES, &parse, &lacked_memory);
    if (lacked_memory)
        st = error_set(err, ERR_NOMEM, "%s: out of memory while parsing it", from);
    else if (root == NULL)
        st = error_set(err, ERR_CONFIG, "%s: line %d, column %d: %s", from, parse.line, parse.column, parse.text);
    else
        st = merge_object(c, root, err);
    json_decref(root);
    free(bytes);
    return st;
}

/* ---- all together ---------------------------------------------------------------------------------------------- */

static enum status check_ordered(const struct config *c, struct error *err)
{
    for (size_t i = 0; i < sizeof ordered / sizeof ordered[0]; i++) {
        char sources[2][VALUE_SHOWN_MAX];
        const struct setting *lower = setting_at(ordered[i].lower);
        const struct setting *upper = setting_at(ordered[i].upper);
        const uint32_t low = setting_number(lower, &c->settings);
        const uint32_t high = setting_number(upper, &c->settings);
        if (low <= high)
            continue;
        config_describe_source(c, ordered[i].lower, sources[0], sizeof sources[0]);
        config_describe_source(c, ordered[i].upper, sources[1], sizeof sources[1]);
        return error_set_param(err, ERR_CONFIG, lower->name, "%s = %u (from %s): expected at most %s = %u (from %s)",
                               lower->name, low, sources[0], upper->name, high, sources[1]);
    }
    return OK;
}

/* Whoever names models one by one means these and no others, unless models_dir is given as well. */
static void choose_models_dir(struct config *c)
{
    if (c->sources[SETTING_models_dir] == CONFIG_FROM_DEFAULT && config_is_on(c->settings.model))
        setting_set_text(setting_at(SETTING_models_dir), &c->settings, CONFIG_OFF);
}

enum status config_load(struct config *ret, int argc, char *const argv[], char *const envp[], config_warning *warn,
                        void *arg, struct error *err)
{
    enum status st = OK;
    struct flags flags = {.action = CONFIG_RUN};
    struct config c = {.action = CONFIG_RUN};
    settings_init(&c.settings);
    st = read_flags(&flags, argc, argv, err);
    if (st != OK)
        return st;
    c.action = flags.action;
    if (c.action != CONFIG_HELP && c.action != CONFIG_VERSION) {
        st = merge_file(&c, flags.path, err);
        if (st == OK)
            st = merge_environment(&c, envp, warn, arg, err);
        if (st == OK)
            st = merge_flags(&c, &flags, err);
        if (st == OK)
            st = check_ordered(&c, err);
        choose_models_dir(&c);
        c.memory = memory_there_is();
        memory_share(&c.settings, c.sources, c.memory);
    }
    if (st == OK)
        *ret = c;
    return st;
}
