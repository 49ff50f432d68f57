/* key.c - aft key add NAME, aft key list, aft key remove NAME: the file of keys that a daemon asks its clients for
 * (setting keys_file). Single threaded; the file's folder is locked while it is changed. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/json_memory.h"
#include "config/list.h"
#include "server/access/keys_file.h"
#include "server/cli/cli.h"

struct key_options {
    bool json;
    const char *file, *models, *apis, *rate, *bytes_rate, *priority;
};

/* "10/s", "0.5" -> a rate; NULL: none. Prints what is wrong. */
static bool read_rate(const char *option, const char *text, double *ret)
{
    char *end = NULL;
    if (text == NULL)
        return true;
    const double rate = strtod(text, &end);
    const bool is_number = end != text && (text[0] == '.' || (text[0] >= '0' && text[0] <= '9'));
    if (!is_number || !(*end == '\0' || strcmp(end, "/s") == 0) || !(rate >= KEY_RATE_MIN && rate <= KEY_RATE_MAX)) {
        (void)cli_fail_usage("--%s is \"%.80s\", expected a number from %g to %g and /s, such as 10/s", option, text,
                             KEY_RATE_MIN, KEY_RATE_MAX);
        return false;
    }
    *ret = rate;
    return true;
}

/* null, which no field of a key may be, if it is not UTF-8. */
static json_t *word_of(const char *text, size_t size)
{
    json_t *word = json_stringn(text, size);
    return word != NULL ? word : json_null();
}

static json_t *words_of(const char *list)
{
    json_t *words = json_array();
    struct list_item item;
    while (list_next(&list, &item))
        json_append(words, word_of(item.text, item.size));
    return words;
}

static json_t *priority_of(const char *text)
{
    char *end;
    const intmax_t number = strtoimax(text, &end, 10);
    return isdigit((unsigned char)text[0]) && *end == '\0' ? json_integer(number) : word_of(text, strlen(text));
}

/* What the options say, as the file would have it. Prints what is wrong. */
static int read_options(struct key *k, const char *name, const struct key_options *o)
{
    struct error err;
    double requests = 0.0, bytes = 0.0;
    if (!read_rate("rate", o->rate, &requests) || !read_rate("bytes-rate", o->bytes_rate, &bytes))
        return CLI_USAGE;
    json_t *entry =
        json_pack("{s:o, s:o, s:o, s:f, s:f, s:o}", "name", word_of(name, strlen(name)), "models",
                  words_of(o->models != NULL ? o->models : "*"), "apis",
                  o->apis != NULL ? words_of(o->apis) : key_apis_to_json(APIS_USUAL), "requests_per_s", requests,
                  "bytes_per_s", bytes, "priority_max", priority_of(o->priority != NULL ? o->priority : "normal"));
    const enum status st = key_read(k, entry, &err);
    json_decref(entry);
    return st == OK ? CLI_OK : cli_fail_usage("%s", err.message);
}

/* Add a key to the file, which need not be there yet, and take its models; or, if it is NULL, remove the key of that
 * name. */
static enum status change_file(const char *path, struct key *added, const char *name, struct error *err)
{
    struct keys_file f = {0};
    struct error why;
    int lock;
    enum status st = keys_file_lock(&lock, path, err);
    if (st != OK)
        return st;
    if (added == NULL || access(path, F_OK) == 0)
        st = keys_file_read(&f, path, err);
    if (st == OK && added == NULL)
        st = keys_file_remove(&f, name, err);
    else if (st == OK && (st = keys_file_add(&f, added, &why)) != OK)
        (void)error_set(err, st, "%s: %s", path, why.message);
    if (st == OK) {
        if (added != NULL)
            added->models = NULL; /* the file's now */
        st = keys_file_write(&f, path, err);
    }
    keys_file_unlock(lock);
    keys_file_clear(&f);
    return st;
}

static int add(const char *name, const struct key_options *o)
{
    struct key k = {.name = ""};
    struct error err;
    char text[KEY_TEXT_BYTES + 1];
    int code = read_options(&k, name, o);
    if (code == CLI_OK && (key_make(&k, text, &err) != OK || change_file(o->file, &k, name, &err) != OK))
        code = cli_fail_error(&err);
    if (code == CLI_OK && o->json)
        code = cli_print_json(json_pack("{s:s, s:s}", "name", name, "key", text));
    else if (code == CLI_OK)
        (void)printf("%s\n", text);
    free(k.models);
    return code;
}

