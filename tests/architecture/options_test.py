"""Checks that each long option in the --help of train_app and of npu_tool's subcommands is named by a test that starts that command.

options_test.py [--self-test] BIN SOURCE
"""
import re
import subprocess
import sys
from pathlib import Path

OF_EVERY_COMMAND = {"--help"}
TESTS = {".py", ".cpp", ".hpp"}


def help_of(*words):
    return subprocess.run([*words, "--help"], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, check=True).stdout


def options_in(text):
    """The long options that a --help lists: those at the beginnings of its lines, not those that an explanation mentions."""
    lines = re.findall(r"^ {2,12}((?:-\w, *|--[\w-]+,)*--[\w-]+)", text, re.M)
    return {option for line in lines for option in re.findall(r"--[\w-]+", line)} - OF_EVERY_COMMAND


def subcommands_in(text):
    """The commands of the lists that --help prints after the options."""
    return re.findall(r"^  ([a-z][a-z-]*)\s", text.partition("\nOptions:\n")[2], re.M)


def options_of(program, *words):
    """{"npu_tool data check": options} of a program and of its subcommands."""
    text = help_of(str(program), *words)
    out = {" ".join((program.name, *words)): options_in(text)}
    for name in subcommands_in(text): out |= options_of(program, *words, name)
    return out


def named_in(text): return set(re.findall(r"(?<![\w-])--[a-z][\w-]*", text))


def starts(command, text):
    """Whether a test has the last word of the command in quotes, as in npu_tool('plan', ...), or calls a function of that name."""
    word = re.escape(command.split()[-1])
    return re.search(rf"['\"(]{word}['\" ]|\b{word}\(", text) is not None


def problems_of(options, texts):
    for command, known in options.items():
        named = set().union(*(named_in(text) for text in texts if starts(command, text)))
        for option in sorted(known - named):
            yield f"{command} {option}: no file under tests/ that starts this command names it; assert in one what it does"


def problems(programs, source):
    texts = [path.read_text(errors="replace") for path in sorted((source / "tests").rglob("*"))
             if path.suffix in TESTS and path.resolve() != Path(__file__).resolve()]
    options = options_of(programs / "train_app") | options_of(programs / "npu_tool")
    if (count := sum(map(len, options.values()))) < 200: yield f"--help was not understood: only {count} options"
    yield from problems_of(options, texts)


def self_test():
    text = """Positionals:
  config TEXT                 a file

Options:
  -h,     --help              Print this help message and exit
          --samples INT [200] number of samples, as --least does
  -o,--out TEXT Excludes: --in
          --a,--alias{true}
                              --this is a line of its explanation

Speed:
  bench                       measure --this

Machines:
  verify-resume               prove it
"""
    if (found := options_in(text)) != {"--samples", "--out", "--a", "--alias"}: yield f"options: {found}"
    if (found := subcommands_in(text)) != ["bench", "verify-resume"]: yield f"subcommands: {found}"
    texts = ["npu_tool('plan', '--top-k=3', 'x--top')", "npu_tool('bench', '--only-of-bench')"]
    found = [problem.split(":")[0] for problem in problems_of({"t plan": {"--top-k", "--top", "--only-of-bench"}}, texts)]
    if found != ["t plan --only-of-bench", "t plan --top"]: yield f"problems: {found}"


if __name__ == "__main__":
    found = [*self_test()] if sys.argv[1] == "--self-test" else [*problems(Path(sys.argv[1]), Path(sys.argv[2]))]
    print(*found, f"{len(found)} problems", sep="\n")
    sys.exit(1 if found else 0)
