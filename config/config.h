/* config.h - from defaults, file, environment and flags to checked settings: each overrides those before it.
 * Nothing here exits, and only what is given a FILE * prints. Called at start, by the main thread; no state. */
#ifndef CONFIG_CONFIG_H
#define CONFIG_CONFIG_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "config/settings.h"
#include "config/status.h"

/* The first of these that exists is read, if --config names no other: that of the source tree, so that what was built
 * there runs as it lies there; then the installation's. aft finds the daemon's settings in the same way. */
#define CONFIG_TREE_PATH "config/aftd.json"
#define CONFIG_INSTALLED_PATH AFTD_SYSCONFDIR "/aftd.json"

#define CONFIG_FILE_HELP /* of --config */ \
    "configuration file, JSON (the first that exists of " CONFIG_TREE_PATH " and " CONFIG_INSTALLED_PATH ")"

#define CONFIG_ENVIRONMENT_PREFIX "AFTD_"

#define CONFIG_OFF "off" /* the value of a text that names nothing */
static inline bool config_is_on(const char *text)
{
    return strcmp(text, CONFIG_OFF) != 0;
}

/* Flags that ask for something other than running: X(name, action, help). */
#define CONFIG_ACTIONS(X)                                                                  \
    X("check-config", CONFIG_CHECK, "say whether settings and keys are valid, then exit")  \
    X("print-config", CONFIG_PRINT, "print the settings in force as JSON, then exit")      \
    X("help", CONFIG_HELP, "print all settings with their ranges and defaults, then exit") \
    X("version", CONFIG_VERSION, "print the versions of program and libraries, then exit")

enum config_action { CONFIG_RUN, CONFIG_HELP, CONFIG_VERSION, CONFIG_PRINT, CONFIG_CHECK };

struct config {
    struct settings settings;
    enum config_action action;
    enum config_source sources[SETTING_COUNT]; /* by enum setting_id: who set the value in force */
    char path[SETTING_TEXT_MAX + 1];           /* the file that was read; empty if none was */
    uint64_t memory;                           /* bytes that there are (memory.h), for the shares; 0: unknown */
};

/* Called for each AFTD_ variable that matches no setting. That is only a warning, because an orchestrator puts
 * variables of its own making into the environment (a Kubernetes service named aftd is enough). */
typedef void config_warning(void *arg, const char *message);

/* Merge and check. argv[0] is skipped; envp ends with NULL and may be NULL (as may warn). Flags are --NAME VALUE or
 * --NAME=VALUE for each setting, dashes or underscores, of which --model adds up if it is repeated, and --config,
 * --check-config, --print-config, --help, --version. After --help or --version nothing else is read, and the settings
 * are the defaults.
 * *ret is set only on OK.
 * Errors: ERR_CONFIG naming the setting, its value, where it came from and what was expected; ERR_IO (the file given
 * with --config cannot be read); ERR_NOMEM. */
enum status config_load(struct config *ret, int argc, char *const argv[], char *const envp[], config_warning *warn,
                        void *arg, struct error *err);

/* Who set the value in force: "default", "share of the memory", "file config/aftd.json",
 * "environment AFTD_LISTEN_PORT", "flag --listen-port". */
void config_describe_source(const struct config *c, enum setting_id id, char *out, size_t size);

/* The settings in force as a JSON object that is a valid configuration file. Errors: ERR_IO, ERR_NOMEM. */
enum status config_print(const struct config *c, FILE *to, struct error *err);
/* {NAME: {"value", "source"}, ..} of all settings, for json_decref; none of them is a secret. NULL if out of memory. */
json_t *config_describe(const struct config *c);
/* "configuration is fine", then the settings that are not at their default and who set them. */
void config_print_check(const struct config *c, FILE *to);
void config_print_help(const char *program, FILE *to);

#endif
