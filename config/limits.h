/* limits.h - every compile-time bound, each with its reason. Settings (settings.h) choose values inside these. */
#ifndef CONFIG_LIMITS_H
#define CONFIG_LIMITS_H

/* ---- texts ---------------------------------------------------------------------------------------------- */
#define ERROR_MESSAGE_MAX 512 /* one readable sentence with names and numbers; longer ones are cut */
#define ERROR_PARAM_MAX 128   /* a field, a setting or a tensor's name */
#define MODEL_NAME_MAX 64     /* a folder's name; it becomes a metric label */
#define MODEL_REF_MAX 75      /* what a request calls a model: its name, or NAME@VERSION with ten digits */
#define REQUEST_ID_MAX 128    /* X-Request-Id, as the HTTP contract says */

/* ---- configuration and reports -------------------------------------------------------------------------- */
#define SETTING_TEXT_MAX 1023    /* bytes of a text setting: an address or a path */
#define CONFIG_FILE_MAX 65536    /* bytes of the configuration file; every setting with its longest value fits */
#define LOG_LINE_MAX 4096        /* PIPE_BUF of Linux: one write of at most that many bytes is never torn */
#define LOG_RING_BYTES 262144    /* of lines that wait for a reader: some 800 requests, a terminal's pause */
#define LOG_RETRY_MS 1000        /* until standard error is tried again after it failed */
#define LOG_STOP_MS 1000         /* at the end, for a reader to take what is left */
#define LOG_MESSAGE_MAX 1500     /* bytes of a message, escapes included: an error's message and its context */
#define LOG_PATH_MAX 512         /* bytes of a path in a request's line, escapes included */
#define LOG_FIELD_MAX 160        /* bytes of any other text in a request's line, escapes included */
#define METRICS_ENDPOINTS_MAX 64 /* rows of the daemon's table of endpoints, each a label */
#define METRICS_MODELS_MAX 256   /* models that get series of their own; the others share one */
#define METRICS_TEXT_MAX 256     /* bytes of a label's value that we choose: a version, the BLAS's description */

/* ---- model files ---------------------------------------------------------------------------------------- */
#define SAFETENSORS_HEADER_MAX (4u << 20)        /* JSON of 24,000 tensors fits; more is an attack on the parser */
#define MODEL_TENSORS_MAX 24000                  /* of all files; the deepest models have 6,000 */
#define SAFETENSORS_FILE_MAX (UINT64_C(1) << 33) /* 8 GiB: above what a CPU serves at a useful speed */
#define TENSOR_RANK_MAX 8                        /* the format's models use 4 at most */
#define TENSOR_NAME_MAX 128                      /* "blocks.999.mixer.query_score" with room */
#define CONFIG_JSON_MAX (4u << 20)               /* config.json; 1,000 labels take 30 KB */
#define MODEL_DIM_MAX 8192                       /* d */
#define MODEL_DEPTH_MAX 256                      /* L */
#define MODEL_HIDDEN_MAX 65536                   /* mlp_ratio * d */
#define MODEL_CONTEXT_MAX 65536                  /* T; a T x T bias must stay addressable */
#define MODEL_CLASSES_MAX 65536                  /* labels */
#define MODEL_LABEL_MAX 256                      /* bytes of one label */
#define MODEL_CHAT_TEXT_MAX 1024                 /* bytes of one string of a chat_template; usual ones have 30 */
#define MODEL_CHAT_STOPS_MAX 4                   /* stop strings of a chat_template, beside a request's own */
#define MODEL_KERNEL_MAX 255                     /* taps a side of aft-conv for pictures; of sequences as T */
#define MODEL_PICTURE_SIDE_MAX 4096              /* input.size, input.resize_to: pixels a side */
#define MODEL_TOKENS_MAX 65536                   /* patches of one picture */
#define POSITION_BIAS_MAX 60.0                   /* exp(w) and 1/exp(w) stay ordinary float32 numbers */
#define MODEL_BYTES_MAX (UINT64_C(1) << 34)      /* one model as float32, without its matrices */
#define MODEL_SHARDS_MAX 64                      /* files of one model, open at a time: half of HTTP_FILES_BESIDE */
#define MODEL_INDEX_JSON_MAX (4u << 20)          /* model.safetensors.index.json: as many names as a header holds */
#define MODEL_NORM_EPS_MIN 1e-30                 /* its inverse root is an ordinary float32 number */
#define MODEL_NORM_EPS_MAX 1.0                   /* more would swamp a variance of about 1 */
#define MODEL_MEAN_MAX 1000.0                    /* input.mean: values lie in 0..1 or, by some habits, in 0..255 */
#define MODEL_STD_MIN 1e-6                       /* input.std: (x - mean) / std stays far from float32's end */
#define MODEL_STD_MAX 1000.0                     /* as MODEL_MEAN_MAX */

