/* tls.h - the identity of this daemon on encrypted connections: its certificate and key, which may be replaced while it
 * runs. There is one identity per process, because the library's callback that asks for it carries no argument of ours.
 * Earlier identities stay in memory to the end, since a handshake may be using them: some kilobytes for each change of
 * the files. */
#ifndef SERVER_HTTP_TLS_H
#define SERVER_HTTP_TLS_H

#include <stdbool.h>

#include "config/status.h"

struct settings;

#define TLS_OFF "off"
/* TLS 1.3, and of TLS 1.2 what TLS 1.3 has kept: keys agreed on for each connection by elliptic curves, so that a key
 * that leaks later opens nothing that was recorded, and ciphers that authenticate (AEAD). */
#define TLS_PRIORITIES                                                                                     \
    "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:-KX-ALL:+ECDHE-ECDSA:+ECDHE-RSA:-CIPHER-ALL:+AES-256-GCM:" \
    "+CHACHA20-POLY1305:+AES-128-GCM"

struct tls_identity;

/* Do the settings ask for encryption? */
bool tls_is_on(const struct settings *s);
/* Read the files; *ret, set only on OK, is NULL if they have not changed since tls_put, or if TLS is off. Pass it to
 * tls_put or tls_free. One thread at a time. Errors: ERR_CONFIG (one without the other, not PEM, the key is another
 * certificate's), ERR_IO, ERR_NOMEM, naming the setting. */
enum status tls_read(struct tls_identity **ret, const struct settings *s, struct error *err);
/* Put it into force for all handshakes from now on. NULL is a no-op. */
void tls_put(struct tls_identity *t);
void tls_free(struct tls_identity *t); /* NULL is a no-op */
/* Call when no connection is left. */
void tls_stop(void);

/* Of an encrypted connection's session, a gnutls_session_t: note the end of its handshake, and tell whether the client
 * has sent its last message. Its connection's thread; the former before the handshake begins. */
void tls_await_client(void *session);
bool tls_is_shaken(void *session);

/* GnuTLS's version. */
const char *tls_version(void);

/* The callback of MHD_OPTION_HTTPS_CERT_CALLBACK; any thread. */
void *tls_callback(void);

#endif
