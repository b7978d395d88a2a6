"""Every command that a text of this project advises is accepted by its program. The commands are found in the texts, so that none is
forgotten. advised_runs_test.py runs them."""
import os
import re

import advice
from programs import ProgramTest, SOURCE, main, npu_tool, train_app

# Options of other programs that the texts mention.
FOREIGN = set('''--build --concatenate --sparse --multi-volume --local-dir --gc-sections --rank-report --ntasks --preset --prefix --test-dir --install --device --shm-size --ipc --args --build-dir --no-hello --output-on-failure --parallel --config
--no-as-needed --query-gpu --privileged --nproc-per-node --nproc_per_node --ulimit --msproftx --version --help --target --rerun-failed --gpus --rm --volume --format
--trace --env --group-add --strip-components --cpunodebind --membind --sort --silent --show-error --no-python --standalone --nnodes --node-rank --master-addr --master-port --nodes --ntasks-per-node --gpus-per-node --signal --gres --extract --gzip --cap-add --security-opt --id --memory --cpus --output --define-variable --static --framework --enable-shared --log --full --upgrade --install-for-all --backend-store-uri'''.split())


def answers(commands):
    """{command: (status, output and messages)}."""
    found = {}
    for command in dict.fromkeys(commands):  # many texts name the same command
        status, out, err = {'npu_tool': npu_tool, 'train_app': train_app}[command[0]](*command[1:], cwd=SOURCE)
        found[command] = status, out + err
    return found


def own_text(path):
    """Texts that users read: complete documents, and the literals of sources."""
    text = path.read_text(encoding='utf8', errors='replace')
    return '\n'.join(advice.literals(text)) if path.suffix in ('.cpp', '.hpp', '.inc') else text


