#!/usr/bin/env python3
"""Checks every #include of include/, src/ and models/ against the table of the rooms, cmake/rooms.txt.

  python3 tests/architecture/rooms_test.py [ROOT]        checks a tree
  python3 tests/architecture/rooms_test.py --self-test   plants each fault in a small tree and checks that it is found
"""
import re
import sys
import tempfile
from pathlib import Path

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)
# Headers of glibc, which other C libraries (musl) do not have.
OF_GLIBC = ("gnu/", "execinfo.h", "mcheck.h", "obstack.h", "argp.h", "fts.h", "error.h", "printf.h")
# Headers for single source files only: a user of the library must not need them.
PRIVATE = ("yaml-cpp/", "spdlog/", "hwy/", "nlohmann/", "CLI/", "jpeglib.h", "microhttpd.h", "pcre2.h", "spng.h", "utf8proc.h", "webp/", "xxhash.h",
           "zlib.h")
OF_LIBTORCH = ("ATen/", "c10/", "caffe2/", "torch/")
# Functions that read or write numbers in the program's locale, and the files that may use them.
BY_LOCALE = re.compile(r"\b(?:c10::str|v?snprintf|sscanf|strto(?:d|f|ld)|sto(?:d|f|ld)|atof)\(")
KNOWS_LOCALES = ("src/core/text.cpp", "src/data/jpeg.cpp")
# Name of a source in a page of docs/.
NAMED = re.compile(r"(?<![\w./-])((?:apps|include|src)/[a-z0-9_/]+\.[ch]pp)\b")


def read_rooms(root):
    """{room or part: rooms that it may include} of cmake/rooms.txt."""
    lines = (root / "cmake/rooms.txt").read_text().splitlines()
    return {room: below.split() for room, _, below in (line.partition(":") for line in lines if line and line[0] != "#")}


def plain_rooms(root):
    """What is compiled without libtorch: rooms, and parts of rooms ("tools/commands/check")."""
    lists = [*(root / "src").rglob("CMakeLists.txt"), root / "models/CMakeLists.txt"]
    rooms = [match for file in lists for match in re.findall(r"^npu_train_add_room\(\s*([a-z_/]+)([^)]*)", file.read_text(), re.M)]
    return [room for room, words in rooms if "WITHOUT_LIBTORCH" in words.split()]


def cycles(table):
    found, done = [], set()

    def visit(room, path):
        if room in path:
            found.append("a cycle: " + " -> ".join(path[path.index(room):] + [room]))
        elif room not in done:
            for other in table.get(room, []):
                visit(other, path + [room])
            done.add(room)

    for room in table:
        visit(room, [])
    return found


def room_of(path):
    """The room of a file. A file outside of all rooms (the facade trainer.hpp) counts as a part of engine."""
    parts = path.parts
    if parts[0] == "models":
        return "models"
    inner = parts[2:] if parts[1] == "npu_train" else parts[1:]
    return first_room("/".join(inner)) if len(inner) > 1 else "engine"


def part_of(path, table):
    """The part of a room, with a row of its own in the table, to which a path below src/ belongs; "" if there is none."""
    folders = path.split("/")[:-1]
    names = ("/".join(folders[:n]) for n in range(len(folders), 1, -1))
    return next((name for name in names if name in table and name != first_room(name)), "")


def first_room(path):
    """The room that a path below src/ or npu_train/ begins with: "io", "tools/align"."""
    parts = path.split("/")
    return "/".join(parts[:2]) if parts[0] == "tools" else parts[0]


def listed_by_cmake(root, path):
    lists = (folder / "CMakeLists.txt" for folder in path.parents)
    return any(str(path.relative_to(file.parent)) in (root / file).read_text().replace(")", " ").split() for file in lists if (root / file).is_file())


