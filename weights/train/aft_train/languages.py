"""Write texts in 47 languages as tables to classify, human and formal ones, of Debian 12: aft-train languages FOLDER.

apt-get fetches 490 MB of them. FOLDER then has train.jsonl, valid.jsonl and test.jsonl, test-20.jsonl, which is 20
bytes of each text of test.jsonl, and packages.tsv, which tells of each package its version and what of its licence is
in its copyright file. Human languages are those of the manuals of GNOME's and MATE's programs, of LibreOffice and of
translated manual pages, and, to learn from, of what those programs say; formal ones are sources that packages ship. No
package of the test is learnt, nor any text of it as a whole; a text that is there in two languages is in neither.
"""
import argparse
import collections
import csv
import gzip
import html
import random
import re
import struct
import subprocess
import sys
import tarfile
import zlib
from pathlib import Path

from .corpus import new_folder
from .texts import write_texts

LEARNT, HELD_OUT, VALID_SHARE = 16000, 500, 0.02  # texts of a language at most; of those learnt, what watches the run
SHORTEST, LONGEST, SOURCE = 24, 400, (60, 400)  # bytes of a sentence; of a text of a source
SHORT = 20  # bytes of the texts of test-20.jsonl
LICENCE_MOST = 120  # characters

LANGUAGES = {
    "Bulgarian": "bg", "Catalan": "ca", "Chinese": "zh zh_CN zh_TW", "Croatian": "hr", "Czech": "cs", "Danish": "da",
    "Dutch": "nl", "English": "C en", "Basque": "eu", "Finnish": "fi", "French": "fr", "Galician": "gl", "German": "de",
    "Greek": "el", "Hungarian": "hu", "Indonesian": "id", "Italian": "it", "Japanese": "ja", "Korean": "ko",
    "Latvian": "lv", "Polish": "pl", "Portuguese": "pt pt_BR", "Romanian": "ro", "Russian": "ru", "Serbian": "sr",
    "Slovenian": "sl", "Spanish": "es", "Swedish": "sv", "Turkish": "tr", "Ukrainian": "uk"}
LABEL = {code: label for label, codes in LANGUAGES.items() for code in codes.split()}
HELP = {  # packages with /usr/share/help
    "train": """gnome-user-docs gnome-devel-docs evolution-common aisleriot anjuta-common evince-common gnucash-docs
        seahorse gthumb-data eog gmpc-data gnote mate-calc-common gnome-boxes gnome-applets-data epiphany-browser-data
        iagno onboard-common gnome-dictionary glabels-data totem-common caja-actions-common gnome-sudoku
        gnome-mahjongg mate-control-center-common frogr-data file-roller cheese-common mate-user-guide five-or-more
        burner-common gnome-chess baobab accerciser vinagre gnome-mines gnome-clocks gnome-robots quadrapassel
        four-in-a-row swell-foop gnome-taquin deja-dup hitori rhythmbox-data mate-applets-common""",
    "test": """orca shotwell-common gedit-common gnome-terminal-data gnome-calculator gnome-system-monitor pitivi
        zenity-common brasero-common gnumeric-doc simple-scan ocrfeeder font-manager-common gnome-nibbles lightsoff
        gnome-tetravex"""}
