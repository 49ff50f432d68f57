/* capacity_record.c - costs as JSON, so that they can be measured on one machine and used on another. Single
 * threaded. */
#include <math.h>
#include <string.h>

#include "config/json.h"
#include "server/cli/capacity.h"

#define SLOWNESS_MIN 0.01
#define SLOWNESS_MAX 1e4

/* The curves of either kind of model, and their units. */
enum { CURVES = 4 };
static const struct {
    const char *name;
    double unit;
    bool generates, classifies, rises;
} curves[CURVES] = {{"step_us", 1e-6, true, false, true},
                    {"prompt_us", 1e-6, true, false, true},
                    {"batch_us", 1e-6, false, true, true},
                    {"crowding", 1.0, true, true, false}};

static struct capacity_curve *curve_of(struct capacity_costs *c, int i)
{
    struct capacity_curve *const of[CURVES] = {&c->step, &c->prompt, &c->batch, &c->crowding};
    return of[i];
}

static bool has_curve(const struct capacity_costs *c, int i)
{
    return c->generates ? curves[i].generates : curves[i].classifies;
}

static json_t *make_curve(const struct capacity_curve *c, double unit)
{
    json_t *points = json_array();
    for (uint32_t i = 0; i < c->points; i++)
        (void)json_array_append_new(points, json_pack("[i,f]", (int)c->count[i], c->value[i] / unit));
    return points;
}

/* In hundredths, which is finer than a machine repeats them. */
static json_t *make_slowness(const struct capacity_slowness *s)
{
    json_t *times = json_array();
    for (uint32_t i = 0; i < s->windows; i++)
        (void)json_array_append_new(times, json_real(round(100.0 * (double)s->times[i]) / 100.0));
    return json_pack("{s:f,s:o}", "window_us", 1e6 * s->window_s, "times", times);
}

json_t *capacity_record_make(const struct capacity_costs *c, const struct capacity_whose *w)
{
    struct capacity_costs copy = *c;
    json_t *o =
        json_pack("{s:s,s:s,s:s,s:i,s:b,s:i,s:b,s:b,s:i,s:f,s:f,s:f}", "model", w->model, "isa", w->isa, "precision",
                  w->precision, "threads", (int)w->threads, "generates", (int)c->generates, "context", (int)c->context,
                  "starts", (int)c->starts, "ahead", (int)c->ahead, "per_machine", (int)c->per_machine, "idle_us",
                  1e6 * c->idle_s, "wake_us", 1e6 * c->wake_s, "waker_us", 1e6 * c->waker_s);
    for (int i = 0; i < CURVES; i++)
        if (has_curve(c, i))
            (void)json_object_set_new(o, curves[i].name, make_curve(curve_of(&copy, i), curves[i].unit));
    if (c->slowness.windows > 0)
        (void)json_object_set_new(o, "slowness", make_slowness(&c->slowness));
    return o;
}

static bool read_number(double *ret, const json_t *value, double min, double max)
{
    *ret = json_number_value(value);
    return json_is_number(value) && *ret >= min && *ret <= max;
}

/* Counts that rise, and times that do not fall. */
static bool read_curve(struct capacity_curve *c, const json_t *points, int which)
{
    const size_t n = json_array_size(points);
    *c = (struct capacity_curve){.points = 0};
    for (size_t i = 0; i < n && n <= CAPACITY_POINTS_MAX; i++) {
        const json_t *point = json_array_get(points, i);
        double count, value;
        if (json_array_size(point) != 2 || !json_is_integer(json_array_get(point, 0)) ||
            !read_number(&count, json_array_get(point, 0), 1.0, ENGINE_ROWS_MAX) ||
            !read_number(&value, json_array_get(point, 1), curves[which].rises ? 1e-3 : 1.0, CAPACITY_US_MAX * 10.0) ||
            (i > 0 && ((uint32_t)count <= c->count[i - 1] ||
                       (curves[which].rises && curves[which].unit * value < c->value[i - 1]))))
            return false;
        c->count[i] = (uint32_t)count;
        c->value[i] = curves[which].unit * value;
        c->points++;
    }
    return c->points > 0;
}