static int take_back(const char *name, const struct key_options *o)
{
    struct error err;
    return change_file(o->file, NULL, name, &err) == OK ? CLI_OK : cli_fail_error(&err);
}

static void print_rate(const char *what, double rate)
{
    if (rate > 0.0)
        (void)printf("  %g %s/s", rate, what);
}

/* null where there is no limit. */
static json_t *describe_rate(double rate)
{
    return rate > 0.0 ? json_real(rate) : json_null();
}

static int print_json(const struct key *k)
{
    json_t *models = k->model_count > 0 ? json_array() : json_null();
    for (size_t m = 0; m < k->model_count; m++)
        json_append(models, json_string(k->models[m]));
    return cli_print_json(json_pack("{s:s, s:o, s:o, s:o, s:o, s:i}", "name", k->name, "apis",
                                    key_apis_to_json(k->apis), "models", models, "requests_per_s",
                                    describe_rate(k->requests_per_s), "bytes_per_s", describe_rate(k->bytes_per_s),
                                    "priority_max", (int)k->priority_max));
}

static void print_key(const struct key *k)
{
    const char *before = "  ";
    (void)printf("%s", k->name);
    for (unsigned api = 0; api < API_COUNT; api++)
        if ((k->apis & API_BIT(api)) != 0) {
            (void)printf("%s%s", before, key_api_word((enum api_kind)api));
            before = ",";
        }
    (void)printf("  %s", k->model_count == 0 ? "all models" : "");
    for (size_t m = 0; m < k->model_count; m++)
        (void)printf("%s%s", m > 0 ? "," : "", k->models[m]);
    print_rate("requests", k->requests_per_s);
    print_rate("bytes", k->bytes_per_s);
    if (k->priority_max > QUEUE_PRIORITY_NORMAL)
        (void)printf("  priority up to %d", k->priority_max);
    (void)printf("\n");
}

static int list(const struct key_options *o)
{
    struct keys_file f;
    struct error err;
    if (keys_file_read(&f, o->file, &err) != OK)
        return cli_fail_error(&err);
    int code = CLI_OK;
    for (size_t i = 0; i < f.count && code == CLI_OK; i++) {
        if (o->json)
            code = print_json(&f.keys[i]);
        else
            print_key(&f.keys[i]);
    }
    keys_file_clear(&f);
    return code;
}

int cli_key(int argc, char **argv)
{
    struct key_options o = {0};
    const struct cli_option options[] = {
        {"file", CLI_TEXT, &o.file, 0, 0, "FILE", NULL,
         "the file of keys, required; add creates it if it does not exist"},
        {"models", CLI_TEXT, &o.models, 0, 0, "NAMES", "all", "add: models that the key may use, separated by commas"},
        {"apis", CLI_TEXT, &o.apis, 0, 0, "NAMES", "all but admin",
         "add: APIs that it may use, of native,openai,inference,admin"},
        {"rate", CLI_TEXT, &o.rate, 0, 0, "RATE", "no limit", "add: requests per second, as 10/s"},
        {"bytes-rate", CLI_TEXT, &o.bytes_rate, 0, 0, "RATE", "no limit",
         "add: bytes received and generated per second, as 20000/s"},
        {"priority-max", CLI_TEXT, &o.priority, 0, 0, "PRIORITY", "normal",
         "add: highest priority of its requests: normal, high, or 0 to 100"},
        CLI_JSON_OPTION(&o.json){0},
    };
    int count;
    const int code = cli_parse(options, argc, argv, 1, 2, &count);
    if (code != CLI_OK || count < 0)
        return code;
    const char *action = argv[1];
    const bool adds = strcmp(action, "add") == 0, removes = strcmp(action, "remove") == 0;
    if (!adds && !removes && strcmp(action, "list") != 0)
        return cli_fail_usage("unknown action \"%.80s\", expected add, list or remove", action);
    if (count != (adds || removes ? 2 : 1))
        return cli_fail_usage("%s takes %s", action, adds || removes ? "one name" : "no name");
    if (o.file == NULL)
        return cli_fail_usage("--file is missing: it names the file of keys");
    if (!adds && (o.models != NULL || o.apis != NULL || o.rate != NULL || o.bytes_rate != NULL || o.priority != NULL))
        return cli_fail_usage("%s takes no option except --file and --json", action);
    return adds ? add(argv[2], &o) : removes ? take_back(argv[2], &o) : list(&o);
}
