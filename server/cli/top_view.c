/* top_view.c - see top_view.h. Single threaded. */
#include "server/cli/top_view.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "server/cli/cli.h"
#include "server/cli/table.h"

enum { OTHER_LINES = 7 }; /* beside those of models and requests */

/* ---- samples ---------------------------------------------------------------------------------------------------- */

int top_sample_take(struct top_sample *ret, const struct remote *r)
{
    struct top_sample s = {.when_s = cli_now()};
    int code = remote_get_json(r, "/admin/requests", &s.requests);
    if (code == CLI_OK)
        code = remote_get_json(r, "/admin/models", &s.models);
    if (code == CLI_OK)
        code = remote_get(r, "/metrics", &s.metrics);
    if (code == CLI_OK)
        *ret = s;
    else
        top_sample_clear(&s);
    return code;
}

void top_sample_clear(struct top_sample *s)
{
    json_decref(s->requests);
    json_decref(s->models);
    free(s->metrics.bytes);
    *s = (struct top_sample){.when_s = 0.0};
}

/* Do the labels, from after a '{' to before the '}', have model="NAME"? */
static bool is_of_model(const char *labels, size_t size, const char *model)
{
    char wanted[MODEL_NAME_MAX + 16];
    const int length = snprintf(wanted, sizeof wanted, "model=\"%s\"", model);
    for (const char *at = labels; at + length <= labels + size; at++)
        if ((at == labels || at[-1] == ',') && strncmp(at, wanted, (size_t)length) == 0)
            return true;
    return false;
}

double top_metric(const char *text, const char *name, const char *model)
{
    const size_t name_size = strlen(name);
    double sum = 0.0;
    for (const char *line = text; line != NULL && *line != '\0';) {
        const size_t size = strcspn(line, "\n");
        const char *after = line + name_size, *value = memrchr(line, ' ', size);
        if (size > name_size && value != NULL && strncmp(line, name, name_size) == 0 &&
            (*after == ' ' || *after == '{')) {
            const size_t labels = *after == '{' ? (size_t)(value - after) : 0;
            if (model == NULL || (labels > 2 && is_of_model(after + 1, labels - 2, model)))
                sum += strtod(value, NULL);
        }
        line += size + (line[size] == '\n' ? 1 : 0);
    }
    return sum;
}

/* ---- tables ----------------------------------------------------------------------------------------------------- */

/* A second's growth of a counter. One that begins again, as the daemon does, has grown from 0. */
static double rate(const struct top_sample *before, const struct top_sample *now, const char *name, const char *model)
{
    const double a = top_metric(before->metrics.bytes, name, model), b = top_metric(now->metrics.bytes, name, model);
    const double seconds = now->when_s - before->when_s;
    return seconds > 0.0 ? (b >= a ? b - a : b) / seconds : 0.0;
}

static size_t count_waiting(const json_t *requests, const char *model)
{
    size_t count = 0, i;
    const json_t *request;
    json_array_foreach(requests, i, request)
    {
        const char *of = json_string_value(json_object_get(request, "model"));
        const char *state = json_string_value(json_object_get(request, "state"));
        count +=
            state != NULL && strcmp(state, "queued") == 0 && (model == NULL || (of != NULL && strcmp(of, model) == 0));
    }
    return count;
}

static double number(const json_t *told, const char *member)
{
    return json_number_value(json_object_get(told, member));
}

/* A model's figures of the last second; NULL: that is no model, or there was no memory. */
static json_t *describe_model(const json_t *model, const struct top_sample *before, const struct top_sample *now)
{
    const char *metrics = now->metrics.bytes, *name = json_string_value(json_object_get(model, "model"));
    json_t *memory = json_object_get(model, "memory_bytes"); /* NULL: nothing is held */
    if (name == NULL)
        return NULL;
    const double pictures = rate(before, now, "aftd_pictures_classified_total", name) +
                            rate(before, now, "aftd_pictures_completed_total", name);
    return json_pack("{s:s, s:O, s:I, s:I, s:I, s:f, s:f, s:O}", "model", name, "state",
                     json_object_get(model, "state"), "streams_running",
                     (json_int_t)top_metric(metrics, "aftd_streams_running", name), "stream_slots",
                     (json_int_t)top_metric(metrics, "aftd_stream_slots", name), "waiting",
                     (json_int_t)count_waiting(json_object_get(now->requests, "requests"), name), "bytes_per_second",
                     rate(before, now, "aftd_generated_bytes_total", name), "pictures_per_second", pictures,
                     "memory_bytes", memory != NULL ? memory : json_null());
}

static json_t *describe_models(const struct top_sample *before, const struct top_sample *now)
{
    json_t *list = json_array();
    const json_t *model;
    size_t i;
    json_array_foreach(json_object_get(now->models, "models"), i, model)(void)
        json_array_append_new(list, describe_model(model, before, now));
    return list;
}

json_t *top_view_describe(const char *daemon, const struct top_sample *before, const struct top_sample *now)
{
    const char *metrics = now->metrics.bytes;
    const json_t *requests = json_object_get(now->requests, "requests");
    return json_pack("{s:s, s:I, s:I, s:I, s:f, s:I, s:o, s:O*}", "daemon", daemon, "total",
                     json_integer_value(json_object_get(now->requests, "total")), "waiting",
                     (json_int_t)count_waiting(requests, NULL), "connections",
                     (json_int_t)top_metric(metrics, "aftd_connections", NULL), "cpu_share",
                     rate(before, now, "process_cpu_seconds_total", NULL), "memory_bytes",
                     (json_int_t)top_metric(metrics, "process_resident_memory_bytes", NULL), "models",
                     describe_models(before, now), "requests", requests);
}

void top_view_print(FILE *to, const json_t *told, size_t lines)
{
    static const struct table_column columns[] = {
        {"MODEL", "model", TABLE_TEXT, NULL},
        {"STATE", "state", TABLE_TEXT, NULL},
        {"STREAMS", "streams_running", TABLE_COUNT, "stream_slots"},
        {"WAITING", "waiting", TABLE_COUNT, NULL},
        {"BYTES/S", "bytes_per_second", TABLE_COUNT, NULL},
        {"PICTURES/S", "pictures_per_second", TABLE_RATE, NULL},
        {"MEMORY", "memory_bytes", TABLE_BYTES, NULL},
        {0},
    };
    const json_t *models = json_object_get(told, "models");
    const size_t others = OTHER_LINES + json_array_size(models);
    (void)fprintf(to,
                  "aftd at %s: requests %.0f, waiting %.0f, connections %.0f, processor %.0f %%, memory %.0f MB\n\n",
                  json_string_value(json_object_get(told, "daemon")), number(told, "total"), number(told, "waiting"),
                  number(told, "connections"), 100.0 * number(told, "cpu_share"), number(told, "memory_bytes") / 1e6);
    table_print(to, columns, models, SIZE_MAX);
    (void)fprintf(to, "\n");
    table_print_requests(to, told, lines > others ? lines - others : 0);
}
