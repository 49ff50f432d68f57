/* url.c - the URL of a request: that of a daemon as a user writes it, checked, with a path and a query; see remote.h.
 * Single threaded. */
#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>

#include "server/cli/remote.h"

static bool has_part(CURLU *u, CURLUPart part)
{
    char *text = NULL;
    const bool there = curl_url_get(u, part, &text, 0) == CURLUE_OK;
    curl_free(text);
    return there;
}

static bool has_scheme(CURLU *u)
{
    char *scheme = NULL;
    const bool good = curl_url_get(u, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
                      (strcmp(scheme, "http") == 0 || strcmp(scheme, "https") == 0);
    curl_free(scheme);
    return good;
}

static bool set_query(CURLU *u, const struct remote_request *q)
{
    bool set = true;
    for (size_t i = 0; i < q->query_count && set; i++) {
        char *text = NULL;
        if (q->query[i].value == NULL)
            continue;
        set = asprintf(&text, "%s=%s", q->query[i].name, q->query[i].value) >= 0 &&
              curl_url_set(u, CURLUPART_QUERY, text, CURLU_APPENDQUERY | CURLU_URLENCODE) == CURLUE_OK;
        free(text);
    }
    return set;
}

/* Put the request's path behind the one that there is, and add its query. */
static bool set_request(CURLU *u, const struct remote_request *q)
{
    char *prefix = NULL, *path = NULL;
    bool set = curl_url_get(u, CURLUPART_PATH, &prefix, 0) == CURLUE_OK;
    for (size_t n = set ? strlen(prefix) : 0; n > 0 && prefix[n - 1] == '/'; n--)
        prefix[n - 1] = '\0';
    set = set && asprintf(&path, "%s%s", prefix, q->path) >= 0 &&
          curl_url_set(u, CURLUPART_PATH, path, 0) == CURLUE_OK && set_query(u, q);
    free(path);
    curl_free(prefix);
    return set;
}

int remote_url(char **ret, const char *url, const struct remote_request *q)
{
    char *text = NULL;
    int code = CLI_OK;
    CURLU *u = curl_url();
    const bool plain = strstr(url, "://") == NULL; /* which would parse as some scheme or other */
    if (u == NULL || asprintf(&text, "%s%s", plain ? "http://" : "", url) < 0)
        code = cli_fail("out of memory");
    else if (curl_url_set(u, CURLUPART_URL, text, 0) != CURLUE_OK || !has_scheme(u))
        code = cli_fail_usage("the URL is \"%.200s\", expected [http(s)://]HOST:PORT, with the path that a proxy puts "
                              "before the daemon's, if any",
                              url);
    else if (has_part(u, CURLUPART_QUERY) || has_part(u, CURLUPART_FRAGMENT))
        code = cli_fail_usage("the URL is \"%.200s\", expected none with \"?\" or \"#\": what to ask for is chosen by "
                              "options",
                              url);
    else if (has_part(u, CURLUPART_USER) || has_part(u, CURLUPART_PASSWORD))
        code = cli_fail_usage("the URL holds a user name or a password; send a key with --key instead");
    else if (!set_request(u, q) || curl_url_get(u, CURLUPART_URL, ret, 0) != CURLUE_OK)
        code = cli_fail("cannot make a URL of \"%.200s\" for %s", url, q->path);
    free(text);
    curl_url_cleanup(u);
    return code;
}
