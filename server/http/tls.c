/* tls.c - see tls.h. The lock is a leaf; it guards `current` and the list behind it. */
#include "server/http/tls.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>

#include "config/file.h"
#include "config/settings.h"
#include "server/core/clock.h"
#include "server/core/metrics.h"

struct tls_identity {
    gnutls_datum_t certificate_file, key_file; /* their bytes, to detect changes */
    gnutls_pcert_st chain[TLS_CHAIN_MAX];
    unsigned chain_count;
    gnutls_privkey_t key;
    uint64_t expires_ns;         /* Unix time, not 0: when the first of the chain does */
    struct tls_identity *before; /* what was in force before this */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct tls_identity *current;

static struct tls_identity *take_current(void)
{
    (void)pthread_mutex_lock(&lock);
    struct tls_identity *t = current;
    (void)pthread_mutex_unlock(&lock);
    return t;
}

/* gnutls_certificate_retrieve_function2: what it returns stays ours. */
static int retrieve(gnutls_session_t session, const gnutls_datum_t *authorities, int authority_count,
                    const gnutls_pk_algorithm_t *algorithms, int algorithm_count, gnutls_pcert_st **chain,
                    unsigned *chain_count, gnutls_privkey_t *key)
{
    struct tls_identity *t = take_current();
    (void)session;
    (void)authorities;
    (void)authority_count;
    (void)algorithms;
    (void)algorithm_count;
    *chain = t->chain;
    *chain_count = t->chain_count;
    *key = t->key;
    return 0;
}

void *tls_callback(void)
{
    void *ret;
    int (*const function)(gnutls_session_t, const gnutls_datum_t *, int, const gnutls_pk_algorithm_t *, int,
                          gnutls_pcert_st **, unsigned *, gnutls_privkey_t *) = retrieve;
    memcpy(&ret, &function, sizeof ret); /* the library takes an object pointer, to which ISO C cannot convert it */
    return ret;
}

bool tls_is_on(const struct settings *s)
{
    return strcmp(s->tls_certificate, TLS_OFF) != 0;
}

/* ---- reading ---------------------------------------------------------------------------------------------------- */

static enum status status_of(int code, enum status otherwise)
{
    return code == GNUTLS_E_MEMORY_ERROR ? ERR_NOMEM : otherwise;
}

static enum status load(gnutls_datum_t *ret, const char *path, const char *setting, struct error *err)
{
    struct error why;
    char *bytes = NULL;
    size_t size;
    enum status st = file_read_all(&bytes, &size, path, TLS_FILE_MAX, &why);
    if (st != OK)
        return error_set_param(err, st == ERR_FORMAT ? ERR_CONFIG : st, setting, "%s: %s", setting, why.message);
    ret->data = (unsigned char *)bytes;
    ret->size = (unsigned)size;
    return OK;
}

static enum status check_match(const struct tls_identity *t, const struct settings *s, struct error *err)
{
    gnutls_certificate_credentials_t both = NULL;
    int code = gnutls_certificate_allocate_credentials(&both);
    if (code == GNUTLS_E_SUCCESS)
        code = gnutls_certificate_set_x509_key_mem(both, &t->certificate_file, &t->key_file, GNUTLS_X509_FMT_PEM);
    if (both != NULL)
        gnutls_certificate_free_credentials(both);
    return code >= 0
               ? OK
               : error_set_param(err, status_of(code, ERR_CONFIG), "tls_key", "tls_key: %s is not the key of %s: %s",
                                 s->tls_key, s->tls_certificate, gnutls_strerror(code));
}

/* When a certificate expires, Unix time, kept within what can be told in nanoseconds: some have no end and say 9999. */
static enum status read_expiry(uint64_t *ret_ns, gnutls_pcert_st *p, struct error *err)
{
    const uint64_t most_s = UINT64_MAX / CLOCK_NS_PER_S;
    gnutls_x509_crt_t c = NULL;
    int code = gnutls_pcert_export_x509(p, &c);
    if (code < 0)
        return error_set_param(err, status_of(code, ERR_CONFIG), "tls_certificate", "tls_certificate: %s",
                               gnutls_strerror(code));
    const time_t at_s = gnutls_x509_crt_get_expiration_time(c);
    gnutls_x509_crt_deinit(c);
    *ret_ns = (at_s < 1 ? 1 : (uint64_t)at_s < most_s ? (uint64_t)at_s : most_s) * CLOCK_NS_PER_S;
    return OK;
}

static enum status read_expiries(struct tls_identity *t, struct error *err)
{
    enum status st = OK;
    t->expires_ns = UINT64_MAX;
    for (unsigned i = 0; i < t->chain_count && st == OK; i++) {
        uint64_t at_ns = UINT64_MAX;
        st = read_expiry(&at_ns, &t->chain[i], err);
        t->expires_ns = at_ns < t->expires_ns ? at_ns : t->expires_ns;
    }
    return st;
}

static enum status tls_parse(struct tls_identity *t, const struct settings *s, struct error *err)
{
    unsigned count = TLS_CHAIN_MAX;
    int code = gnutls_pcert_list_import_x509_raw(t->chain, &count, &t->certificate_file, GNUTLS_X509_FMT_PEM,
                                                 GNUTLS_X509_CRT_LIST_SORT);
    if (code < 0)
        return error_set_param(err, status_of(code, ERR_CONFIG), "tls_certificate",
                               "tls_certificate: %s: expected a certificate or a chain of them, in PEM: %s",
                               s->tls_certificate, gnutls_strerror(code));
    t->chain_count = count;
    code = gnutls_privkey_init(&t->key);
    if (code >= 0)
        code = gnutls_privkey_import_x509_raw(t->key, &t->key_file, GNUTLS_X509_FMT_PEM, NULL, 0);
    if (code < 0)
        return error_set_param(err, status_of(code, ERR_CONFIG), "tls_key",
                               "tls_key: %s: expected a key without a password, in PEM: %s", s->tls_key,
                               gnutls_strerror(code));
    const enum status st = check_match(t, s, err);
    return st == OK ? read_expiries(t, err) : st;
}

static bool is_same(const gnutls_datum_t *a, const gnutls_datum_t *b)
{
    return a->data != NULL && b->data != NULL && a->size == b->size && memcmp(a->data, b->data, a->size) == 0;
}

enum status tls_read(struct tls_identity **ret, const struct settings *s, struct error *err)
{
    const struct tls_identity *now = take_current();
    *ret = NULL;
    if (tls_is_on(s) != (strcmp(s->tls_key, TLS_OFF) != 0))
        return error_set_param(err, ERR_CONFIG, "tls_key",
                               "tls_certificate and tls_key: expected both of them, or neither");
    if (!tls_is_on(s))
        return OK;
    struct tls_identity *t = calloc(1, sizeof *t);
    if (t == NULL)
        return error_set(err, ERR_NOMEM, "out of memory for the certificate");
    enum status st = load(&t->certificate_file, s->tls_certificate, "tls_certificate", err);
    if (st == OK)
        st = load(&t->key_file, s->tls_key, "tls_key", err);
    const bool changes = now == NULL || st != OK || !is_same(&t->certificate_file, &now->certificate_file) ||
                         !is_same(&t->key_file, &now->key_file);
    if (st == OK && changes)
        st = tls_parse(t, s, err);
    if (st == OK && changes)
        *ret = t;
    else
        tls_free(t);
    return st;
}

/* ---- what is in force ------------------------------------------------------------------------------------------- */

void tls_put(struct tls_identity *t)
{
    if (t == NULL)
        return;
    (void)pthread_mutex_lock(&lock);
    t->before = current;
    current = t;
    (void)pthread_mutex_unlock(&lock);
    metrics_gauge_set(METRIC_TLS_EXPIRY, 0, t->expires_ns);
}

void tls_free(struct tls_identity *t)
{
    if (t == NULL)
        return;
    for (unsigned i = 0; i < t->chain_count; i++)
        gnutls_pcert_deinit(&t->chain[i]);
    if (t->key != NULL)
        gnutls_privkey_deinit(t->key);
    if (t->key_file.data != NULL)
        gnutls_memset(t->key_file.data, 0, t->key_file.size);
    free(t->key_file.data);
    free(t->certificate_file.data);
    free(t);
}

void tls_stop(void)
{
    while (current != NULL) {
        struct tls_identity *t = current;
        current = t->before;
        tls_free(t);
    }
}

/* Whatever the session cache that there is none of would be told is ours: here, that the handshake is over. GnuTLS
 * itself does not tell: what it knows of a handshake it forgets with its end. */
static char over;

static int note_end(gnutls_session_t session, unsigned what, unsigned when, unsigned is_incoming,
                    const gnutls_datum_t *message)
{
    (void)what;
    (void)when;
    (void)message;
    if (is_incoming)
        gnutls_db_set_ptr(session, &over);
    return 0;
}

void tls_await_client(void *session)
{
    gnutls_handshake_set_hook_function(session, GNUTLS_HANDSHAKE_FINISHED, GNUTLS_HOOK_POST, note_end);
}

bool tls_is_shaken(void *session)
{
    return gnutls_db_get_ptr(session) == &over;
}

const char *tls_version(void)
{
    return gnutls_check_version(NULL);
}
