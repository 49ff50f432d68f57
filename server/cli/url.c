/* url.c - the URL of a daemon as a user writes it, checked. Single threaded. */
#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>

#include "server/cli/cli.h"

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

int cli_url_make(char **ret, const char *url)
{
    char *whole = NULL, *text = NULL;
    int code = CLI_OK;
    CURLU *u = curl_url();
    const bool plain = strstr(url, "://") == NULL; /* which would parse as some scheme or other */
    if (u == NULL || asprintf(&text, "%s%s", plain ? "http://" : "", url) < 0) {
        curl_url_cleanup(u);
        return cli_fail("out of memory");
    }
    if (curl_url_set(u, CURLUPART_URL, text, 0) != CURLUE_OK || !has_scheme(u))
        code = cli_fail_usage("the URL is \"%.200s\", expected [http(s)://]HOST:PORT, with the path that a proxy puts "
                              "before the daemon's, if any",
                              url);
    else if (has_part(u, CURLUPART_QUERY) || has_part(u, CURLUPART_FRAGMENT))
        code = cli_fail_usage("the URL is \"%.200s\", expected none with \"?\" or \"#\": what to ask for is chosen by "
                              "options",
                              url);
    else if (has_part(u, CURLUPART_USER) || has_part(u, CURLUPART_PASSWORD))
        code = cli_fail_usage("the URL holds a user name or a password; send a key with --key instead");
    else if (curl_url_get(u, CURLUPART_URL, &whole, 0) != CURLUE_OK || (*ret = strdup(whole)) == NULL)
        code = cli_fail("out of memory");
    for (size_t n = code == CLI_OK ? strlen(*ret) : 0; n > 0 && (*ret)[n - 1] == '/'; n--)
        (*ret)[n - 1] = '\0';
    free(text);
    curl_free(whole);
    curl_url_cleanup(u);
    return code;
}
