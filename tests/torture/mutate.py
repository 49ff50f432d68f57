#!/usr/bin/env python3
"""Do the tests notice when the code is wrong? Changes one place at a time, the same places for the same seed, in a copy
of the last commit; builds it; and runs the tests that could notice, nearest first, until one fails.

mutate.py [--seed N] [--count N] [--first N] [--jobs N] [--copy DIR] [--only TEXT] [--near] [--list]

A mutant that does not compile, or compiles to the same code, does not count. Ends with how many of the others were
killed, and says where those are that survived. Needs what `make test` needs; the standard library alone."""
import argparse
import collections
import glob
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time

ROOTS = ("server", "weights", "engine")
LEFT_OUT = ("server/cli/bench", "engine/kernels/neon")  # what only measures; what this machine lacks
BUILD_S, TEST_S = 300, 120
MEMORY_BYTES = 16 << 30

TOKEN = re.compile(
    r'(?P<space>\s+|//[^\n]*|/\*.*?\*/|\\\n)|(?P<string>"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\')'
    r'|(?P<number>0[xX][0-9a-fA-F]+[uUlL]*|\d+\.\d*(?:[eE][+-]?\d+)?[fF]?|\d+[uUlL]*)|(?P<name>[A-Za-z_]\w*)'
    r'|(?P<sign><<=|>>=|->|\+\+|--|<=|>=|==|!=|&&|\|\||<<|>>|[-+*/%&|^]=|.)', re.S)

SWAPS = {
    "relation": {"<": ["<=", ">="], "<=": ["<", ">"], ">": [">=", "<="], ">=": [">", "<"], "==": ["!="], "!=": ["=="]},
    "arithmetic": {"+": ["-"], "-": ["+"], "*": ["/"], "/": ["*"], "%": ["*"], "+=": ["-="], "-=": ["+="],
                   "<<": [">>"], ">>": ["<<"]},
    "logic": {"&&": ["||"], "||": ["&&"], "&": ["|"], "|": ["&"]},
    "constant": {"true": ["false"], "false": ["true"]},
}

# Beside those of the same name: what else looks at a folder's files, nearest first.
FURTHER = {
    "server/access": ["http/test_keys", "http/test_rates", "http/test_hosts", "cli/test_key"],
    "server/api": ["http/test_basics", "http/test_errors", "http/test_requests", "http/test_openapi", "http/test_admin",
                   "http/test_generate", "http/test_classify", "http/test_sessions", "http/test_sessions_refused",
                   "http/test_inference", "http/test_openai", "http/test_chat", "http/test_score", "http/test_complete",
                   "http/test_compress", "http/test_explain", "http/test_page", "http/test_default_models",
                   "http/test_hosts", "http/test_keys", "http/test_picture_limits", "http/test_generate_samples"],
    "server/cli": ["cli/*"],
    "server/control": ["http/test_admin", "http/test_admin_lazy", "http/test_reload", "http/test_reload_order",
                       "http/test_model_flag", "deploy/test_*"],
    "server/core": ["http/test_metrics", "http/test_log_pipe", "http/test_basics", "http/test_leave", "http/test_drain",
                    "deploy/test_*"],
    "server/http": ["http/test_basics", "http/test_hostile", "http/test_listen", "http/test_hosts", "http/test_proxies",
                    "http/test_cors", "http/test_origins", "http/test_tls", "http/test_requests", "http/test_drain",
                    "http/test_identity", "http/test_leave", "http/test_metrics", "deploy/test_*"],
    "server/media": ["http/test_pictures", "http/test_picture_size", "http/test_picture_limits", "http/test_explain",
                     "http/test_complete", "http/test_classify", "cli/test_explain", "cli/test_classify"],
    "server/models": ["http/test_admin", "http/test_versions", "http/test_default_models", "http/test_model_flag",
                      "http/test_reload", "http/test_admin_lazy"],
    "server/fields": ["http/test_errors", "http/test_inference", "http/test_openai", "http/test_chat",
                      "http/test_chat_refused", "http/test_mutations", "http/test_classify",
                      "http/test_sessions_refused"],
    "server/operation": ["http/test_generate", "http/test_generate_samples", "http/test_generate_stop",
                         "http/test_score", "http/test_complete", "http/test_compress", "cli/test_compress",
                         "http/test_classify", "http/test_prefix", "http/test_state", "http/test_sessions",
                         "http/test_metrics", "http/test_drain", "http/test_leave", "http/test_prefix_bits",
                         "http/test_halted"],
    "server/request": ["http/test_basics", "http/test_errors", "http/test_hosts", "http/test_cors", "http/test_origins",
                       "http/test_identity", "http/test_generate", "http/test_classify", "http/test_leave",
                       "http/test_drain", "http/test_requests", "http/test_metrics"],
    "server/session": ["http/test_sessions", "http/test_sessions_many", "http/test_sessions_refused",
                       "http/test_state"],
    "server": ["http/test_drain", "http/test_basics", "http/test_reload", "deploy/test_*"],
    "weights": ["weights/test_*", "http/test_memory_models", "cli/test_inspect", "cli/test_verify"],
    "engine": ["engine/test_*", "engine/mixers/test_*", "engine/pass/test_*",
               "engine/kernels/test_*", "engine/core/test_*", "cli/test_verify", "http/test_pin_threads"],
}

