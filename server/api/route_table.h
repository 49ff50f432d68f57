/* route_table.h - the one table of endpoints. A new one is a row here, its handler, and its description in
 * openapi.json: the row declares the handler and the lists of fields, and names the metrics label too. */
#ifndef SERVER_API_ROUTE_TABLE_H
#define SERVER_API_ROUTE_TABLE_H

#include "server/fields/fields.h"
#include "server/operation/archive.h"
#include "server/request/request_head.h"
#include "server/request/route.h"

/* method   each once per path, and all of a path together; HEAD goes where GET goes, routes.c answers OPTIONS
 * path     {} stands for one segment, which the handler gets as x->segments[i]; of several that match, the first
 * api      which API it belongs to, and so who may call it (api_kind.h)
 * body     whether there must be one
 * types    that the body may be declared as (request_head.h)
 * most     bytes that the body may have; BODY_MOST: what the settings say
 * use      does it make the engine compute, for which there must be room?
 * handler  the step that is taken with the whole request (request_step)
 * query    the parameters that it takes: a field_list, no_fields for none
 * fields   the fields of its JSON object: a field_list, no_fields if there is none or it is not read by a list
 *
 * openapi.json names the lists as they are named here. ROUTE_PLAIN has no fields, and its body may be of any type. */
#define BODY_MOST SIZE_MAX
#define ROUTE_PLAIN(X, method, path, api, body, handler) \
    X(method, path, api, body, TYPE_ANY, BODY_MOST, TELLS, handler, no_fields, no_fields)
