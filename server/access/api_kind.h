/* api_kind.h - the APIs of the daemon: the one that a request uses decides what its key must be allowed. No state. */
#ifndef SERVER_ACCESS_API_KIND_H
#define SERVER_ACCESS_API_KIND_H

/*   constant  word in a key's rights */
#define APIS(X)                   \
    X(API_NATIVE, "native")       \
    X(API_OPEN, "open")           \
    X(API_OPENAI, "openai")       \
    X(API_INFERENCE, "inference") \
    X(API_ADMIN, "admin")
/* API_OPEN is open to everybody: it tells how the daemon is. API_INFERENCE is the Open Inference Protocol, but for what
 * only administrators may. */

#define X(constant, word) constant,
enum api_kind { APIS(X) API_COUNT };
#undef X

/* A set of APIs: one bit for each. */
#define API_BIT(api) (1u << (api))
/* What a key may do unless something else is said. */
#define APIS_USUAL (API_BIT(API_NATIVE) | API_BIT(API_OPENAI) | API_BIT(API_INFERENCE))

#endif