# libreoffice-help-, and manpages-: learnt
OFFICE = "ca cs da de el en-us es eu fi fr gl hu id it ja ko nl pl pt pt-br ru sl sv tr zh-cn"
MANUALS = "cs da de es fi fr hu id it ja nl pl pt-br ro ru sr sv tr uk zh"
SOURCES = {  # language: (files, packages to learn, packages held out)
    "C": (r"\.[ch]$", "gnulib openafs-modules-dkms libglib2.0-dev libsdl2-dev libuv1-dev",
          "v4l2loopback-dkms lttng-modules-dkms"),
    "C++": (r"\.(hpp|cpp|h)$|/Eigen/|/c\+\+/", "libboost1.74-dev libeigen3-dev libcgal-dev libstdc++-12-dev",
            "nlohmann-json3-dev libspdlog-dev"),
    "CSS": (r"\.css$", "libjs-bootstrap4 libjs-bootstrap libjs-bootstrap5 libjs-jquery-ui",
            "libjs-codemirror python3-matplotlib"),
    "Emacs Lisp": (r"\.el(\.gz)?$", "elpa-magit elpa-org", "elpa-helm elpa-company"),
    "Go": (r"\.go$", "golang-golang-x-net-dev golang-golang-x-text-dev golang-google-grpc-dev",
           "golang-github-spf13-cobra-dev golang-github-gorilla-mux-dev"),
    "HTML": (r"\.html?$", "libreoffice-help-en-us debian-policy libxml2-doc", "maint-guide developers-reference"),
    "JavaScript": (r"(?<!min)\.js$",
                   "node-lodash node-express node-async node-acorn node-moment node-postcss node-terser",
                   "node-commander node-yargs node-marked"),
    "JSON": (r"\.json$", "iso-codes node-lodash", "node-yargs node-marked node-commander nlohmann-json3-dev"),
    "Perl": (r"\.p[lm]$", "libmojolicious-perl libdbix-class-perl perl-modules-5.36 libcatalyst-perl", "libmoose-perl"),
    "PHP": (r"\.php$", "php-symfony-console wordpress phpmyadmin phpunit", "php-twig"),
    "Python": (r"\.py$", "python3-django python3-requests python3-jinja2 python3-twisted mercurial-common",
               "python3-flask python3-click python3-tornado"),
    "roff": (r"/man/man\d/.*\.gz$", "manpages git-man", "manpages-dev"),
    "Ruby": (r"\.rb$", "ruby-rack ruby-sequel ruby-activesupport ruby-actionpack ruby-rspec-core",
             "ruby-sinatra ruby-nokogiri"),
    "Rust": (r"\.rs$", "librust-serde-dev librust-regex-dev librust-tokio-dev librust-syn-dev librust-hyper-dev",
             "librust-clap-3-dev librust-nom-dev"),
    "Shell": (r"\.sh$|/completions/|/functions$|/hooks/|/scripts/|/grub\.d/|/bin/",
              "bash-completion initramfs-tools-core grub-common devscripts git", "dracut-core"),
    "TeX": (r"\.(tex|sty|cls|def)$", "texlive-latex-base texlive-pictures", "texlive-latex-recommended"),
    "XML": (r"help/C/.*\.(page|docbook|xml)$", "gnome-user-docs gnome-devel-docs evolution-common",
            "orca gnumeric-doc gedit-common")}
MARKS = {"HTML": "<", "XML": "<", "roff": "\n.", "TeX": "\\"}  # without which a part of a source is prose
SCRIPT = re.compile(r"#! ?(/usr)?/bin/(env )?(ba)?sh\b")

DROPPED = re.compile(r"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<!DOCTYPE.*?(?:\]\s*)?>|<\?.*?\?>|<(code|screen|info|license|"
                     r"legalnotice|programlisting|script|style|head|bookinfo|articleinfo)\b.*?</\1>", re.S | re.I)
BLOCK = re.compile(r"</?(?:p|para|simpara|title|item|desc|td|th|entry|term|li|h[1-6]|div|member|caption)\b[^>]*>", re.I)
ROFF_LINE = re.compile(r"^[.'](?:[A-Z]{1,2}|\\\").*$", re.M)
ROFF_ESCAPE = re.compile(r"\\f(?:\[\w*\]|\(..|.)|\\[&/,%~ ]|\\s[-+]?\d")
MNEMONIC = re.compile(r"\(_\w\)|_(?=\w)")  # marks the letter of a menu's entry that chooses it
SENTENCE = re.compile(r"(?<=[.!?:;])\s+|(?<=[。！？])")


def fetched(package, cache):
    """The .deb of a package. Raises ValueError where it is not to be had."""
    if not list(cache.glob(package + "_*.deb")):
        subprocess.run(["apt-get", "download", "-qq", package], cwd=cache, stderr=subprocess.DEVNULL, check=False)
    found = sorted(cache.glob(package + "_*.deb"))
    if not found:
        raise ValueError(f"apt-get download does not find {package}, expected Debian 12 and its archive")
    return found[-1]


