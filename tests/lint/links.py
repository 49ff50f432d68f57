"""links.py [ROOT]: what the documents link to exists, and every document can be reached from README.md.

Links are those between [] and () to files of the repository, with the headings behind a #. Documents are the *.md files
that git tracks, or would.
"""

import re
import subprocess
import sys
from pathlib import Path

LINK = re.compile(r"\]\(([^()\s]+)\)")
CODE = re.compile(r"^```.*?^```$|^    .*?$|`[^`\n]*`", re.M | re.S)


def documents(root):
    command = ["git", "-C", str(root), "ls-files", "-co", "--exclude-standard", "*.md"]
    names = subprocess.run(command, capture_output=True, check=True, text=True).stdout.splitlines()
    return {name: (root / name).read_text() for name in names if (root / name).exists()}


def anchors(text):
    """The names of a document's headings, as GitHub makes them."""
    found = set()
    for heading in re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), re.M):
        name = re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "", heading)).lower().replace(" ", "-")
        number = 1
        while (name if number == 1 else f"{name}-{number - 1}") in found:
            number += 1
        found.add(name if number == 1 else f"{name}-{number - 1}")
    return found


def check(root):
    texts = documents(root)
    wrong, leads = [], {name: set() for name in texts}
    for name, text in texts.items():
        for link in LINK.findall(CODE.sub("", text)):
            if re.match(r"[a-z]+:", link):
                continue
            path, _, anchor = link.partition("#")
            target = (root / name).parent / path if path else root / name
            if not target.exists() or root.resolve() not in target.resolve().parents:
                wrong.append(f"{name}: there is no {link}")
                continue
            to = target.resolve().relative_to(root.resolve()).as_posix()
            leads[name].add(to)
            if anchor and anchor not in anchors(texts.get(to, "")):
                wrong.append(f"{name}: {to} has no heading #{anchor}")
    reached, ahead = set(), ["README.md"]
    while ahead:
        name = ahead.pop()
        if name in texts and name not in reached:
            reached.add(name)
            ahead += leads[name]
    return wrong + [f"{name}: no link from README.md leads there" for name in sorted(texts.keys() - reached)]


def main():
    wrong = check(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
    for line in wrong:
        print(f"lint: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