class AdvisedCommands(ProgramTest):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.options = advice.Options()
        cls.commands = advice.commands(cls.options)

    def test_the_search_finds_what_is_known_to_be_there(self):
        places = lambda *words: self.commands.get(words, set())
        self.assertIn('README.md', places('npu_tool', 'memory', 'configs/quickstart.yaml', '--hbm', '32GiB'))
        self.assertIn('src/tools/doctor/facts/symptoms.tsv', places('npu_tool', 'bench', 'CONFIG', '--what', 'loader,step'))
        self.assertIn('src/tools/analyze/facts/advice.tsv', places('npu_tool', 'analyze', '--try', 'npu'))
        self.assertIn('src/tools/checklist/checklist.cpp', places('npu_tool', 'analyze', '--source', 'X', '--rewrite', 'OUT'))
        self.assertIn('src/tools/commands/train_app/train_main.cpp', places('train_app', 'configs/quickstart.yaml'))
        self.assertIn('docs/checkpoints.md', places('train_app', 'CONFIG', '--verify-resume', '--leave-out', 'optimizer'))
        self.assertGreater(len(self.commands), 100)
        self.assertEqual(advice.words_of(' CONFIG --what data and --what step show', False, None, {'--what': True}), ['CONFIG', '--what', 'data'])

    def test_options_and_values_are_read_as_the_programs_read_them(self):
        jobs = {}
        for command, places in self.commands.items():
            if command[0] != 'npu_tool' or len(command) < 2: continue
            words = [w.replace('D', 'cpu') if w == 'D' else '2' if w == 'N' or before == '--nproc' else w
                     for before, w in zip(command, command[1:])]
            if len(words) == 1 and not words[0].startswith('-'):  # the text names a subcommand without calling it
                self.assertIn(words[0], [*self.options.subcommands, 'SUBCOMMAND'], places)
                continue
            jobs[' '.join(command) + '   in ' + ', '.join(sorted(places))] = ('npu_tool', '--parse-only', *words)
        self.assertGreater(len(jobs), 60)
        of = answers(jobs.values())
        named_only = lambda words: re.search(r'1 required \w+ missing', of[words][1]) and words[-1].startswith('--')  # such as 'npu_tool analyze --source: what ...'
        self.assertEqual({name: of[words][1] for name, words in jobs.items() if of[words][0] != 0 and not named_only(words)}, {})

    def test_keys_of_configurations_exist(self):
        jobs = {}
        for command, places in self.commands.items():
            overrides = [w for w in command[1:] if advice.KEY_VALUE.match(w) and not w.startswith('--') and not re.search(r'[A-Z]{3}|key=value|=X$|=<', w)]
            configs = [w for w in command[1:] if w.startswith('configs/')]
            if not overrides and not configs: continue
            for config in configs: self.assertTrue((SOURCE / config).exists(), (command, places))
            lists = [f'{m.group(1)}=[{{name: random_crop}}]' for m in (re.match(r'(.*)\.\d+\.\w+=', w) for w in overrides) if m]  # an entry: its list
            config = SOURCE / (configs[0] if configs else 'configs/quickstart.yaml')
            if '--model' in command: overrides.insert(0, f'model={{name: {command[command.index("--model") + 1]}}}')
            for key, model in {'model.allow_code=': 'torchscript', 'model.tower=': 'clip_tiny'}.items():  # the model of the checkpoint in the command
                if '--checkpoint' in command or '--from' in command:
                    if any(w.startswith(key) for w in overrides): overrides.insert(0, f'model={{name: {model}}}')
            jobs[' '.join(command) + '   in ' + ', '.join(sorted(places))] = ('train_app', config, *lists, *overrides, '--print-config')
        self.assertGreater(len(jobs), 20)
        of = answers(jobs.values())
        self.assertEqual({name: of[words][1] for name, words in jobs.items() if of[words][0] != 0}, {})

    def test_options_of_train_app_exist(self):
        for command, places in self.commands.items():
            if command[0] != 'train_app': continue
            for word in command[1:]:
                if word.startswith('--'): self.assertIn(word.split('=')[0], self.options.of['train_app',], (command, places))

    def test_every_test_that_a_text_names_exists(self):
        named = {(path.name, name) for path in SOURCE.glob('docs/**/*.md') for name in re.findall(r"ctest [^`]*-R '\^([\w.]+)\$'", own_text(path))}
        self.assertGreater(len(named), 10)
        for path, name in sorted(named):
            room, file = name.split('.')[:2]
            self.assertTrue([*SOURCE.glob(f'tests/**/{room}/{file}_test.*')], f'{path} names the test {name}')

    def test_every_option_that_a_text_names_belongs_to_a_program_or_a_script(self):
        scripts = '\n'.join(p.read_text(errors='replace') for folder in ('scripts', 'benchmarks', '.ci') for p in (SOURCE / folder).rglob('*') if p.is_file())
        known = self.options.every() | set(re.findall(r'--[a-z][\w-]+', scripts)) | FOREIGN
        unknown = {}
        for path in advice.files():
            if path.suffix not in ('.md', '.tsv', '.cpp', '.hpp') or 'scan/facts' in str(path): continue
            for option in re.findall(r'(?<![\w-])--[a-z][a-z-]*[a-z](?![\w*-])', own_text(path)):
                if option not in known: unknown.setdefault(option, set()).add(str(path.relative_to(SOURCE)))
        self.assertEqual(unknown, {})

    def test_every_section_of_bench_that_a_text_names_exists(self):
        allowed = re.search(r'separated by commas:([^]]*?)--model', npu_tool('bench', '--help')[1], re.S).group(1)
        sections = set(re.findall(r'[a-z-]+', allowed))
        for path in advice.files():
            for names in re.findall(r'--what[ =]([a-z][a-z-]*(?:,[a-z-]+)*)', own_text(path)):
                for name in names.split(','): self.assertIn(name, sections, path)

    def test_every_key_that_a_hint_names_exists(self):
        sources = '\n'.join(p.read_text(errors='replace') for p in advice.files() if p.suffix in ('.cpp', '.hpp'))
        fields = set(re.findall(r'(?:field|field<\w+>|section|synonym|add|set)\(\s*"(\w+)"', sources)) | set(re.findall(r'\.(\w+) =', sources))
        roots = 'trainer|data|optimizer|lr_scheduler|checkpoint|grad_scaler|average|amp|dump|sim_npu|output|early_stopping|task|model'
        unknown = {}
        for path in advice.files():
            if path.suffix not in ('.md', '.tsv', '.cpp') or 'scan/facts' in str(path) or path.name == 'weight_rules.cpp' or path.name.endswith('_family.cpp'): continue  # names of tensors
            for key in re.findall(rf'(?<![\w./"-])((?:{roots})(?:\.[a-z_]+)+)(?![\w(/])', own_text(path)):
                parts = key.split('.')
                if parts[-1] in ('yaml', 'json', 'csv', 'html', 'cpp', 'hpp', 'md', 'safetensors', 'pth', 'pt', 'log', 'py', 'sh', 'txt', 'pkl', 'so', 'bin', 'onnx', 'om', 'atc', 'aipp'): continue
                if parts[1] not in fields: unknown.setdefault(key, set()).add(str(path.relative_to(SOURCE)))
        self.assertEqual(unknown, {})

    def test_scripts_and_their_options_exist(self):
        found = 0
        for path in advice.files():
            for script, rest in re.findall(r'(?<![\w/])(scripts/[\w.]*\w)((?: +--?[a-z][\w-]*)*)', own_text(path)):
                file = SOURCE / script
                if script.startswith('scripts/lib') or file.is_dir(): continue
                self.assertTrue(file.exists() and os.access(file, os.X_OK), (script, path))
                text = file.read_text()
                for option in rest.split():
                    found += 1
                    hands_on = script in ('scripts/test', 'scripts/train')  # these scripts pass their options to ctest and train_app
                    self.assertTrue(hands_on or option in text, (script, option, path))
        self.assertGreater(found, 5)


if __name__ == '__main__': main()