def contents(package, cache, wanted):
    """(path, bytes) of a package's files whose path a pattern knows."""
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", fetched(package, cache)], stdout=subprocess.PIPE) as p:
        with tarfile.open(fileobj=p.stdout, mode="r|") as tar:
            for member in tar:
                if member.isfile() and re.search(wanted, member.name):
                    data = tar.extractfile(member).read()
                    yield member.name, gzip.decompress(data) if member.name.endswith(".gz") else data


def files(package, cache, wanted):
    """The same as text."""
    for path, data in contents(package, cache, wanted):
        yield path, data.decode(errors="ignore")


def sentences(blocks):
    for block in blocks:
        for sentence in SENTENCE.split(re.sub(r"\s+", " ", block).strip()):
            letters = sum(c.isalpha() for c in sentence)
            if SHORTEST <= len(sentence.encode()) <= LONGEST and letters > 0.7 * len(sentence.replace(" ", "")):
                yield sentence


def of_markup(text):
    text = BLOCK.sub("\x00", DROPPED.sub("\x00", text))
    return sentences(re.sub(r"&\w+;", " ", html.unescape(re.sub(r"<[^>]+>", "", text))).split("\x00"))


def of_roff(text):
    text = ROFF_ESCAPE.sub("", ROFF_LINE.sub("\x00", text)).replace("\\-", "-").replace("\\(aq", "'")
    return sentences(part for part in text.split("\x00") if "\\" not in part)


def of_catalogue(data):
    """(English, translation), sentences of each, of the messages in a catalogue as msgfmt writes it."""
    count, *tables = struct.unpack_from("<3I", data, 8)
    for i in range(count):
        both = []
        for table in tables:
            size, at = struct.unpack_from("<2I", data, table + 8 * i)
            text = data[at:at + size].decode(errors="ignore").rpartition("\x04")[2]  # before that is its context
            both.append(list(of_markup(MNEMONIC.sub("", text).replace("\0", "<p>").replace("\n\n", "<p>"))))
        if size != 0 and i > 0:  # the first one is the catalogue's head
            yield both


def of_source(text, rng):
    """Parts of a source of a few lines each; what comes first is mostly about its licence."""
    lines = text.splitlines()[20:]
    while lines:
        part, most = "", rng.randint(*SOURCE)
        while lines and len(part.encode()) < most:
            part += lines.pop(0) + "\n"
        if SOURCE[0] <= len(part.strip().encode()) and len(part.encode()) <= 2 * SOURCE[1] and "\t" * 40 not in part:
            yield part.strip("\n")


def part_of(text, most, rng):
    """Some characters of a text from a word's beginning on, of `most` bytes in all."""
    words = [m.end() for m in re.finditer(r"^\s*|\s+", text)]
    start = rng.choice([at for at in words if len(text[at:].encode()) >= most] or [0])
    return text[start:].encode()[:most].decode(errors="ignore")


def human(part, cache):
    """{label: {sentence}} of all packages with manuals."""
    found = collections.defaultdict(set)
    for package in HELP[part].split():
        for path, text in files(package, cache, r"share/help/[^/]+/.*\.(page|docbook|xml)$"):
            label = LABEL.get(re.search(r"/help/([^/]+)/", path)[1])
            if label:
                found[label].update(of_markup(text))
    if part == "train":
        for package in HELP[part].split():
            for path, data in contents(package, cache, r"share/locale/[^/]+/LC_MESSAGES/.*\.mo$"):
                label = LABEL.get(re.search(r"/locale/([^/]+)/", path)[1])
                for english, translated in of_catalogue(data) if label else []:
                    found["English"].update(english)
                    found[label].update(translated)
        for code in OFFICE.split():
            for _, text in files(f"libreoffice-help-{code}", cache, r"\.html$"):
                found[LABEL[code.split("-")[0]]].update(of_markup(text))
        for code in MANUALS.split():
            wanted = r"/man/zh_CN[^/]*/man\d/" if code == "zh" else r"/man/[^/]+/man\d/"
            for _, text in files(f"manpages-{code}", cache, wanted):
                found[LABEL[code.split("-")[0]]].update(of_roff(text))
    return found


