/* top_view.c - see top_view.h. Single threaded. */
#include "server/cli/top_view.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "server/cli/cli.h"
#include "server/cli/request_table.h"

enum { OTHER_LINES = 7 }; /* beside those of models and requests */

/* ---- samples ----------------------------------------------------------------------------------------------------- */

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

/* ---- tables ------------------------------------------------------------------------------------------------------ */

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

static void print_summary(FILE *to, const char *daemon, const struct top_sample *before, const struct top_sample *now)
{
    const char *metrics = now->metrics.bytes;
    const json_t *requests = json_object_get(now->requests, "requests");
    (void)fprintf(to,
                  "aftd at %s: requests %" JSON_INTEGER_FORMAT ", waiting %zu, connections %.0f, processor %.0f %%, "
                  "memory %.0f MiB\n\n",
                  daemon, json_integer_value(json_object_get(now->requests, "total")), count_waiting(requests, NULL),
                  top_metric(metrics, "aftd_connections", NULL),
                  100.0 * rate(before, now, "process_cpu_seconds_total", NULL),
                  top_metric(metrics, "process_resident_memory_bytes", NULL) / (1 << 20));
}

/* A model's figures of the last second. */
struct model_figures {
    const char *name, *state;
    double slots, running, bytes_per_s, pictures_per_s;
    size_t waiting;
    const json_t *memory_bytes; /* NULL: nothing is held */
};

/* False: that is no model. */
static bool read_model(struct model_figures *ret, const json_t *model, const struct top_sample *before,
                       const struct top_sample *now)
{
    const char *metrics = now->metrics.bytes, *name = json_string_value(json_object_get(model, "model"));
    *ret = (struct model_figures){
        .name = name,
        .state = json_string_value(json_object_get(model, "state")),
        .memory_bytes = json_object_get(model, "memory_bytes"),
    };
    if (name == NULL || ret->state == NULL)
        return false;
    ret->slots = top_metric(metrics, "aftd_stream_slots", name);
    ret->running = top_metric(metrics, "aftd_streams_running", name);
    ret->waiting = count_waiting(json_object_get(now->requests, "requests"), name);
    ret->bytes_per_s = rate(before, now, "aftd_generated_bytes_total", name);
    ret->pictures_per_s = rate(before, now, "aftd_pictures_classified_total", name) +
                          rate(before, now, "aftd_pictures_completed_total", name);
    return true;
}

static void print_model(FILE *to, const struct model_figures *m, int width)
{
    char streams[64] = "-", held[32] = "-";
    if (m->slots > 0.0)
        (void)snprintf(streams, sizeof streams, "%.0f/%.0f", m->running, m->slots);
    if (m->memory_bytes != NULL)
        (void)snprintf(held, sizeof held, "%.0f MiB", json_number_value(m->memory_bytes) / (1 << 20));
    (void)fprintf(to, "%-*s  %-8s  %9s  %7zu  %9.0f  %10.1f  %10s\n", width, m->name, m->state, streams, m->waiting,
                  m->bytes_per_s, m->pictures_per_s, held);
}

static void print_models(FILE *to, const struct top_sample *before, const struct top_sample *now)
{
    const json_t *models = json_object_get(now->models, "models"), *model;
    int width = (int)strlen("MODEL");
    size_t i;
    json_array_foreach(models, i, model)
    {
        const int size = (int)json_string_length(json_object_get(model, "model"));
        width = size > width ? size : width;
    }
    (void)fprintf(to, "%-*s  %-8s  %9s  %7s  %9s  %10s  %10s\n", width, "MODEL", "STATE", "STREAMS", "WAITING",
                  "BYTES/S", "PICTURES/S", "MEMORY");
    json_array_foreach(models, i, model)
    {
        struct model_figures figures;
        if (read_model(&figures, model, before, now))
            print_model(to, &figures, width);
    }
}

void top_view_print(FILE *to, const char *daemon, const struct top_sample *before, const struct top_sample *now,
                    size_t lines)
{
    const size_t others = OTHER_LINES + json_array_size(json_object_get(now->models, "models"));
    const size_t room = lines > others ? lines - others : 0;
    const json_t *all = json_object_get(now->requests, "requests");
    const json_int_t total = json_integer_value(json_object_get(now->requests, "total"));
    json_t *first = json_array();
    for (size_t i = 0; i < json_array_size(all) && i < room; i++)
        (void)json_array_append(first, json_array_get(all, i));
    print_summary(to, daemon, before, now);
    print_models(to, before, now);
    (void)fprintf(to, "\n");
    request_table_print(to, first);
    if (total > (json_int_t)json_array_size(first))
        (void)fprintf(to, "and %" JSON_INTEGER_FORMAT " more\n", total - (json_int_t)json_array_size(first));
    json_decref(first);
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static json_t *describe_models(const struct top_sample *before, const struct top_sample *now)
{
    json_t *list = json_array();
    const json_t *model;
    size_t i;
    json_array_foreach(json_object_get(now->models, "models"), i, model)
    {
        struct model_figures m;
        if (read_model(&m, model, before, now))
            (void)json_array_append_new(
                list, json_pack("{s:s, s:s, s:I, s:I, s:I, s:f, s:f, s:o}", "model", m.name, "state", m.state,
                                "streams_running", (json_int_t)m.running, "stream_slots", (json_int_t)m.slots,
                                "waiting", (json_int_t)m.waiting, "bytes_per_second", m.bytes_per_s,
                                "pictures_per_second", m.pictures_per_s, "memory_bytes",
                                m.memory_bytes != NULL ? json_copy((json_t *)m.memory_bytes) : json_null()));
    }
    return list;
}

json_t *top_view_describe(const char *daemon, const struct top_sample *before, const struct top_sample *now)
{
    const char *metrics = now->metrics.bytes;
    const json_t *requests = json_object_get(now->requests, "requests");
    return json_pack("{s:s, s:I, s:I, s:I, s:f, s:I, s:o, s:O}", "daemon", daemon, "total",
                     json_integer_value(json_object_get(now->requests, "total")), "waiting",
                     (json_int_t)count_waiting(requests, NULL), "connections",
                     (json_int_t)top_metric(metrics, "aftd_connections", NULL), "cpu_share",
                     rate(before, now, "process_cpu_seconds_total", NULL), "memory_bytes",
                     (json_int_t)top_metric(metrics, "process_resident_memory_bytes", NULL), "models",
                     describe_models(before, now), "requests", requests);
}