/* ---- engine --------------------------------------------------------------------------------------------- */
#define ENGINE_THREADS_MAX 256                     /* OpenMP threads of the one compute pool */
#define ENGINE_PICTURES_MAX 256                    /* pictures of one batch */
#define ENGINE_STREAMS_MAX 4096                    /* streams of one model */
#define ENGINE_STATES_MAX (2 * ENGINE_STREAMS_MAX) /* a stream whose window shifts has two (stream_window.h) */
#define ENGINE_ROWS_MAX 8192                       /* bytes fed in one pass, all streams together */
#define ENGINE_PROMPT_ROWS 96 /* fewest bytes of a pass of prompts only: with fewer, products are less efficient */
#define ENGINE_POSITION_MAX (1u << 31) /* last position at which a saved state is restored: half of what is counted */
#define BYTE_VALUES 256                /* the vocabulary of a byte model */
#define SAMPLER_HISTORY 64             /* bytes that penalties look back at, as weights/FORMAT.md says */

/* ---- pictures from clients ------------------------------------------------------------------------------ */
#define PICTURE_SIDE_MAX 16384         /* pixels a side */
#define PICTURE_PIXELS_MAX (32u << 20) /* 33 megapixels that are decoded: 96 MiB */
/* Of a JPEG, of which that may be a 64th: the largest that phones make have 200 megapixels. */
#define PICTURE_FILE_PIXELS_MAX (UINT64_C(200) << 20)
#define PICTURE_TOKENS_DEFAULT 4096 /* patches of a picture whose request sets a size: 64 x 64 */
#define PICTURE_SCANS_MAX 100       /* progressive JPEGs in the wild have about 10; each scan costs a pass */
/* Pixels times scans, what a progressive JPEG costs: 12 scans of the largest picture, 100 of one with 4 Mpixel. */
#define PICTURE_SCAN_PIXELS_MAX (UINT64_C(12) * PICTURE_PIXELS_MAX)
#define PICTURE_DECODER_BYTES_MAX (400u << 20) /* what libjpeg may allocate: coefficients of 33 megapixels or more */
#define PICTURE_BLOCK_PIXELS 64 /* 8 x 8, a JPEG's block: an ordinary file has more than a byte for each */
/* A JPEG of at least so many pixels is decoded to fewer, down to GAP times the pixels a side that are wanted. A smaller
 * one takes some milliseconds, and comes out as where the model was trained, bit for bit. */
#define PICTURE_REDUCED_PIXELS_MIN (1u << 20)
#define PICTURE_REDUCTION_GAP 3

/* ---- pictures that are drawn ---------------------------------------------------------------------------- */
#define EXPLAIN_SIDE_MIN 16          /* pixels of the longer side */
#define EXPLAIN_SIDE_MAX 2048        /* the same: 12 MiB, while a request waits for its map */
#define EXPLAIN_VALUES_MAX (1 << 22) /* of all maps of a request: 16 MiB */
#define EXPLAIN_SIDE_DEFAULT 512     /* a picture of 32 x 32 can be looked at, and a photograph still has its details */