Mutant = collections.namedtuple("Mutant", "file line kind start end before after")


# ---- where a mutant may be -------------------------------------------------------------------------------------------

def tokens(text):
    depth, at = 0, 0
    while at < len(text):
        m = TOKEN.match(text, at)
        line_begins = text.rfind("\n", 0, at) + 1
        if text[at] == "#" and text[line_begins:at].strip() == "":  # a directive, with its continuations
            at = re.compile(r"(?:\\\n|[^\n])*").match(text, at).end()
            continue
        if m.lastgroup != "space":
            if m.group() == "}":
                depth -= 1
            yield m.lastgroup, m.group(), m.start(), m.end(), depth
            if m.group() == "{":
                depth += 1
        at = m.end()


def closing(found, i):
    depth = 0
    for j in range(i, len(found)):
        depth += {"(": 1, ")": -1}.get(found[j][1], 0)
        if depth == 0:
            return j
    return i


def mutants_of(path):
    text = open(path, encoding="utf-8").read()
    found = list(tokens(text))

    def make(kind, start, end, after):
        return Mutant(path, text.count("\n", 0, start) + 1, kind, start, end, text[start:end], after)

    for i, (group, token, start, end, depth) in enumerate(found):
        if depth == 0 or i == 0:
            continue
        before = found[i - 1]
        is_binary = before[0] in ("name", "number") or before[1] in (")", "]")
        for kind, swaps in SWAPS.items():
            if token in swaps and (is_binary or group == "name"):
                for after in swaps[token]:
                    yield make(kind, start, end, after)
        if group == "number" and re.fullmatch(r"(0|[1-9]\d*|0[xX][0-9a-fA-F]+)[uUlL]*", token):
            value = token.rstrip("uUlL")
            for change in (1, -1):
                if int(value, 0) + change >= 0:
                    yield make("constant", start, end, str(int(value, 0) + change) + token[len(value):])
        if token in ("if", "while") and found[i + 1][1] == "(":
            last = closing(found, i + 1)
            yield make("condition", found[i + 1][2], found[last][3],
                       "(!" + text[found[i + 1][2]:found[last][3]] + ")")
        begins = before[1] in (";", "{", "}") and group == "name"
        if begins and token not in ("return", "case", "goto", "break", "else"):
            last = next((j for j in range(i, len(found)) if found[j][1] in (";", "{", "}")), i)
            statement = text[start:found[last][3]]
            if found[last][1] == ";" and (found[i + 1][1] == "(" or re.match(r"[\w.>\[\]-]+ [-+|&]?= ", statement)):
                yield make("statement", start, found[last][3], ";")
        if before[1] in (";", "{", "}") and token == "(" and text[start:start + 6] == "(void)":
            last = next((j for j in range(i, len(found)) if found[j][1] in (";", "{", "}")), i)
            if found[last][1] == ";" and "(" in text[start + 6:found[last][3]]:
                yield make("statement", start, found[last][3], ";")


def choose(seed, count, only):
    kinds = collections.defaultdict(list)
    for root in ROOTS:
        for path in sorted(glob.glob(root + "/**/*.c", recursive=True)):
            if not path.startswith(LEFT_OUT) and only in path:
                for m in mutants_of(path):
                    kinds[m.kind].append(m)
    draw = random.Random(seed)
    for kind in sorted(kinds):
        draw.shuffle(kinds[kind])
    chosen, names = [], sorted(kinds)
    while len(chosen) < count and any(kinds.values()):
        for kind in names:
            if kinds[kind] and len(chosen) < count:
                chosen.append(kinds[kind].pop())
    return chosen


# ---- the copy --------------------------------------------------------------------------------------------------------

def run(command, seconds, cwd):
    """The exit code, None if it took too long; all that it started has ended then."""
    child = subprocess.Popen(command, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL, start_new_session=True,
                             preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES)))
    try:
        return child.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        return None


def prepare(copy, make):
    if not os.path.isdir(copy):
        subprocess.run(["git", "clone", "-q", ".", copy], check=True)
    subprocess.run(["git", "-C", copy, "checkout", "-q", "."], check=True)
    subprocess.run(make + ["programs"], cwd=copy, check=True, stdout=subprocess.DEVNULL)


def code_of(copy, path):
    """The object code of a source in all its variants, without what only debuggers read."""
    parts = []
    for name in sorted(glob.glob(os.path.join(copy, "build", path[:-2] + "*.o"))):
        if re.fullmatch(re.escape(os.path.basename(path)[:-2]) + r"(-avx2|-avx512)?\.o", os.path.basename(name)):
            out = name + ".bare"
            subprocess.run(["objcopy", "--strip-debug", name, out], check=True)
            parts.append(open(out, "rb").read())
            os.remove(out)
    return parts