def check(root):
    table, plain = read_rooms(root), plain_rooms(root)
    problems = cycles(table)
    problems += [f"cmake/rooms.txt: there is no folder {room}" for room in table if not (root / (room if room == "models" else f"src/{room}")).is_dir()]
    problems += documented_rooms(root, table)
    problems += [f"{room} may include {other}, which is not a room" for room, others in table.items() for other in others if other not in table]
    files = sorted(f for folder in ("include", "src", "models") for f in (root / folder).rglob("*") if f.suffix in (".hpp", ".cpp", ".cu", ".h"))
    for file in files:
        path = file.relative_to(root)
        text = file.read_text(errors="replace")
        room, public = room_of(path), path.parts[0] == "include"
        if room not in table:
            problems.append(f"{path}: cmake/rooms.txt has no room {room}")
            continue
        if path.suffix == ".cpp" and not listed_by_cmake(root, path):
            problems.append(f"{path}: no CMakeLists.txt lists it, so it is not compiled")
        if path.parts[1] == "npu_train" and not text.startswith("///"):
            problems.append(f"{path}: does not begin with a /// comment that states its purpose")
        if str(path) not in KNOWS_LOCALES:
            problems += [f"{path}: uses {call[:-1]}, which depends on the program's locale; use str_cat() or core/text.hpp"
                         for call in BY_LOCALE.findall(text)]
        for kind, target in INCLUDE.findall(text):
            problems += judge(path, room, public, kind, target, table)
            if public and (root / "src" / target).is_file():
                problems.append(f"{path}: a public header includes {target}, which is not installed")
            if target.startswith(OF_LIBTORCH) and (room if public else "/".join(path.parts[1:-1])) in plain and room != "io":
                problems.append(f"{path}: includes {target}; {room} is compiled without libtorch")
    for file in sorted((root / "tests").rglob("*.[ch]pp")):  # no test of the library may link a tool
        room = first_room(str(file.relative_to(root / "tests").parent))
        if room in table and not room.startswith("tools/"):
            problems += [f"{file.relative_to(root)}: a test of the room {room} includes {target}" for _, target in INCLUDE.findall(file.read_text(errors="replace"))
                         if target.startswith("npu_train/tools/")]
    for file in sorted((root / "examples").rglob("*.[ch]pp")):  # our build gives them include folders that a user's program does not have
        problems += [f"{file.relative_to(root)}: an example includes {target}, which is not installed"
                     for kind, target in INCLUDE.findall(file.read_text()) if kind == '"' and not (file.parent / target).is_file()]
    problems += [f"{page.relative_to(root)}: names {path}, which does not exist" for page in sorted((root / "docs").rglob("*.md"))
                 for path in sorted(set(NAMED.findall(page.read_text()))) if not (root / path).is_file()]
    problems += thread_states(root, files)
    page = root / "docs/headers.md"
    listed = set(re.findall(r"`([a-z_0-9/]+\.hpp)`", page.read_text())) if page.is_file() else None
    if listed is not None:
        public = {re.sub(r"^tools/", "", str(h.relative_to(root / "include/npu_train"))) for h in (root / "include/npu_train").rglob("*.hpp")}
        problems += [f"docs/headers.md: {header} is not listed" for header in sorted(public - listed)]
        problems += [f"docs/headers.md: {header} is not a public header" for header in sorted(listed - public)]
    for folder in (root / "include/npu_train", root / "src/npu_train"):
        for header in sorted(folder.glob("*/**/*.hpp")):
            test = f"tests/{header.relative_to(folder).with_suffix('')}_test.cpp"
            if not (root / test).is_file():
                problems.append(f"{header.relative_to(root)}: {test} is missing")
    return problems


def documented_rooms(root, table):
    """What a page of docs/rooms says that its room may include is its row of the table."""
    problems = []
    for room, below in table.items():
        page = root / f"docs/rooms/{room.split('/')[-1]}.md"
        match = page.is_file() and re.search(r"\*\*May include:\*\* ([^.]*)\.", page.read_text())
        if match and part_of(f"{room}/x", table) == "":
            listed = [] if match[1] == "no other room" else match[1].replace("\n", " ").split(", ")
            if set(listed) != set(below):
                problems.append(f"{page.relative_to(root)}: lists other rooms than cmake/rooms.txt: {', '.join(sorted(set(listed) ^ set(below)))}")
    return problems