/* ---- HTTP ----------------------------------------------------------------------------------------------- */
#define LISTENERS_MAX 16            /* addresses and Unix sockets to listen on: each thread polls all of them */
#define SERVICE_SOCKET_NAME_MAX 255 /* of a socket that is passed: FDNAME_MAX of sd_listen_fds */
#define LISTENER_NAME_MAX 511       /* bytes of what the log calls one: its address, and what it was passed as */
#define TLS_CHAIN_MAX 16            /* certificates of a chain; usual ones have 2 or 3 */
#define TLS_FILE_MAX 1048576        /* bytes of a certificate's or a key's file */
#define HTTP_URL_MAX 2048
#define HOST_NAME_BYTES_MAX 253   /* of a host that a client asks for: what DNS has room for */
#define TRUSTED_PROXIES_MAX 64    /* addresses and networks; each request behind a proxy is compared with all */
#define HTTP_BODY_MAX (64u << 20) /* the largest that the setting may allow */
#define JSON_DEPTH_MAX 64         /* of a request's body; the API nests 2 deep */
#define JSON_VALUES_MAX 1024      /* of a request's body; the API takes about 40 */
/* The same where prompts may be lists of bytes or pictures lists of numbers, 151,000 at 224 x 224; 15 MB once
 * parsed. */
#define JSON_BYTES_VALUES_MAX 262144
#define HTTP_REPLY_HEADERS_MAX 12       /* of one answer besides those that every answer has */
#define HTTP_HEADER_VALUE_MAX 256       /* bytes of a header that we write; the page's policy is the longest */
#define HTTP_SEGMENTS_MAX 3             /* parts of a path that are names */
#define HTTP_SEGMENT_MAX 256            /* bytes of one, including its NUL: nothing has a longer name */
#define HTTP_CONNECTION_BYTES_MAX 32768 /* of one connection: request line, headers, and the answer's next piece */
#define CONNECTIONS_MIN 16              /* of public connections that may be open, however few descriptors there are */
#define HTTP_CONNECTIONS_KEPT 128 /* open ones of administrators, and of monitors: more than changes that may wait */
#define HTTP_CONNECTIONS_ENDING_MAX 64 /* of each kind that are being closed for others: the next moment they are */
/* Beyond connections_max: administrators', monitors', and what is being closed; and files, pipes, models. Those that
 * linger are further descriptors. */
#define HTTP_CONNECTIONS_BESIDE (2 * HTTP_CONNECTIONS_KEPT + 3 * HTTP_CONNECTIONS_ENDING_MAX)
#define HTTP_FILES_BESIDE 128
#define HTTP_LINGERS_MAX 32 /* closed connections of a thread whose clients still send, and then read the answer */
#define HTTP_LINGER_BYTES_MAX (128u << 20) /* that such a client may still send: twice the largest body */
#define HTTP_SEND_BYTES_MAX 32768          /* unread answer that the kernel holds; its own bound is megabytes */
#define HTTP_RETRY_AFTER_MAX_S 60          /* a client that is told to wait longer would not come back */
#define REQUESTS_LISTED_MAX 1000           /* of GET /admin/requests: more than anyone reads, in half a megabyte */
#define BODY_SMALL_BYTES 65536             /* prompts, and pictures of the models that ship */
#define BODIES_SMALL_PART 8                /* of the memory of bodies: kept for small ones */
#define BODIES_KEPT_PART 4                 /* of the rest: not for a client that has all the other parts */
#define BODIES_ENDING_PART 4               /* of that memory: what is being freed for others, and still there */
#define HTTP_ANSWER_SMALL_BYTES 32768      /* of an answer that is not counted among those that wait to be read */
#define ANSWERS_ENDING_PART 4 /* of the memory of answers: what is being freed for others, and still there */
#define ANSWERS_KEPT_PART 4   /* of the rest: not for a client that has all the other parts */
#define ADMIN_BODIES_BYTES_MAX HTTP_BODY_MAX /* of the admin listener's bodies, which are few */

