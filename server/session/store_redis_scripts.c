/* store_redis_scripts.c - see store_redis_scripts.h. What a full server refuses comes first in each, so that nothing is
 * half done; it refuses neither DEL nor PEXPIRE. */
#include "server/session/store_redis_scripts.h"

const char *const redis_script_texts[REDIS_SCRIPTS] = {
    [REDIS_ADD] = "local w = redis.call('HGET', KEYS[1], 'w')\n"
                  "if w == ARGV[1] then return 'K' end\n"
                  "if redis.call('EXISTS', KEYS[1]) == 1 then return 'X' end\n"
                  "redis.call('HSET', KEYS[1], 'w', ARGV[1], 't', ARGV[2], 'r', ARGV[4])\n"
                  "redis.call('PEXPIRE', KEYS[1], ARGV[3])\n"
                  "return 'K'\n",

    /* A lease of this daemon's is of a take that it knows nothing of, unless its token is a later one. */
    [REDIS_TAKE] = "local have = redis.call('HMGET', KEYS[1], 'w', 't')\n"
                   "if not have[1] then return 'N' end\n"
                   "if redis.call('HSTRLEN', KEYS[1], 'r') > tonumber(ARGV[6]) then return 'B' end\n"
                   "local lease = redis.call('GET', KEYS[2])\n"
                   "if lease and (lease:sub(1, 32) ~= ARGV[1]:sub(1, 32) or lease:sub(1, 48) > ARGV[1]) then\n"
                   "  return 'C' .. lease:sub(49)\n"
                   "end\n"
                   "redis.call('SET', KEYS[2], ARGV[1] .. ARGV[5], 'PX', ARGV[4])\n"
                   "redis.call('PEXPIRE', KEYS[1], ARGV[3])\n"
                   "if have[2] == ARGV[2] then return 'S' .. have[1] end\n"
                   "return 'R' .. have[1] .. (redis.call('HGET', KEYS[1], 'r') or '')\n",

    [REDIS_GIVE] = "local w = redis.call('HGET', KEYS[1], 'w')\n"
                   "local lease = redis.call('GET', KEYS[2])\n"
                   "local ours = lease and lease:sub(1, 48) == ARGV[1]\n"
                   "if w == ARGV[1] then return 'K' end\n" /* done already */
                   "if w ~= ARGV[2] or (lease and not ours) then\n"
                   "  if ours then redis.call('DEL', KEYS[2]) end\n"
                   "  return w and 'L' or 'N'\n"
                   "end\n"
                   "if ARGV[5] then\n"
                   "  redis.call('HSET', KEYS[1], 'w', ARGV[1], 't', ARGV[4], 'r', ARGV[5])\n"
                   "else\n"
                   "  redis.pcall('HSET', KEYS[1], 'w', ARGV[1])\n" /* so that no renewal takes it again */
                   "end\n"
                   "redis.call('PEXPIRE', KEYS[1], ARGV[3])\n"
                   "redis.call('DEL', KEYS[2])\n"
                   "return 'K'\n",

    [REDIS_LOOK] = "local have = redis.call('HMGET', KEYS[1], 'w', 't')\n"
                   "if not have[1] then return 'N' end\n"
                   "if have[2] == ARGV[1] then return 'S' .. have[1] end\n"
                   "if redis.call('HSTRLEN', KEYS[1], 'r') > tonumber(ARGV[2]) then return 'B' end\n"
                   "return 'R' .. have[1] .. (redis.call('HGET', KEYS[1], 'r') or '')\n",

    [REDIS_REMOVE] = "redis.call('DEL', KEYS[1])\n"
                     "local lease = redis.call('GET', KEYS[2])\n"
                     "if lease and lease:sub(1, 32) == ARGV[1] then redis.call('DEL', KEYS[2]) end\n"
                     "return 'K'\n",

    [REDIS_ASIDE] = "local lease = redis.call('GET', KEYS[2])\n"
                    "local ours = lease and lease:sub(1, 32) == ARGV[1]\n"
                    "if (lease and not ours) or redis.call('EXISTS', KEYS[1]) == 0 then return 'K' end\n"
                    "redis.call('HSET', KEYS[1], 'k', ARGV[2])\n"
                    "local place = ARGV[3] .. redis.call('INCR', KEYS[3]) % tonumber(ARGV[4])\n"
                    "redis.call('RENAME', KEYS[1], place)\n"
                    "redis.call('PEXPIRE', place, ARGV[5])\n"
                    "if ours then redis.call('DEL', KEYS[2]) end\n"
                    "return 'K'\n",

    [REDIS_TOUCH] = "redis.call('PEXPIRE', KEYS[1], ARGV[1])\n"
                    "return 'K'\n",

    [REDIS_RENEW] = "local said = {}\n"
                    "for i = 1, #KEYS / 2 do\n"
                    "  local record, lease = KEYS[2 * i - 1], KEYS[2 * i]\n"
                    "  local token, w = ARGV[2 * i + 2], ARGV[2 * i + 3]\n"
                    "  local is, has = redis.call('HGET', record, 'w'), redis.call('GET', lease)\n"
                    "  if not is then\n"
                    "    said[i] = 'N'\n"
                    "  elseif is ~= w or (has and has:sub(1, 48) ~= token) then\n"
                    "    said[i] = 'L'\n"
                    "  else\n"
                    "    if has then\n"
                    "      redis.call('PEXPIRE', lease, ARGV[2])\n"
                    "    else\n"
                    "      redis.call('SET', lease, token .. ARGV[3], 'PX', ARGV[2])\n"
                    "    end\n"
                    "    redis.call('PEXPIRE', record, ARGV[1])\n"
                    "    said[i] = 'K'\n"
                    "  end\n"
                    "end\n"
                    "return table.concat(said)\n",

    [REDIS_PROBE] = "redis.call('SET', KEYS[1], '1', 'PX', 1000)\n"
                    "return 'K'\n",
};