/* Of a machine that is always as fast there is none. */
static bool read_slowness(struct capacity_slowness *s, const json_t *o)
{
    const json_t *times = json_object_get(o, "times");
    const size_t n = json_array_size(times);
    double number;
    *s = (struct capacity_slowness){.windows = 0};
    if (o == NULL)
        return true;
    if (n < 1 || n > CAPACITY_WINDOWS_MAX ||
        !read_number(&number, json_object_get(o, "window_us"), 1.0, CAPACITY_US_MAX))
        return false;
    s->window_s = 1e-6 * number;
    for (; s->windows < n; s->windows++) {
        if (!read_number(&number, json_array_get(times, s->windows), SLOWNESS_MIN, SLOWNESS_MAX))
            return false;
        s->times[s->windows] = (float)number;
    }
    return true;
}

static bool read_text(char *out, size_t size, const json_t *value)
{
    const char *text = json_string_value(value);
    if (text == NULL || (size_t)snprintf(out, size, "%s", text) >= size)
        return false;
    while (*text != '\0' && (unsigned char)*text >= ' ' && *text != 0x7f) /* nothing that a terminal obeys */
        text++;
    return *text == '\0';
}

/* The name of the first member that is not as it was written; NULL: all are. */
static const char *read_costs(struct capacity_costs *c, struct capacity_whose *w, const json_t *o)
{
    double number;
    if (!read_text(w->model, sizeof w->model, json_object_get(o, "model")))
        return "model";
    if (!read_text(w->isa, sizeof w->isa, json_object_get(o, "isa")))
        return "isa";
    if (!read_text(w->precision, sizeof w->precision, json_object_get(o, "precision")))
        return "precision";
    if (!read_number(&number, json_object_get(o, "threads"), 1.0, ENGINE_THREADS_MAX))
        return "threads";
    w->threads = (uint32_t)number;
    if (!json_is_boolean(json_object_get(o, "generates")))
        return "generates";
    c->generates = json_is_true(json_object_get(o, "generates"));
    if (!read_number(&number, json_object_get(o, "context"), 0.0, MODEL_CONTEXT_MAX))
        return "context";
    c->context = (uint32_t)number;
    if (!json_is_boolean(json_object_get(o, "starts")))
        return "starts";
    c->starts = json_is_true(json_object_get(o, "starts"));
    if (!json_is_boolean(json_object_get(o, "ahead")))
        return "ahead";
    c->ahead = json_is_true(json_object_get(o, "ahead"));
    if (!read_number(&number, json_object_get(o, "per_machine"), 1.0, CAPACITY_REPLICAS_MAX))
        return "per_machine";
    c->per_machine = (uint32_t)number;
    if (!read_number(&number, json_object_get(o, "idle_us"), 0.0, CAPACITY_US_MAX))
        return "idle_us";
    c->idle_s = 1e-6 * number;
    if (!read_number(&number, json_object_get(o, "wake_us"), 0.0, CAPACITY_US_MAX))
        return "wake_us";
    c->wake_s = 1e-6 * number;
    if (!read_number(&number, json_object_get(o, "waker_us"), 0.0, CAPACITY_US_MAX))
        return "waker_us";
    c->waker_s = 1e-6 * number;
    if (!read_slowness(&c->slowness, json_object_get(o, "slowness")))
        return "slowness";
    for (int i = 0; i < CURVES; i++)
        if (has_curve(c, i) && !read_curve(curve_of(c, i), json_object_get(o, curves[i].name), i))
            return curves[i].name;
    return NULL;
}

int capacity_record_read(struct capacity_costs *c, struct capacity_whose *w, const char *path)
{
    json_t *object = NULL;
    struct error err;
    int code = CLI_OK;
    if (json_read_object(&object, path, CAPACITY_FILE_MAX, &err) != OK)
        return cli_fail_error(&err);
    const json_t *costs = json_object_get(object, "costs");
    const char *wrong = json_is_object(costs) ? read_costs(c, w, costs) : "";
    if (wrong != NULL)
        code = cli_fail("%s: costs%s%s is not as aft capacity --json writes it, expected the line that it printed",
                        path, wrong[0] != '\0' ? "." : "", wrong);
    json_decref(object);
    return code;
}
