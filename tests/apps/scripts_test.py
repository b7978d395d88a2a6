"""The scripts without a network and without an installation: a copy of them, with programs that only record their calls."""
import os
import re
import shlex
import shutil
import sys
import tarfile
import unittest

import advice
from programs import ProgramTest, SOURCE, main, run

NOTE = '#!/bin/sh\necho "${0##*/} $*" >> "$CALLS"\nexit 97\n'


class Scripts(ProgramTest):
    def setUp(self):
        super().setUp()
        self.root, self.calls = self.dir / 'copy', self.dir / 'calls'
        shutil.copytree(SOURCE / 'scripts', self.root / 'scripts')
        for name in ('apt-get', 'dpkg-source', 'sudo', 'cmake', 'ninja', 'python3', 'pip', 'g++', 'curl', 'wget'): self.program(name, NOTE)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(('Torch', 'CMAKE', 'NPU_TRAIN'))}
        self.env |= {'PATH': f'{self.dir / "bin"}:{self.env["PATH"]}', 'CALLS': str(self.calls)}

    def program(self, name, text, folder=None):
        path = (folder or self.dir / 'bin') / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def clang_format(self):
        for name in ('clang-format', 'clang-format-14'):
            self.program(name, '#!/bin/sh\necho "clang-format version 14.0.6"\necho "${0##*/} $*" >> "$CALLS"\n')

    # Runs a script in a folder outside the copy: a script that falls back to the current directory then reaches nothing else.
    def script(self, name, *args, **env): return run(self.root / 'scripts' / name, *args, cwd=self.dir, env=self.env | env)

    def called(self): return self.calls.read_text().splitlines() if self.calls.exists() else []

    def assertUntouched(self):
        """No program that installs, builds or downloads was called, and no file was created."""
        self.assertEqual(self.called(), [])
        self.assertEqual(sorted(p.name for p in self.root.iterdir()), ['scripts'])

    def test_help(self):
        for name in ('setup', 'get_data', 'test', 'check_torch', 'check_clang', 'check_aarch64', 'gpu_bundle', 'build_offline'):
            with self.subTest(name): self.assertIn(f'scripts/{name}', self.assertDone(self.script(name, '--help')))
        self.assertIn('--torch-index', self.script('setup', '--help')[1])
        self.assertUntouched()

    def test_setup_refuses_what_it_does_not_know_before_it_does_anything(self):
        self.assertFails(self.script('setup', '--presset', 'debug'), 2, "'--presset'", '--help')
        self.assertFails(self.script('setup', '--preset', 'relase'), 2, "'relase'", 'release', 'debug', 'asan', 'tsan')
        self.assertFails(self.script('setup', Torch_DIR=f'{self.dir}/nowhere'), 2, f'{self.dir}/nowhere', 'TorchConfig.cmake',
                         'share/cmake/Torch')
        self.assertUntouched()

    def test_what_is_for_other_machines_refuses_what_it_does_not_know(self):
        self.assertFails(self.script('check_torch', 'newest'), 2, "'newest'", '2.11.0')
        self.assertFails(self.script('gpu_bundle', '--outptu', 'x'), 2, "'--outptu'", '--help')
        self.assertFails(self.script('build_offline', 'dependencys'), 2, "'dependencys'", '--help')
        mine = self.dir / 'mine'
        mine.mkdir()
        self.assertFails(self.script('gpu_bundle', '--dependencies-only', mine), 1, str(mine), 'another folder')
        self.assertUntouched()

    @unittest.skipUnless(os.path.exists('/etc/debian_version'), 'not a Debian')
    def test_the_bundle_has_the_patched_sources_of_all_dependencies(self):
        self.program('apt-get', '#!/bin/sh\n. /etc/os-release\ncase $* in\n'
                     '  *indextargets*) echo "http://mirror $VERSION_CODENAME main" ;;\n'
                     '  *--download-only*) for name; do case $name in -* | *=* | source) ;; *) touch "${name}_1.0-2.dsc" ;; esac; done ;;\nesac\n')
        self.program('dpkg-source', '#!/bin/sh\nmkdir -p "$3/debian" "$3/.pc"\necho licence > "$3/debian/copyright"\necho patched > "$3/a.c"\n')
        bundle = self.dir / 'bundle'
        self.assertDone(self.script('gpu_bundle', '--dependencies-only', bundle))
        built = re.findall(r'^  dependency (\S+)', (SOURCE / 'scripts/build_offline').read_text(), re.M)
        self.assertIn('libwebp', built)
        self.assertEqual(sorted(p.name for p in bundle.glob('*_*')), sorted(f'{name}_1.0-2.tar.gz' for name in built))
        with tarfile.open(bundle / 'libwebp_1.0-2.tar.gz') as tar: self.assertEqual(tar.getnames(), ['libwebp', 'libwebp/a.c'])
        self.assertEqual((bundle / 'licences/libwebp.txt').read_text(), 'licence\n')

    def test_check_torch_without_an_index_is_skipped(self):
        self.program('python3', '#!/bin/sh\nexit 77\n')
        self.assertFails(self.script('check_torch', HOME=str(self.dir)), 77, 'skipped', '2.11.0')
        self.assertUntouched()

    def test_check_clang_without_the_compiler_is_skipped(self):
        self.assertFails(self.script('check_clang', 'clang++-0'), 77, 'skipped', 'clang++-0')
        self.assertFails(self.script('check_clang', '--al'), 2, "'--al'", '--help')

    def test_check_aarch64_without_the_compiler_is_skipped(self):
        self.assertFails(self.script('check_aarch64', 'aarch64-g++-0'), 77, 'skipped', 'aarch64-g++-0')
        self.assertFails(self.script('check_aarch64', '--all'), 2, "'--all'", '--help')
        self.assertUntouched()

    def test_build_offline_names_what_is_missing(self):
        code, out, err = self.script('build_offline', '--build-dir', self.dir / 'b', 'dependencies')
        self.assertEqual(code, 1)
        self.assertIn('contains no sources of zlib', out + err)
        self.assertIn('scripts/gpu_bundle', out + err)

    def test_the_wheel_of_torch_is_taken_by_its_checksum(self):
        """Everything except the script is faked: the fake Python records its arguments and the requirements that it is given."""
        self.program('g++', '#!/bin/sh\necho 12\n')
        self.program('cmake', '#!/bin/sh\necho cmake version 3.25.0\n')
        self.program('ccache', '#!/bin/sh\n')
        self.program('dpkg-query', '#!/bin/sh\nfor name; do echo "installed $name"; done\n')
        self.program('python', '#!/bin/sh\necho "python $*" >> "$CALLS"\n'
                               'case $1 in -c) exit "$ANOTHER_PYTHON" ;; -) exit "$NO_NETWORK" ;; esac\n'
                               'for word; do case $word in *.txt) cat "$word" >> "$CALLS" ;; esac; done\n', self.root / '.venv' / 'bin')
        cpu = '--index-url https://download.pytorch.org/whl/cpu'
        known = ('torch==2.13.0 --hash=sha256:6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b',)
        for name, args, another, no_network, index, hashes in (
                ('the default', (), 0, 0, cpu, known), ('without a network', (), 0, 1, '', known), ('another Python', (), 1, 0, cpu, ()),
                ('another index', ('--torch-index', 'https://example.org'), 0, 0, '--index-url https://example.org', ()),
                ("pip's index", ('--torch-index', 'pip'), 0, 0, '', ())):
            with self.subTest(name):
                self.calls.unlink(missing_ok=True)
                said = self.assertDone(self.script('setup', '--no-build', *args, ANOTHER_PYTHON=str(another), NO_NETWORK=str(no_network)))
                installs = [call for call in self.called() if ' pip install ' in call]
                if hashes: self.assertIn('--no-deps --require-hashes -r', installs.pop(0))
                self.assertEqual([call for call in self.called() if '--hash' in call], list(hashes))
                self.assertEqual('only the version of torch is verified' in said, not hashes)
                self.assertEqual(len(installs), 1)
                self.assertTrue(installs[0].endswith('torch==2.13.0'), installs)
                self.assertIn(index, installs[0])

    def test_train_stops_where_setup_does(self):
        self.assertFails(self.script('train', Torch_DIR=f'{self.dir}/nowhere'), 2, 'TorchConfig.cmake')
        self.assertFails(self.script('train', 'configs/quickstart.yaml', Torch_DIR=f'{self.dir}/nowhere'), 2, 'TorchConfig.cmake')
        self.assertUntouched()

    def test_train_hands_its_arguments_on(self):
        self.program('setup', '#!/bin/sh\nexit 0\n', self.root / 'scripts')
        self.program('train_app', '#!/bin/sh\nprintf "%s\\n" "$@"\nexit 7\n', self.root / 'build' / 'bin')
        quick = str(self.root / 'configs' / 'quickstart.yaml')
        for given, handed in (([], [quick]), (['trainer.max_epochs=1'], [quick, 'trainer.max_epochs=1']),
                              (['--resume', 'auto'], [quick, '--resume', 'auto']), (['my.yaml', 'a=b c'], ['my.yaml', 'a=b c']),
                              (['my.yml'], ['my.yml']), (['--help'], ['--help']), (['--list', 'models'], ['--list', 'models'])):
            with self.subTest(given):
                code, out, err = self.script('train', *given)
                self.assertEqual(code, 7, err)  # exits with the status of the program
                note, *rest = out.splitlines()
                self.assertIn('npu_tool and the libraries for your own programs are not built yet: scripts/setup builds them', note)
                self.assertEqual(rest, handed)

    def test_get_data_by_an_unknown_name(self):
        self.assertFails(self.script('get_data', 'cifar11'), 2, "'cifar11'", 'cifar10', 'cifar100')
        self.assertUntouched()

    def test_get_data_leaves_alone_what_is_there(self):
        there, other = self.dir / 'there', self.dir / 'other'
        for folder in (there, other): folder.mkdir()
        for name in ('train.bin', 'test.bin'): (there / name).touch()
        (other / 'letter').write_text('mine')
        self.assertIn('nothing to do', self.assertDone(self.script('get_data', 'cifar100', there)))
        self.assertFails(self.script('get_data', 'cifar100', other), 3, str(other), 'something else')
        self.assertEqual((other / 'letter').read_text(), 'mine')
        self.assertUntouched()

    def test_get_data_that_cannot_fetch_leaves_nothing(self):
        folder = self.dir / 'data' / 'cifar'
        self.assertFails(self.script('get_data', 'cifar10', folder), 3, 'cannot download', 'generated')
        self.assertEqual(len(self.called()), 1)
        self.assertTrue(self.called()[0].startswith('curl -q --proto =https --proto-redir =https --max-redirs '), self.called())
        self.assertRegex(self.called()[0], r' --max-filesize [1-9]\d+ .* -- https://')
        self.assertEqual(list((self.dir / 'data').iterdir()), [])

        self.program('curl', '#!/bin/sh\nwhile [ $# -gt 0 ]; do [ "$1" != --output ] || echo garbage > "$2"; shift; done\n')
        self.assertFails(self.script('get_data', 'cifar10', folder), 3, 'MD5')
        self.assertEqual(list((self.dir / 'data').iterdir()), [])

    def test_format_without_sources_formats_nothing_else(self):
        self.clang_format()
        (self.dir / 'mine.cpp').touch()
        code, out, err = self.script('format')
        self.assertEqual(code, 1)
        self.assertIn('contains no folder with sources', out + err)
        self.assertEqual(self.called(), ['clang-format-14 --version'])

    def advised(self):
        """(document, environment, script, arguments) of each line of code in the documents that runs a script."""
        for path in advice.files():
            if path.suffix != '.md': continue
            for line, _ in advice.paragraphs(path):
                match = re.fullmatch(r'\s*((?:[A-Za-z_]+=\S+ )*)scripts/([a-z_]+)((?: .*)?)', line)
                # Without arguments, these are names and not commands.
                if match is None or (match[2] in ('build_offline', 'launch', 'sanitize') and not match[3]): continue
                yield path.name, dict(pair.split('=', 1) for pair in match[1].split()), match[2], shlex.split(match[3])

    def test_every_line_that_a_text_advises_is_understood(self):
        """What would install, build or download only records its calls here: a line is understood if its script reaches them, or succeeds."""
        for name in ('aarch64-linux-gnu-g++', 'clang++', 'ctest', 'debootstrap', 'doxygen', 'git'): self.program(name, NOTE)
        self.clang_format()
        (self.root / 'src').mkdir()
        (self.root / 'src' / 'a.cpp').touch()
        torch = self.dir / 'libtorch/share/cmake/Torch'
        torch.mkdir(parents=True)
        (torch / 'TorchConfig.cmake').touch()
        self.program('npu_tool', NOTE, self.root / 'build' / 'bin')
        for name in ('gpu.json', 'peer.json'): (self.dir / name).write_text('{}')
        known, seen = {p.name for p in (SOURCE / 'scripts').iterdir()}, set()
        for place, env, name, words in self.advised():
            with self.subTest(place=place, line=f'{env} scripts/{name} {words}'):
                self.assertIn(name, known)
                seen.add(name)
                words = [{'PROGRAM': 'true', 'VERSION': '2.11.0', 'N': '2'}.get(w, w) for w in words]
                if 'Torch_DIR' in env: env['Torch_DIR'] = str(torch)
                if name == 'bench_peer':
                    code, out, err = run(sys.executable, SOURCE / 'scripts/bench_peer', *words, *([] if '--show' in words else ['--list']), cwd=self.dir)
                    self.assertTrue(code == 0 or '--show' in words and 'peer.json' in err or 'finds no GPU' in err, (code, out, err))
                    continue
                self.calls.unlink(missing_ok=True)
                code, out, err = self.script(name, *words, **env)
                self.assertTrue(code == 0 or self.called(), (code, out, err))
                self.assertNotEqual(code, 2, out + err)
        self.assertGreater(len(seen), 10, seen)

    def test_presets_that_a_text_advises_exist(self):
        presets = advice.presets()
        self.assertGreaterEqual(len(presets), 3)
        for tool, name in presets:
            with self.subTest(f'{tool} {name}'):
                words = {'cmake': ['cmake'], 'cmake --build': ['cmake', '--build', '.'], 'ctest': ['ctest']}[tool]
                code, out, err = run(shutil.which(words[0]), *words[1:], '--list-presets', cwd=SOURCE)
                self.assertIn(f'"{name}"', out + err)


if __name__ == '__main__': main()