/* ---- keys ------------------------------------------------------------------------------------------------ */
#define AUTH_KEYS_MAX 1000    /* of a file: when it is read, each is compared with all before it */
#define KEYS_FILE_MAX 8388608 /* bytes: AUTH_KEYS_MAX keys with dozens of models each */
#define KEY_NAME_MAX 64       /* bytes of a key's name; it becomes a metric label */
#define KEY_RATE_MAX 1e9      /* requests or bytes a second */
#define KEY_RATE_MIN 1e-3     /* one in a quarter of an hour */
#define KEY_AHEAD_S 60        /* seconds of its byte rate that a key's running requests may be ahead, if several run */
#define METRICS_KEYS_MAX 64   /* keys that get series of their own; the others share one */

/* ---- jobs ------------------------------------------------------------------------------------------------ */
#define REGISTRY_MODELS_MAX 256 /* models that one daemon serves; each takes a turn in the engine's loop */
#define BATCHER_LANES_MAX 320   /* the same, and 64 that were replaced but still have requests */
/* For how long room is kept for a client that was told to come back in a second: in it, or for its model. */
#define MODEL_AWAITED_NS UINT64_C(10000000000)
/* For how long a model in use takes no requests, at most, so that another gets its room, and from when on it may do so
 * again: where its requests run longer than that, it is there for its own clients most of the time. */
#define MODEL_YIELDS_NS UINT64_C(20000000000)
#define MODEL_YIELDS_AGAIN_NS UINT64_C(60000000000)
#define LOADER_CHANGES_MAX 64     /* changes to models that are waiting: administrators are few */
#define QUEUE_PRIORITY_MIN (-100) /* of a job */
#define QUEUE_PRIORITY_MAX 100    /* the same: as if it had arrived 5 s earlier than an ordinary one, and no more */
#define QUEUE_PRIORITY_NORMAL 0
#define INFERENCE_PRIORITY_STEP 10 /* of it, between two levels of the Open Inference Protocol: half a second */
#define QUEUE_PRIORITY_WORDS(X) \
    X("low", QUEUE_PRIORITY_MIN) X("normal", QUEUE_PRIORITY_NORMAL) X("high", QUEUE_PRIORITY_MAX)
#define QUEUE_PRIORITY_NS UINT64_C(50000000) /* what one step of priority is worth */
#define PARKED_STREAMS_MAX 1024              /* of a lane: many times what runs at a time, and quick to look through */
/* How long a stream runs before another may take its slot in turn: a thousand times what it takes to copy its state. */
#define STREAM_TURN_NS UINT64_C(250000000)
#define STREAM_WAKE_NS UINT64_C(200000) /* at least, between two wake-ups of clients of any stream: 5,000 a second */
#define STREAM_EVENT_BYTES_MAX 4096     /* generated bytes of one event: what a client that paused gets at once */

