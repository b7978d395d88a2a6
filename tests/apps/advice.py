"""Finds the commands of this project that its texts advise: documents, hints, tables of facts, texts of --help, comments of scripts."""
import re
import shlex

from programs import SOURCE, npu_tool, train_app

PROGRAMS = ('npu_tool', 'train_app')
FOLDERS = ('src', 'apps', 'include', 'models', 'plugins', 'configs', 'examples', 'benchmarks', 'scripts', 'docs')
TEXTS = {'.cpp', '.hpp', '.inc', '.md', '.tsv', '.yaml', '.py', ''}
FILE = re.compile(r"^[\w./<>-]*\.(yaml|yml|json|html|csv|pth|pt|safetensors|jpg|png|log|npy|sh)$")
PLACEHOLDER = re.compile(r'^([A-Z][A-Z0-9_]*)(\.[a-z]+)?$')
KEY_VALUE = re.compile(r'^[a-z]\w*(\.\w+)*=')


def files():
    out = [SOURCE / 'README.md', SOURCE / 'CONTRIBUTING.md']
    for folder in FOLDERS:
        out += [p for p in sorted((SOURCE / folder).rglob('*')) if p.is_file() and p.suffix in TEXTS and 'mutants' not in str(p) and '__pycache__' not in str(p)]
    return out


def literals(text):
    """The string literals of C++. Neighbours are joined, with X for a value that the program inserts between two of them."""
    text = re.sub(r'"\s*\n\s*"', '', text)
    text = re.sub(r'"\s*[,+]\s*(?:std::string\()?[A-Za-z_][\w.:>()\[\]-]*\)?\s*[,+]\s*"', 'X', text)
    return [m.group(1).replace('\\"', '"').replace('\\n', '\n').replace('\\\\', '\\') for m in re.finditer(r'(?<!\')"((?:[^"\\\n]|\\.)*)"', text)]


def paragraphs(path):
    """The pieces of a file: [(text, whether it is a line of a shell)]."""
    text = path.read_text(encoding='utf8', errors='replace')
    if path.suffix in ('.cpp', '.hpp', '.inc'):
        comments = re.sub(r'\n\s*///? ?', ' ', '\n'.join(line for line in text.splitlines() if line.lstrip().startswith('//')))
        return [(t, False) for t in literals(text)] + [(comments, False)]
    if path.suffix != '.md': return [(line, False) for line in text.splitlines()]
    out, shell = [], []
    for language, block in re.findall(r'^ *```(\w*)\n(.*?)^ *```', text, re.M | re.S):
        for line in re.sub(r'\\\n', ' ', block if language in ('', 'sh', 'bash') else '').splitlines():
            for part in re.split(r'&&|;', re.sub(r'\s+#.*', '', line)):
                shell.append((part, bool(re.match(r'\s*(\$ |[A-Z_]+=\S+ )*([\w.-]+/)*(npu_tool|train_app) ', part))))  # otherwise it is a line of an output
    prose = re.sub(r'^ *```.*?^ *```', '', text, flags=re.M | re.S)
    out += [(code.replace('\n', ' '), True) for code in re.findall(r'`([^`]+)`', prose)]
    return shell + out + [(re.sub(r'`[^`]+`', '', prose).replace('\n', ' '), False)]


def presets():
    """{(tool, preset)} of the CMake presets that the documents use."""
    text = '\n'.join(p.read_text() for p in files() if p.suffix == '.md')
    return set(re.findall(r'\b(cmake --build|cmake|ctest) --preset[ =]([a-z]+)', text))


class Options:
    """The options that each program and subcommand accepts according to its own --help: {option: whether a value follows}."""
    def __init__(self):
        self.of = {('train_app',): self.read(train_app('--help')[1]), ('npu_tool',): self.read(npu_tool('--help')[1])}
        self.subcommands = re.findall(r'^  ([a-z-]+)\s', npu_tool('--help')[1].split('\nOptions:\n')[1], re.M)
        for name in self.subcommands:
            text = npu_tool(name, '--help')[1]
            self.of['npu_tool', name] = self.read(text)
            if name.startswith('-'): continue
            for inner in re.findall(r'^  ([a-z][a-z-]*)\s', text.partition('\nOptions:\n')[2], re.M):  # npu_tool data show
                self.of['npu_tool', name] |= self.read(npu_tool(name, inner, '--help')[1])

    @staticmethod
    def read(text):
        out = {}
        for line in text.splitlines():
            if match := re.match(r'^\s+(?:-\w,)?(--[\w-]+(?:,--[\w-]+)*)(?:\{[^}]*\})?(\s(?:TEXT|INT|FLOAT|UINT|NUMBER|[A-Z]{3,}:)\S*)?', line):
                for name in match.group(1).split(','): out[name] = bool(match.group(2))
        return out

    def every(self): return set().union(*self.of.values())


def words_of(rest, shell, options, known):
    """The words of the command at the start of `rest`: in a line of a shell all words, in prose only words that cannot be prose."""
    try: tokens = shlex.split(rest) if shell else re.findall(r"'[^']*'|\S+", rest)
    except ValueError: tokens = rest.split()
    out, value = [], False
    for token in tokens:
        if token in ('|', '<', '>', '&', '2>&1', ')') or (token == '...' and not shell): break
        closes = shell and token.endswith(')') and '(' not in token  # <(...)
        bare = token[:-1] if closes else token if shell else token.strip("'\"").rstrip('.,;:)"\'')
        ends = closes or not shell and (token[-1] in '.,;:)' or token == '')
        if token in ('...', '[key=value', '...]'): continue
        option = bare.startswith('--')
        is_word = value or option or PLACEHOLDER.match(bare) or KEY_VALUE.match(bare) or FILE.match(bare) or re.match(r'^[a-z]+_\w+$', bare) or token.startswith("'")
        if not shell and (not is_word or not bare): break
        out.append(bare)
        value = option and '=' not in bare and known.get(bare, False)
        if ends: break
    return out


def commands(options):
    """{(program, words ...): places}."""
    out = {}
    pattern = re.compile(r'(?<![\w/.-])(?:[\w./$-]*/)?(npu_tool|train_app)(?![\w.-])')
    for path in files():
        for text, shell in paragraphs(path):
            for match in pattern.finditer(text):
                program, rest = match.group(1), text[match.end():]
                if not rest.startswith(' ') or (match.start() > 0 and text[match.start() - 1] == '`' and not shell): continue
                known = options.of[program,]
                first = re.match(r' +([a-z-]+)', rest)
                if program == 'npu_tool' and first and not first.group(1).startswith('-'):
                    if not shell and first.group(1) not in options.subcommands: continue
                    known = options.of.get((program, first.group(1)), {})
                    rest = rest[first.end():]
                    words = [first.group(1)] + (words_of(rest, shell, options, known) if rest[:1] in (' ', '') else [])
                else:
                    words = words_of(rest, shell, options, known)
                if words: out.setdefault((program, *words), set()).add(str(path.relative_to(SOURCE)))
    return out