def formal(part, cache, rng):
    found = collections.defaultdict(set)
    for label, (wanted, *packages) in SOURCES.items():
        for package in packages[part == "test"].split():
            for path, text in files(package, cache, wanted):
                if "/bin/" not in path or SCRIPT.match(text):
                    found[label].update(part for part in of_source(text, rng) if MARKS.get(label, "") in part)
    return found


def packages():
    """The names of all packages, each once."""
    of_sources = " ".join(" ".join(parts) for _, *parts in SOURCES.values())
    return sorted({*" ".join(HELP.values()).split(), *(f"libreoffice-help-{code}" for code in OFFICE.split()),
                   *(f"manpages-{code}" for code in MANUALS.split()), *of_sources.split()})


def licence(package, cache):
    """What the copyright file names, in short."""
    for _, text in list(files(package, cache, rf"usr/share/doc/{re.escape(package)}/copyright$")):
        named = sorted(set(re.findall(r"^License: *(\S[^\n]*)", text, re.M)))
        if not named:
            known = re.findall(r"common-licenses/([\w.-]+)|Creative Commons ([\w -]+)|(MPL[- ]?v?[\d.]+)", text)
            named = sorted({next(filter(None, k)).strip(". ") for k in known})
        return ", ".join(named)[:LICENCE_MOST]
    return ""


def tables(cache):
    """{file: its rows of (text, label)}"""
    rng = random.Random(0)
    learnt, held = (human(part, cache) | formal(part, cache, rng) for part in ("train", "test"))
    labels = sorted(learnt.keys() | held.keys())
    counts = collections.Counter(text for label in labels for text in learnt[label] | held[label])
    several = {text for text, count in counts.items() if count > 1}  # a translation has left some as they were
    rows = {"train": [], "valid": [], "test": []}
    for label in labels:
        seen = sorted(learnt[label] - several)
        new = sorted(held[label] - learnt[label] - several)
        if not seen or not new:
            raise ValueError(f"no text in {label} to {'hold out' if seen else 'learn'}, expected some in its packages")
        rng.shuffle(seen)
        rng.shuffle(new)
        watched = round(len(seen[:LEARNT]) * VALID_SHARE)
        rows["valid"] += [(text, label) for text in seen[:watched]]
        rows["train"] += [(text, label) for text in seen[watched:LEARNT]]
        rows["test"] += [(text, label) for text in new[:HELD_OUT]]
    rows["test-20"] = [(part_of(text, SHORT, rng), label) for text, label in rows["test"]]
    return rows


def write(folder, cache):
    told = []
    for package in packages():
        version = fetched(package, cache).name.split("_")[1].replace("%3a", ":")
        told.append((package, version, licence(package, cache)))
    with open(folder / "packages.tsv", "w", newline="", encoding="utf-8") as f:
        csv.writer(f, delimiter="\t", lineterminator="\n").writerows(told)
    for name, rows in tables(cache).items():
        path = folder / f"{name}.jsonl"
        write_texts(path, rows)
        print(f"{path.name}: {len(rows):,} rows, crc32 {zlib.crc32(path.read_bytes()):08x}")


def parser(prog="aft-train languages"):
    p = argparse.ArgumentParser(prog=prog, description="Write texts in 47 languages as tables of texts and labels.")
    p.add_argument("folder", help="a new folder, for the tables")
    p.add_argument("--cache", metavar="DIR", type=Path, help="keep the packages there (they are not kept)")
    return p


def main(argv=None, name="aft_train.languages"):
    args = parser(name).parse_args(argv)
    folder = Path(args.folder)
    try:
        with new_folder(folder) as made:
            cache = args.cache or made.parent
            cache.mkdir(parents=True, exist_ok=True)
            write(made, cache)
    except (OSError, ValueError, tarfile.TarError) as e:
        print(f"{name}: {folder}: {e}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