def thread_states(root, files):
    """Problems with thread-local state: the table in docs/rooms/core.md must list all of it. Other data must be passed as arguments."""
    page = root / "docs/rooms/core.md"
    section = page.read_text().partition("## Thread-local state")[2].partition("\n## ")[0] if page.is_file() else ""
    listed = {name for line in section.splitlines() if line.startswith("| `") for name in re.findall(r"`([a-z_0-9/]+\.cpp)`", line.split("|")[1])}
    found = {str(f.relative_to(root)).removeprefix("src/") for f in files if re.search(r"\bthread_local\b", f.read_text(errors="replace"))}
    return ([f"{name}: thread-local state that docs/rooms/core.md does not list; pass it as an argument" for name in sorted(found - listed)] +
            [f"docs/rooms/core.md: {name} has no thread-local state" for name in sorted(listed - found)])


def judge(path, room, public, kind, target, table):
    if target.startswith(".."):
        return [f"{path}: includes {target} by a relative path"]
    if target == "npu_train/trainer.hpp" and room != "engine":
        return [f"{path}: includes the facade trainer.hpp; only engine may include it"]
    first = first_room(target.removeprefix("npu_train/")) if target.startswith("npu_train/") or kind == '"' else None
    part = part_of("/".join(path.parts[1:]), table)
    if part and first in table and first not in table[part] and part_of(target, table) != part:
        return [f"{path}: {part}, a part of a room, includes {target}; it may include: {', '.join(table[part]) or 'none'}"]
    if first in table and first != room:
        if first not in table[room]:
            return [f"{path}: room {room} includes {target}; it may include: {', '.join(table[room]) or 'none'}"]
        if not target.startswith("npu_train/"):
            return [f"{path}: includes {target}, a private header of room {first}"]
    if target.startswith(OF_GLIBC) and str(path) != "src/core/c_library.cpp":
        return [f"{path}: includes <{target}>, a header of glibc alone"]
    if public and target == "torch/torch.h":
        return [f"{path}: a public header includes torch/torch.h; include the lightest header that suffices"]
    if public and target.startswith(PRIVATE):
        return [f"{path}: a public header includes {target}, which belongs in one source file"]
    return []


