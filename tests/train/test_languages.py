"""Texts in languages, of packages made here."""
import json
import random
import struct
import subprocess

import pytest

from aft_train import languages

GERMAN = ["Das ist der erste Satz einer Seite.", "Und hier steht ein zweiter, der länger ist."]
ENGLISH = ["This is the first sentence of a page.", "And here is a second one that is longer."]
PAGE = "<page><title>x</title><p>{}</p><code>if (a) b();</code><p>{}</p></page>"
SOURCE = "# licence\n" * 20 + "".join(f"def function_{i}(a, b):\n    return a + {i} * b\n\n" for i in range(40))


def package(cache, name, files):
    """A real package with these {path: text or bytes}."""
    tree = cache / name
    control = f"Package: {name}\nVersion: 1:2.0-3\nArchitecture: all\nMaintainer: A <a@b.c>\nDescription: none\n"
    for path, text in {"DEBIAN/control": control, **files,
                       f"usr/share/doc/{name}/copyright": "License: GPL-2+\n text\n\nLicense: MIT\n text\n"}.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_bytes(text if isinstance(text, bytes) else text.encode())
    subprocess.run(["dpkg-deb", "-b", tree, cache / f"{name}_1%3a2.0-3_all.deb"], check=True, capture_output=True)


def catalogue(messages):
    """What msgfmt makes of {English: translation}."""
    texts = [(k.encode(), v.encode()) for k, v in sorted(messages.items())]
    first, data, places = 28 + 16 * len(texts), b"", ([], [])
    for side, where in enumerate(places):
        for both in texts:
            where.append(struct.pack("<2I", len(both[side]), first + len(data)))
            data += both[side] + b"\0"
    head = struct.pack("<7I", 0x950412DE, 0, len(texts), 28, 28 + 8 * len(texts), 0, 0)
    return head + b"".join(places[0] + places[1]) + data


@pytest.fixture
def cache(tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    help_of = "usr/share/help/{}/x/index.page".format
    package(cache, "one", {help_of("de"): PAGE.format(*GERMAN), help_of("C"): PAGE.format(*ENGLISH)})
    package(cache, "two", {help_of("de"): PAGE.format(ENGLISH[0], "Ein dritter Satz, den niemand gelernt hat."),
                           help_of("C"): PAGE.format(ENGLISH[0], "A third sentence that nobody has learnt.")})
    package(cache, "code", {"usr/lib/x.py": SOURCE, "usr/lib/x.txt": SOURCE})
    package(cache, "more", {"usr/lib/y.py": SOURCE.replace("function", "other")})
    monkeypatch.setattr(languages, "HELP", {"train": "one", "test": "two"})
    monkeypatch.setattr(languages, "OFFICE", "")
    monkeypatch.setattr(languages, "MANUALS", "")
    monkeypatch.setattr(languages, "SOURCES", {"Python": (r"\.py$", "code", "more")})
    monkeypatch.setattr(languages, "VALID_SHARE", 0.0)
    return cache


def rows(path):
    """(text, label) of each"""
    return [(row["text"], row["label"]) for row in map(json.loads, path.read_text().splitlines())]


def test_texts_are_learnt_and_held_out_by_package(tmp_path, cache):
    assert languages.main([str(tmp_path / "set"), "--cache", str(cache)]) == 0
    table = {name: rows(tmp_path / "set" / f"{name}.jsonl") for name in ("train", "valid", "test", "test-20")}
    of = lambda name, label: {text for text, has in table[name] if has == label}
    assert of("train", "German") == set(GERMAN) and of("train", "English") == {ENGLISH[1]}  # the other is in both
    assert of("test", "German") == {"Ein dritter Satz, den niemand gelernt hat."}
    assert of("test", "English") == {"A third sentence that nobody has learnt."}
    assert all("function_" in text for text in of("train", "Python"))
    assert of("test", "Python") and all("other_" in text for text in of("test", "Python"))
    assert table["valid"] == []
    assert len(table["train"]) == 3 + len(of("train", "Python"))
    assert len(table["test-20"]) == len(table["test"])
    for (short, label), (text, same) in zip(table["test-20"], table["test"]):
        assert short in text and label == same and 17 <= len(short.encode()) <= 20
    packages = (tmp_path / "set" / "packages.tsv").read_text().splitlines()
    assert "two\t1:2.0-3\tGPL-2+, MIT" in packages and len(packages) == 4


def test_a_part_begins_with_a_word_and_ends_with_a_character():
    rng = random.Random(0)
    parts = {languages.part_of("Größe über alles, auch Öl", 9, rng) for _ in range(50)}
    assert len(parts) > 2 and all(len(p.encode()) in (8, 9) for p in parts)
    assert {p.split()[0] for p in parts} <= {"Größe", "über", "alles,", "auch"}
    assert languages.part_of("short", 20, rng) == "short"


def test_what_programs_say_is_learnt_in_both_languages(tmp_path, cache):
    said = {"": "Content-Type: text/plain; charset=UTF-8\n\nA head that nobody is meant to ever learn.",
            "Save": "Sichern",
            "window\4This _file is no longer where it was.": "Diese _Datei ist nicht mehr, wo sie war.",
            "<b>One of all</b> the files was lost.\0%d of all the files were lost.":
                "Eine der Dateien ging verloren.\0%d der Dateien gingen verloren.\n\nSie sind fort, für immer."}
    package(cache, "one", {"usr/share/locale/de/LC_MESSAGES/one.mo": catalogue(said),
                           "usr/share/locale/xx/LC_MESSAGES/one.mo": catalogue({"a": "A language that nobody has."})})
    assert languages.main([str(tmp_path / "set"), "--cache", str(cache)]) == 0
    learnt = {label: {text for text, has in rows(tmp_path / "set" / "train.jsonl") if has == label}
              for label in ("German", "English")}
    assert learnt["German"] == {"Diese Datei ist nicht mehr, wo sie war.", "Eine der Dateien ging verloren.",
                                "%d der Dateien gingen verloren.", "Sie sind fort, für immer.", *GERMAN}
    assert learnt["English"] == {"This file is no longer where it was.", "One of all the files was lost.",
                                 "%d of all the files were lost.", ENGLISH[1]}


def test_manual_pages_are_read_as_sentences():
    text = (".TH LS 1\n.SH NAME\nls \\- Verzeichnisinhalte auflisten, so wie sie sind.\n.PP\n"
            "\\fBls\\fP zeigt alle Dateien an.\n")
    assert list(languages.of_roff(text)) == ["ls - Verzeichnisinhalte auflisten, so wie sie sind.",
                                             "ls zeigt alle Dateien an."]


def test_what_is_not_to_be_had_is_said(tmp_path, cache, capsys, monkeypatch):
    monkeypatch.setattr(languages, "HELP", {"train": "one", "test": "no-such-package-anywhere"})
    assert languages.main([str(tmp_path / "set"), "--cache", str(cache)]) == 2
    assert "no-such-package-anywhere, expected Debian 12" in capsys.readouterr().err
    assert not (tmp_path / "set").exists()
    (tmp_path / "there").mkdir()
    assert languages.main([str(tmp_path / "there")]) == 2
    assert "exists, expected a new name" in capsys.readouterr().err