/* ---- generation requests --------------------------------------------------------------------------------- */
#define GENERATE_TOKENS_MAX 1048576 /* max_tokens */
#define GENERATE_PROMPT_MAX 1048576 /* bytes of a prompt */
#define OPENAI_TOKENS_DEFAULT 16    /* max_tokens of /v1/completions by default, as in OpenAI's API */
#define OPENAI_USER_MAX 1024        /* bytes of "user", which has no effect here */
#define CHAT_MESSAGES_MAX 1024      /* of one conversation; with a template's longest strings 1 MB, as a prompt */
#define CHAT_STOPS_MAX 4            /* stop strings of a chat, as many as OpenAI's API takes */
#define GENERATE_STOPS_MAX 8        /* stop strings */
#define GENERATE_STOP_BYTES_MAX 64  /* bytes of one stop string */
#define GENERATE_PROMPTS_MAX 64     /* prompts of one request: lm-eval's batches; each is fed by itself */
#define GENERATE_SAMPLES_MAX 64     /* texts of one request, of all prompts together: each takes a stream */
#define GENERATE_LIKELIEST_MAX 20   /* bytes reported besides the one drawn, as many as OpenAI's chat API reports */
/* Numbers reported for a request's bytes, prompt included: 16 MB of JSON, and some 100 MB while that is built. */
#define GENERATE_LOGPROBS_MAX 262144
#define COMPLETE_SAMPLES_MAX 16        /* pictures of one completion: each takes a stream */
#define COMPLETE_SCALE_MAX 32          /* a pixel's side in the picture sent */
#define COMPLETE_PIXELS_MAX (8u << 20) /* of the picture sent: a larger PNG keeps a thread busy for seconds */
#define COMPLETE_TOTAL_MAX 196608      /* sub-pixels of a picture that is served: 256 x 256 */
#define SCORE_BYTES_MAX 262144         /* of one text; each has a number of 20 bytes in the answer */
#define SAMPLER_TEMPERATURE_MAX 100    /* flatter than any choice; float32 stays exact enough */
#define SAMPLER_PENALTY_MAX 100        /* repetition_penalty */
#define SAMPLER_OFFSET_MAX 2           /* presence_penalty and frequency_penalty, as in OpenAI's API */
#define SAMPLER_BIAS_MAX 100           /* logit_bias, as there: certainly, or never */
#define CLASSIFY_TOP_K_MAX 1000
#define CLASSIFY_INPUTS_MAX 64 /* pictures or texts of one request, which others behind it wait for */
/* Pixels of all pictures of one request: sixteen photographs of a phone, some seconds of a thread to decode. */
#define CLASSIFY_PIXELS_MAX PICTURE_FILE_PIXELS_MAX
#define SEED_MAX ((UINT64_C(1) << 53) - 1) /* what a JSON number carries exactly */
#define STREAM_OFFSET_MAX 80               /* bytes of the id of a stream's event: a seed, digests and a number */

/* ---- saved streams and compression ------------------------------------------------------------------------------ */
#define MODEL_ARITHMETIC_BYTES 160 /* version, instruction set and precision */
/* Bytes that a saved stream has yet to be fed: one, or half a context where the context is about to begin anew. */
#define STATE_PENDING_MAX MODEL_CONTEXT_MAX
#define COMPRESS_BYTES_MAX (1u << 20)      /* of one text: takes a small model two minutes */
#define SESSIONS_MAX 65536                 /* that a daemon may keep: a few hundred bytes each, besides their states */
#define SESSION_TTL_MAX_S 2592000          /* a month: what must last longer does not belong in memory */
#define SESSION_ID_RANDOM_BYTES 16         /* nobody guesses one of 2^128 */
#define SESSION_ID_MAX 64                  /* bytes of one that a client has chosen */
#define SESSION_STORE_THREADS 4            /* that read and write where sessions are kept: disks and networks wait */
#define SESSION_FORKS_MAX 64               /* of one request */
#define SESSIONS_LISTED_MAX 100            /* in one answer */
#define SESSIONS_KEPT_PART 4               /* a quarter of their room is kept for clients that have little */
#define SESSIONS_LITTLE_PART 64            /* that is at most this part of it: with it eight clients cannot take all */
#define STATE_SEEN_MAX (UINT64_C(1) << 62) /* draws and bytes of one stream: it can go on without wrapping around */
#define PREFIX_CHUNK_BYTES 4096 /* unit of memory for prompt states: each, of 3,000 bytes or more, wastes half a unit */
#define PREFIX_SHARE_OF_PROMPT 4    /* one prompt's states take at most a quarter of it, so that others stay */
#define STATE_BYTES_MAX (63u << 20) /* of the engine's part: a blob is a body, and keys of 5,000 bytes fit */

/* ---- the store of sessions that daemons share ------------------------------------------------------------------- */
#define STORE_PREFIX_MAX 64    /* bytes of the prefix of its keys */
#define STORE_NAME_MAX 64      /* bytes of a daemon's name: what a client is told of who has a session */
#define STORE_PASSWORD_MAX 512 /* bytes: longer than managed servers make them */
#define STORE_AWAY_MS 1000     /* until a server that did not answer is tried again */