def self_test():
    table = ("# room: below\ncore:\nio: core\ndata: io core\ndata/pixels: core\ndevice: core\ntrain: io\nmodels: core\n"
             "engine: train\ntools/a: io\n")
    mistakes = {
        "it may include: core": ("src/io/a.cpp", '#include "npu_train/train/a.hpp"\n'),
        "room io includes device/x.hpp": ("src/io/a.cpp", '#include "device/x.hpp"\n'),
        "a private header of room core": ("src/io/a.cpp", '#include "core/x.hpp"\n'),
        "does not begin with": ("include/npu_train/io/a.hpp", "#pragma once\n"),
        "a_test.cpp is missing": ("include/npu_train/io/a.hpp", "/// A.\n"),
        "src/npu_train/io/b.hpp: tests/io/b_test.cpp is missing": ("src/npu_train/io/b.hpp", "/// B.\n"),
        "npu_train/core/private.hpp, which is not installed": ("include/npu_train/io/a.hpp", '/// A.\n#include "npu_train/core/private.hpp"\n'),
        "docs/headers.md: io/gone.hpp is not a public header": ("docs/headers.md", "`io/gone.hpp`"),
        "docs/index.md: names src/io/gone.cpp": ("docs/index.md", "`src/io/gone.cpp`, not src/io/a.cpp-1 or x/src/io/b.cpp"),
        "the facade": ("models/a.cpp", "#include <npu_train/trainer.hpp>\n"),
        "torch/torch.h": ("include/npu_train/io/a.hpp", "/// A.\n#include <torch/torch.h>\n"),
        "belongs in one source file": ("include/npu_train/io/a.hpp", "/// A.\n#include <nlohmann/json.hpp>\n"),
        "of glibc alone": ("src/io/a.cpp", "#include <gnu/libc-version.h>\n"),
        "depends on the program's locale": ("src/io/a.cpp", "double x = std::stod(text);\n"),
        "relative path": ("src/io/a.cpp", '#include "../core/x.hpp"\n'),
        "io/a.cpp: thread-local state": ("src/io/a.cpp", "thread_local int x = 0;\n"),
        "core.md: io/a.cpp has no thread-local state": ("docs/rooms/core.md", "## Thread-local state\n\n| `io/a.cpp` | a | b |\n"),
        "has no room more": ("src/more/a.cpp", "\n"),
        "a cycle": ("cmake/rooms.txt", "core: io\nio: core\n"),
        "no CMakeLists.txt lists it": ("src/io/forgotten.cpp", "\n"),
        "room io includes npu_train/tools/a/x.hpp": ("src/io/a.cpp", '#include "npu_train/tools/a/x.hpp"\n'),
        "room tools/a includes npu_train/device/x.hpp": ("src/tools/a/a.cpp", '#include "npu_train/device/x.hpp"\n'),
        "a test of the room io includes npu_train/tools/a/x.hpp": ("tests/io/a_test.cpp", '#include "npu_train/tools/a/x.hpp"\n'),
        "an example includes core/x.hpp": ("examples/a.cpp", '#include "core/x.hpp"\n'),
        "a is compiled without libtorch": ("include/npu_train/tools/a/a.hpp", "/// A.\n#include <ATen/core/Tensor.h>\n"),
        "core is compiled without libtorch": ("src/core/a.cpp", "#include <c10/util/Exception.h>\n"),
        "data/pixels, a part of a room, includes npu_train/io/a.hpp": ("src/data/pixels/a.cpp", '#include "npu_train/io/a.hpp"\n'),
        "data/pixels, a part of a room, includes data/x.hpp": ("src/data/pixels/a.cpp", '#include "data/x.hpp"\n'),
        "there is no folder gone": ("cmake/rooms.txt", table + "gone: core\n"),
        "docs/rooms/io.md: lists other rooms than cmake/rooms.txt: base": ("docs/rooms/io.md", "**May include:** base, core.\n"),
        "has no room tools/more": ("src/tools/more/a.cpp", "\n"),
    }
    missed = []
    for part, (name, text) in mistakes.items():
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for path, content in {"src/npu_train/core/private.hpp": "/// Private.\n", "tests/core/private_test.cpp": "",
                                  "cmake/rooms.txt": table,
                                  "models/CMakeLists.txt": "npu_train_add_room(models\n  SOURCES\n    a.cpp)\n",
                                  "src/core/CMakeLists.txt": "npu_train_add_room(core WITHOUT_LIBTORCH SOURCES a.cpp)\n",
                                  "src/tools/a/CMakeLists.txt": "npu_train_add_room(tools/a WITHOUT_LIBTORCH SOURCES a.cpp)\n",
                                  **{f"src/{room}/CMakeLists.txt": f"npu_train_add_room({room} SOURCES good.cpp a.cpp)\n"
                                     for room in ("io", "data", "data/pixels", "device", "train", "engine")},
                                  "src/io/good.cpp": '#include "npu_train/core/a.hpp"\n#include "io/b.hpp"\n#include <vector>\n', name: text}.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(content)
            found = check(root)
            if not any(part in problem for problem in found):
                missed.append(f"{part}: not found; found {found}")
            if any("good.cpp" in problem for problem in found) and part != "a cycle":
                missed.append(f"{part}: a correct file is reported: {found}")
    return missed


def main():
    if sys.argv[1:] == ["--self-test"]:
        problems = self_test()
    else:
        problems = check(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2])
    for problem in problems:
        print(problem)
    print("no problems" if not problems else f"{len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
