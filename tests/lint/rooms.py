"""rooms.py [ROOT]: includes go along the tables at the top of server/README.md, and nothing goes in a circle.

The first table there says which folder may include which, the second which files may include a library's headers. A
file of the tree in no folder of the first table, or a row that no file needs any more, is an error as well, so
that both stay true. A circle is one between files, where foo.c, foo.h and foo_inner.h count as one, or between folders.
"""

import re
import sys
from fnmatch import fnmatch
from pathlib import Path

TREES = ("config", "weights", "engine", "server")
INCLUDE = re.compile(r'^\s*#\s*include\s+(?:"([^"]+)"|<([^>]+)>)')


def rows(text):
    """The tables of a document: lists of rows, each a list of cells."""
    tables, table = [], []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            table.append([cell.strip() for cell in line.strip("|").split("|")])
        elif table:
            tables.append(table[2:])  # without head and rule
            table = []
    return tables


def words(cell):
    """The names in backquotes."""
    return re.findall(r"`([^`]+)`", cell)


def files(root):
    """path -> [(line number, what it includes, whether in quotes)]"""
    found = {}
    for tree in TREES:
        for path in sorted((root / tree).rglob("*.[ch]")):
            includes = []
            for number, line in enumerate(path.read_text().splitlines(), 1):
                match = INCLUDE.match(line)
                if match:
                    includes.append((number, match[1] or match[2], match[1] is not None))
            found[path.relative_to(root).as_posix()] = includes
    return found


def room_of(path, rooms):
    """The longest folder, or file, of the table that the path lies in."""
    names = [name for name in rooms if path == name or (name.endswith("/") and path.startswith(name))]
    return max(names, key=len, default=None)


def unit_of(path):
    return re.sub(r"(_inner)?\.[ch]$", "", path)


def circles(graph):
    """The strongly connected parts of more than one node (Tarjan)."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for to in graph.get(node, ()):
            if to not in index:
                visit(to)
                low[node] = min(low[node], low[to])
            elif to in stack:
                low[node] = min(low[node], index[to])
        if low[node] == index[node]:
            part = [stack.pop()]
            while part[-1] != node:
                part.append(stack.pop())
            if len(part) > 1:
                found.append(sorted(part))

    for node in graph:
        if node not in index:
            visit(node)
    return found


def check(root):
    document = root / "server/README.md"
    tables = rows(document.read_text())
    # A folder may include itself, what its own row names, and of "every room" what its row names.
    rooms = {name: set(words(row[2])) for row in tables[0] for name in words(row[0])}
    libraries = {header: words(row[1]) for row in tables[1] for header in words(row[0])}
    sources = files(root)
    wrong, used, used_libraries = [], set(), set()
    units, folders = {}, {}
    for path, includes in sources.items():
        here = room_of(path, rooms)
        if here is None:
            wrong.append(f"{path}: lies in no folder of the table in server/README.md")
            continue
        for number, target, quoted in includes:
            where = f"{path}:{number}"
            if not quoted:
                for header, places in libraries.items():
                    if fnmatch(target, header):
                        used_libraries.add(header)
                        if not any(fnmatch(path, place) for place in places):
                            wrong.append(f"{where}: <{target}> belongs to {', '.join(places)}")
                continue
            if target not in sources:
                wrong.append(f'{where}: "{target}" is no header of {", ".join(TREES)}, written from the root')
                continue
            there = room_of(target, rooms)
            if unit_of(path) != unit_of(target):
                units.setdefault(unit_of(path), []).append(unit_of(target))
            if here == there:
                continue
            folders.setdefault(here, []).append(there)
            allowed = [name for name in rooms[here] if target == name or (name.endswith("/") and there == name)]
            used.update((here, name) for name in allowed)
            if not allowed:
                wrong.append(f"{where}: {here} may not include {target}: it may include"
                             f" {', '.join(sorted(rooms[here])) or 'nothing but itself'}")
    for part in circles(units):
        wrong.append(f"these files include each other in a circle: {', '.join(part)}")
    for part in circles(folders):
        wrong.append(f"these folders include each other in a circle: {', '.join(part)}")
    for here, names in rooms.items():
        for name in sorted(names - {to for frm, to in used if frm == here}):
            wrong.append(f"server/README.md: {here} may include {name}, which nothing there does")
    for header in sorted(set(libraries) - used_libraries):
        wrong.append(f"server/README.md: nothing includes <{header}>")
    return wrong


def main():
    wrong = check(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
    for line in wrong:
        print(f"lint: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