/* ---- multipart/form-data --------------------------------------------------------------------------------- */
#define MULTIPART_BOUNDARY_MAX 70       /* RFC 2046, 5.1.1 */
#define MULTIPART_HEADER_BYTES_MAX 4096 /* of one part; browsers and curl write some 200 */
#define MULTIPART_NAME_MAX 64           /* bytes of a part's name or media type, its NUL included */
#define MULTIPART_PARAMETER_MAX 1024    /* bytes of a header's parameter, as a file's name */

/* ---- precisions ------------------------------------------------------------------------------------------ */
#define PRECISION_TOP1_LOSS_MAX 0.2   /* points of top-1 that bf16 or int8 may lose and still be chosen automatically */
#define PRECISION_SAMPLES_MIN 500     /* pictures, bytes or sub-pixels needed to detect such a loss at all */
#define PRECISION_BITS_LOSS_MAX 0.005 /* the same in bits per byte or dim */

/* ---- the command line ------------------------------------------------------------------------------------ */
#define CHECK_FILES_MAX 1000000      /* pictures of aft check-precision: takes hours */
#define SCORE_FILE_MAX (1u << 30)    /* bytes; enwik9 fits and takes hours */
#define VERIFY_PIXELS_MAX (1u << 26) /* values of one input picture; keeps sizes far from overflow */
#define BENCH_RUNS_MAX 1001          /* whose median a figure is; kept on the stack */
#define CLI_TEXTS_MAX 16             /* values of an option that may be given several times */

/* ---- aft as a client of a daemon ------------------------------------------------------------------------- */
#define REMOTE_CONNECT_S 10           /* to connect; waiting for an answer has no limit */
#define REMOTE_ANSWER_MAX (64u << 20) /* bytes of a whole answer: the largest PNG, SCORE_BYTES_MAX numbers */
#define REMOTE_EVENT_MAX (1u << 20)   /* bytes of one event: STREAM_EVENT_BYTES_MAX, each escaped and with its extras */
#define REMOTE_KEY_MAX 512            /* bytes of a key */
#define ADMIN_ANSWER_S 10             /* of aft ps, top and cancel: the daemon does not compute for these answers */
#define HEALTH_TIMEOUT_S 5            /* of aft health by default: a daemon under load answers in milliseconds */
#define HEALTH_TIMEOUT_MAX_S 600      /* of aft health */
#define TOP_SNAPSHOTS_MAX 1000000     /* of aft top: ten days */

/* ---- aft load -------------------------------------------------------------------------------------------- */
#define LOAD_CLIENTS_MAX 4096        /* connections; a daemon has no more stream slots for one model */
#define LOAD_CLIENTS_OPEN 256        /* connections of an open loop by default */
#define LOAD_CLIENTS_FIND 64         /* clients that wait, of the run with which the search for a rate begins */
#define LOAD_RATE_MAX 50000          /* requests a second; one thread of libcurl sends fewer */
#define LOAD_RATE_MIN 1e-3           /* one in a quarter of an hour */
#define LOAD_REQUESTS_MAX 1000000000 /* of one run: a day at 10,000 a second */
#define LOAD_DURATION_MAX_S 86400    /* a run, a warm-up: a day */
#define LOAD_DURATION_MIN_S 0.1      /* less would measure the start alone */
#define LOAD_TIMEOUT_MAX_S 3600      /* of one request; the daemon's own deadline is at most 10 minutes */
#define LOAD_PROBE_S 10              /* for the first request, GET /readyz */
#define LOAD_PAUSE_S 0.1             /* of a client whose next try would fail at once, as nobody is there */
#define LOAD_PROMPTS_MAX 64          /* different requests for text, sent in turn */
#define LOAD_BODIES_BYTES_MAX (UINT64_C(256) << 20) /* of all bodies, which are kept in memory */
#define LOAD_ANSWER_MAX (8u << 20)                  /* bytes kept of one answer: GENERATE_TOKENS_MAX, escaped, fits */
#define LOAD_FAILURES_MAX 32                        /* kinds of failure told apart; the others share one */
#define LOAD_DETAIL_MAX 256                         /* bytes of the message that a kind of failure is shown with */

#endif