def tests_for(copy, path, near):
    """Nearest first; in the end, unless `near`, all that talk to a daemon, so that none of them knows who survives."""
    folder, name = os.path.dirname(path), os.path.basename(path)[:-2]
    folders = [folder] + [f for f in (folder.rsplit("/", 1)[0], folder.split("/")[0]) if f != folder]
    patterns = [f"{folder}/test_{name}", f"{folder}/test_{name}_*", f"http/test_{name}", f"http/test_{name}_*",
                f"cli/test_{name}", f"{folder}/test_*"]
    for f in folders:
        if f in FURTHER:
            patterns += FURTHER[f]
            break
    if not near and not path.startswith("engine/"):
        patterns.append("http/test_*")
    # They look at how long many clients wait, which a busy machine spoils; one of them is all that load*.c has.
    left_out = {"http/test_load", "cli/test_load"} - ({"cli/test_load"} if name.startswith("load") else set())
    found = []
    for pattern in patterns:
        for source in sorted(glob.glob(os.path.join(copy, "tests", pattern + ".c"))):
            test = os.path.relpath(source, os.path.join(copy, "tests"))[:-2]
            if test not in found and test not in left_out:
                found.append(test)
    return found


def codes_of(copy, programs):
    children = [subprocess.Popen(["timeout", "-k", "1", str(TEST_S), p], cwd=copy, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for p in programs]
    return [c.wait() for c in children]


def first_failure(copy, make, tests, jobs):
    """The first of the tests, run as many at a time, that fails, and by itself fails again; None: all pass."""
    for at in range(0, len(tests), jobs):
        group = ["build/tests/" + t for t in tests[at:at + jobs]]
        if run(make + group, BUILD_S, copy) != 0:
            return "the build of " + group[0]
        for test, code in zip(group, codes_of(copy, group)):
            if code == 124 or (code != 0 and codes_of(copy, [test]) != [0]):  # 124: it hangs
                return test.removeprefix("build/tests/")
    return None


def try_mutant(copy, make, m, jobs, known, near):
    target = os.path.join(copy, m.file)
    text = open(target, encoding="utf-8").read()
    before = code_of(copy, m.file)
    try:
        open(target, "w", encoding="utf-8").write(text[:m.start] + m.after + text[m.end:])
        if run(make + ["CFLAGS=-w", "programs"], BUILD_S, copy) != 0:
            return "broken", ""
        if code_of(copy, m.file) == before:
            return "same", ""
        tests = [t for t in tests_for(copy, m.file, near) if t not in known]
        failed = first_failure(copy, make + ["CFLAGS=-w"], tests, jobs)
        return ("killed", failed) if failed else ("survived", f"{len(tests)} tests")
    finally:
        open(target, "w", encoding="utf-8").write(text)
        if run(make + ["CFLAGS=-w", "programs"], BUILD_S, copy) != 0:
            sys.exit("the copy does not build any more")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--count", type=int, default=200)
    options.add_argument("--first", type=int, default=0, help="leave out so many")
    options.add_argument("--jobs", type=int, default=int(os.environ.get("AFTD_TEST_JOBS", os.cpu_count() or 1)))
    options.add_argument("--copy", default="build/mutants")
    options.add_argument("--only", default="", help="in files whose path contains this")
    options.add_argument("--near", action="store_true", help="the nearest tests alone: some survive that others kill")
    options.add_argument("--list", action="store_true", help="show the mutants, try none")
    options.add_argument("--lacks", default="", help="tests that fail anyway, with commas")
    a = options.parse_args()
    chosen = choose(a.seed, a.count, a.only)
    if a.list:
        for i, m in enumerate(chosen):
            print(f"{i:4} {m.file}:{m.line}: {m.kind}: {m.before!r} -> {m.after!r}")
        return
    compiler = "ccache gcc" if shutil.which("ccache") else "gcc"
    make = ["make", "--no-print-directory", f"-j{a.jobs}", "CC=" + compiler, "COMMIT=mutant"]
    prepare(a.copy, make + ["CFLAGS=-w"])
    tally = collections.Counter()
    survivors = []
    for i, m in list(enumerate(chosen))[a.first:]:
        began = time.monotonic()
        outcome, by = try_mutant(a.copy, make, m, a.jobs, set(a.lacks.split(",")), a.near)
        tally[outcome] += 1
        line = f"{m.file}:{m.line}: {m.kind}: {m.before!r} -> {m.after!r}"
        if outcome == "survived":
            survivors.append(line)
        print(f"{i:4} {outcome:8} {time.monotonic() - began:5.0f} s  {line}{'  by ' + by if by else ''}", flush=True)
    count = tally["killed"] + tally["survived"]
    print(f"{tally['killed']} of {count} were killed ({100 * tally['killed'] / max(count, 1):.1f} %); "
          f"{tally['broken']} did not compile, {tally['same']} compiled to the same code")
    for line in survivors:
        print("survived: " + line)


if __name__ == "__main__":
    main()
