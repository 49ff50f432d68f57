/* test_top_view.c - the figures that aft top takes from /metrics: sums of series, told apart by model, whatever other
 * labels they have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/cli/top_view.h"

static const char text[] = "# HELP aftd_bytes_total Bytes.\n"
                           "# TYPE aftd_bytes_total counter\n"
                           "aftd_bytes_total{model=\"a\"} 3\n"
                           "aftd_bytes_total{kind=\"x\",model=\"b\"} 5\n"
                           "aftd_bytes_total{model=\"b\",kind=\"y\"} 7e2\n"
                           "aftd_bytes_total{submodel=\"a\",model=\"ab\"} 11\n"
                           "aftd_bytes_total_more{model=\"a\"} 1000\n"
                           "aftd_plain 13.5\n"
                           "aftd_odd{model=\"a\"}\n"
                           "aftd_last{model=\"a\"} 17";

static void assert_metric(const char *name, const char *model, double expected)
{
    const double value = top_metric(text, name, model);
    if (value != expected)
        fail_msg("%s of %s is %g, expected %g", name, model != NULL ? model : "all", value, expected);
}

static void series_are_summed_by_model_whatever_other_labels_there_are(void **state)
{
    (void)state;
    assert_metric("aftd_bytes_total", "a", 3.0);
    assert_metric("aftd_bytes_total", "b", 705.0);
    assert_metric("aftd_bytes_total", "ab", 11.0);
    assert_metric("aftd_bytes_total", "c", 0.0);
    assert_metric("aftd_bytes_total", NULL, 719.0);
    assert_metric("aftd_plain", NULL, 13.5);
    assert_metric("aftd_plain", "a", 0.0);
    assert_metric("aftd_last", "a", 17.0);
}

static void what_is_not_there_counts_as_nothing(void **state)
{
    (void)state;
    assert_metric("aftd_bytes", NULL, 0.0);
    assert_metric("aftd_odd", "a", 0.0);
    assert_true(top_metric("", "aftd_plain", NULL) == 0.0);
    assert_true(top_metric("\n\n", "aftd_plain", NULL) == 0.0);
    assert_true(top_metric(NULL, "aftd_plain", NULL) == 0.0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(series_are_summed_by_model_whatever_other_labels_there_are),
        cmocka_unit_test(what_is_not_there_counts_as_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