#define ROUTES(X)                                                                                                      \
    X("POST", "/classify", API_NATIVE, BODY, TYPE_PICTURE | TYPE_FORM | TYPE_JSON, BODY_MOST, COMPUTES, api_classify,  \
      classify_query, classify_fields)                                                                                 \
    X("POST", "/complete", API_NATIVE, BODY, TYPE_PICTURE | TYPE_FORM, BODY_MOST, COMPUTES, api_complete,              \
      complete_query, no_fields)                                                                                       \
    X("POST", "/explain", API_NATIVE, BODY, TYPE_PICTURE | TYPE_FORM, BODY_MOST, COMPUTES, api_explain, explain_query, \
      no_fields)                                                                                                       \
    X("POST", "/generate", API_NATIVE, BODY, TYPE_JSON, BODY_MOST, COMPUTES, api_generate, no_fields, generate_fields) \
    X("GET", "/generate", API_NATIVE, NO_BODY, TYPE_ANY, BODY_MOST, TELLS, api_generate_events, generate_query,        \
      no_fields)                                                                                                       \
    X("POST", "/score", API_NATIVE, BODY, TYPE_PICTURE | TYPE_FORM | TYPE_JSON, BODY_MOST, COMPUTES, api_score,        \
      score_query, score_fields)                                                                                       \
    X("POST", "/v1/completions", API_OPENAI, BODY, TYPE_JSON, BODY_MOST, COMPUTES, api_openai_complete, no_fields,     \
      openai_fields)                                                                                                   \
    X("POST", "/v1/embeddings", API_OPENAI, BODY, TYPE_JSON, BODY_MOST, COMPUTES, api_openai_embeddings, no_fields,    \
      embedding_fields)                                                                                                \
    X("POST", "/v1/chat/completions", API_OPENAI, BODY, TYPE_JSON, BODY_MOST, COMPUTES, api_openai_complete,           \
      no_fields, chat_fields)                                                                                          \
    X("POST", "/v1/compress", API_NATIVE, BODY, TYPE_ANY, COMPRESS_BYTES_MAX, COMPUTES, api_compress, compress_query,  \
      no_fields)                                                                                                       \
    X("POST", "/v1/decompress", API_NATIVE, BODY, TYPE_ANY, ARCHIVE_BYTES_MAX, COMPUTES, api_decompress,               \
      compress_query, no_fields)                                                                                       \
    X("POST", "/v1/sessions", API_NATIVE, BODY, TYPE_JSON, BODY_MOST, COMPUTES, api_sessions_create, no_fields,        \
      session_fields)                                                                                                  \
    X("GET", "/v1/sessions", API_NATIVE, NO_BODY, TYPE_ANY, BODY_MOST, TELLS, api_sessions, sessions_query, no_fields) \
    ROUTE_PLAIN(X, "GET", "/v1/sessions/{}", API_NATIVE, NO_BODY, api_session)                                         \
    X("PUT", "/v1/sessions/{}", API_NATIVE, MAYBE_BODY, TYPE_JSON, BODY_MOST, COMPUTES, api_sessions_create,           \
      no_fields, session_fields)                                                                                       \
    ROUTE_PLAIN(X, "DELETE", "/v1/sessions/{}", API_NATIVE, NO_BODY, api_session_delete)                               \
    X("POST", "/v1/sessions/{}/fork", API_NATIVE, MAYBE_BODY, TYPE_JSON, BODY_MOST, TELLS, api_session_fork,           \
      no_fields, fork_fields)                                                                                          \
    ROUTE_PLAIN(X, "GET", "/v1/sessions/{}/state", API_NATIVE, NO_BODY, api_session_state)                             \
    X("PUT", "/v1/sessions/{}/state", API_NATIVE, BODY, TYPE_BYTES, BODY_MOST, TELLS, api_session_put, no_fields,      \
      no_fields)                                                                                                       \
    ROUTE_PLAIN(X, "GET", "/v1/models", API_OPENAI, NO_BODY, api_models)                                               \
    ROUTE_PLAIN(X, "GET", "/v1/models/{}", API_OPENAI, NO_BODY, api_model)                                             \
    ROUTE_PLAIN(X, "GET", "/healthz", API_OPEN, NO_BODY, api_healthz)                                                  \
    ROUTE_PLAIN(X, "GET", "/readyz", API_OPEN, NO_BODY, api_readyz)                                                    \
    ROUTE_PLAIN(X, "GET", "/metrics", API_OPEN, NO_BODY, api_metrics)                                                  \
    ROUTE_PLAIN(X, "GET", "/openapi.json", API_OPEN, NO_BODY, api_openapi)                                             \
    ROUTE_PLAIN(X, "GET", "/", API_OPEN, NO_BODY, api_page)                                                            \
    ROUTE_PLAIN(X, "GET", "/page/{}", API_OPEN, NO_BODY, api_page_file)                                                \
    ROUTE_PLAIN(X, "GET", "/admin/models", API_ADMIN, NO_BODY, api_admin_models)                                       \
    X("POST", "/admin/models/{}", API_ADMIN, BODY, TYPE_JSON, BODY_MOST, TELLS, api_admin_model, no_fields,            \
      admin_model_fields)                                                                                              \
    ROUTE_PLAIN(X, "GET", "/admin/config", API_ADMIN, NO_BODY, api_admin_config)                                       \
    ROUTE_PLAIN(X, "POST", "/admin/config/reload", API_ADMIN, MAYBE_BODY, api_admin_reload)                            \
    ROUTE_PLAIN(X, "POST", "/admin/drain", API_ADMIN, MAYBE_BODY, api_admin_drain)                                     \
    ROUTE_PLAIN(X, "GET", "/admin/requests", API_ADMIN, NO_BODY, api_admin_requests)                                   \
    ROUTE_PLAIN(X, "DELETE", "/admin/requests/{}", API_ADMIN, NO_BODY, api_admin_request_cancel)                       \
    ROUTE_PLAIN(X, "GET", "/v2", API_INFERENCE, NO_BODY, api_inference_server)                                         \
    ROUTE_PLAIN(X, "GET", "/v2/health/live", API_INFERENCE, NO_BODY, api_inference_live)                               \
    ROUTE_PLAIN(X, "GET", "/v2/health/ready", API_INFERENCE, NO_BODY, api_inference_ready)                             \
    ROUTE_PLAIN(X, "GET", "/v2/models/stats", API_INFERENCE, NO_BODY, api_inference_stats_all)                         \
    ROUTE_PLAIN(X, "GET", "/v2/models/{}", API_INFERENCE, NO_BODY, api_inference_model)                                \
    ROUTE_PLAIN(X, "GET", "/v2/models/{}/config", API_INFERENCE, NO_BODY, api_inference_config)                        \
    ROUTE_PLAIN(X, "GET", "/v2/models/{}/stats", API_INFERENCE, NO_BODY, api_inference_stats)                          \
    ROUTE_PLAIN(X, "GET", "/v2/models/{}/ready", API_INFERENCE, NO_BODY, api_inference_model_ready)                    \
    X("POST", "/v2/models/{}/infer", API_INFERENCE, BODY, TYPE_JSON | TYPE_BYTES, BODY_MOST, COMPUTES,                 \
      api_inference_infer, no_fields, no_fields)                                                                       \
    ROUTE_PLAIN(X, "GET", "/v2/models/{}/versions/{}", API_INFERENCE, NO_BODY, api_inference_model)                    \
    ROUTE_PLAIN(X, "GET", "/v2/models/{}/versions/{}/config", API_INFERENCE, NO_BODY, api_inference_config)            \
    ROUTE_PLAIN(X, "GET", "/v2/models/{}/versions/{}/stats", API_INFERENCE, NO_BODY, api_inference_stats)              \
    ROUTE_PLAIN(X, "GET", "/v2/models/{}/versions/{}/ready", API_INFERENCE, NO_BODY, api_inference_model_ready)        \
    X("POST", "/v2/models/{}/versions/{}/infer", API_INFERENCE, BODY, TYPE_JSON | TYPE_BYTES, BODY_MOST, COMPUTES,     \
      api_inference_infer, no_fields, no_fields)                                                                       \
    ROUTE_PLAIN(X, "GET", "/v2/repository/index", API_INFERENCE, NO_BODY, api_inference_index)                         \
    X("POST", "/v2/repository/index", API_INFERENCE, MAYBE_BODY, TYPE_JSON, BODY_MOST, TELLS, api_inference_index,     \
      no_fields, inference_index_fields)                                                                               \
    X("POST", "/v2/repository/models/{}/load", API_ADMIN, MAYBE_BODY, TYPE_JSON, BODY_MOST, TELLS, api_inference_load, \
      no_fields, inference_change_fields)                                                                              \
    X("POST", "/v2/repository/models/{}/unload", API_ADMIN, MAYBE_BODY, TYPE_JSON, BODY_MOST, TELLS,                   \
      api_inference_unload, no_fields, inference_change_fields)

#define X(method, path, api, body, types, most, use, handler, query, fields) \
    request_step handler;                                                    \
    extern const struct field_list query, fields;
ROUTES(X)
#undef X

#endif
