"""scripts/budget and scripts/prove, in a copy of the scripts in which the programs that they call are small."""
import shutil
import subprocess
import sys

from programs import ProgramTest, SOURCE, main, run

TESTS = '<testsuite>{}</testsuite>'
CASE = '<testcase name="{}" time="{}" status="run"/>'


class Budget(ProgramTest):
    def setUp(self):
        super().setUp()
        (self.dir / 'scripts').mkdir()
        shutil.copy(SOURCE / 'scripts/budget', self.dir / 'scripts')
        for folder in ('build/Testing', '.ci'): (self.dir / folder).mkdir(parents=True)
        (self.dir / 'build/Testing/phases.tsv').write_text('install\t50\nbuild\t700\ntests\t900\n')
        (self.dir / 'build/.ninja_log').write_text('# ninja log v5\n0\t9000\t0\tCMakeFiles/npu_train_io.dir/a.cpp.o\tx\n'
                                                   '0\t3000\t0\tCMakeFiles/npu_train_io.dir/a.cpp.o\tx\n0\t2500\t0\ttests/CMakeFiles/test_io.dir/b.cpp.o\tx\n')
        self.ran({'io.npy': 40.0, 'apps.long': 200.0, 'apps.grown': 90.0})

    def ran(self, seconds):
        (self.dir / 'build/Testing/tests.xml').write_text(TESTS.format(''.join(CASE.format(*case) for case in seconds.items())))

    def budget(self, *args): return run(sys.executable, self.dir / 'scripts/budget', *args)

    def test_phases_parts_and_dearest_tests(self):
        out = self.assertDone(self.budget('--limit', '1650'))
        for row in (r'build +700', r'compile: library and programs +3 ', r'compile: tests +2 ', r'test: drivers of the programs +290 ', r'test: units +40 '):
            self.assertRegex(out, row)
        self.assertLess(out.index('apps.long'), out.index('apps.grown'))
        self.assertIn('budget: 1650 s of 2400 s', out)

    def test_over_the_limit_what_grew_is_listed_whatever_the_speed_of_the_machine(self):
        self.ran({'io.npy': 40.0, 'apps.long': 200.0, 'apps.grown': 90.0, 'io.short': 0.4})
        self.assertDone(self.budget('--record'))
        self.assertNotIn('io.short', (self.dir / '.ci/budget.tsv').read_text())
        # Everything takes twice as long, and one test takes ten times as long.
        (self.dir / 'build/Testing/phases.tsv').write_text('install\t100\nbuild\t1400\ntests\t1800\n')
        self.ran({'io.npy': 80.0, 'apps.long': 400.0, 'apps.grown': 900.0})
        code, out, err = self.budget('--limit', '3000')
        self.assertEqual(code, 1, out + err)
        self.assertIn('3300 s are over the limit of 3000 s. This machine takes 2.00 times the recorded seconds', out)
        grew = out[out.index('What grew'):]
        self.assertRegex(grew, r'apps\.grown +\+720 s')
        self.assertNotIn('apps.long', grew)

    def test_without_times(self):
        (self.dir / 'build/Testing/tests.xml').unlink()
        self.assertFails(self.budget(), 1, 'run scripts/test first')


class Prove(ProgramTest):
    """The proof compiler.aarch64 runs a script that counts its calls."""

    def setUp(self):
        super().setUp()
        (self.dir / 'scripts').mkdir()
        for folder in ('docs', 'src'): (self.dir / folder).mkdir()
        shutil.copy(SOURCE / 'scripts/prove', self.dir / 'scripts')
        self.script('echo called >> ../calls; echo the kernels compile and produce the same bits')
        (self.dir / 'src/a.cpp').write_text('1')
        self.git('init', '--quiet')
        self.commit()

    def git(self, *args):
        subprocess.run(['git', '-C', self.dir, '-c', 'user.name=a', '-c', 'user.email=a@example.org', *args], check=True, capture_output=True)

    def commit(self):
        self.git('add', '--all')
        self.git('commit', '--quiet', '--message', 'a')

    def script(self, text):
        path = self.dir / 'scripts/check_aarch64'
        path.write_text('#!/bin/sh\n' + text.replace('../calls', str(self.dir / '.git/calls')) + '\n')
        path.chmod(0o755)

    def calls(self):
        path = self.dir / '.git/calls'
        return len(path.read_text().splitlines()) if path.exists() else 0

    def prove(self, *args): return run(sys.executable, self.dir / 'scripts/prove', *args)

    def page(self): return (self.dir / 'docs/proof.md').read_text()

    def test_a_proof_is_repeated_only_for_other_sources(self):
        only = ('--only', 'compiler.aarch64')
        self.assertIn('compiler.aarch64: good', self.assertDone(self.prove(*only)))
        self.assertRegex(self.page(), r'\| `compiler.aarch64` \| .* \| the kernels compile and produce the same bits \| \d+ \| `\w{7}` \| \d+ cores, .* \|\n')
        (self.dir / 'other.md').write_text('1')
        self.commit()  # changes only a file on which the proof does not depend, and the page itself
        self.assertDone(self.prove(*only))
        self.assertEqual(self.calls(), 1)
        self.assertDone(self.prove(*only, '--again'))
        self.assertEqual(self.calls(), 2)
        (self.dir / 'src/a.cpp').write_text('2')
        self.assertFails(self.prove(*only), 1, 'uncommitted changes')
        self.commit()
        self.assertDone(self.prove(*only))
        self.assertEqual(self.calls(), 3)

    def test_a_failure_is_kept_and_tried_again(self):
        self.script('echo called >> ../calls; echo the kernels compile and produce the same bits; exit 3')
        self.commit()
        only = ('--only', 'compiler.aarch64')
        for calls in (1, 2):
            code, out, _ = self.prove(*only)
            self.assertEqual((code, self.calls()), (1, calls), out)
            self.assertIn('**failed**: the kernels compile and produce the same bits, exit status 3', self.page())
        self.script('echo something else')
        self.commit()
        self.assertEqual(self.prove(*only)[0], 1)
        self.assertIn('**failed**: no result', self.page())
        self.script('exit 77')
        self.commit()
        self.assertIn('skipped', self.assertDone(self.prove(*only)))

    def test_what_ctest_says_is_the_measured_value(self):
        (self.dir / 'scripts/check_clang').write_text('#!/bin/sh\nexec ctest --test-dir tests\n')
        (self.dir / 'scripts/check_clang').chmod(0o755)
        (self.dir / 'tests').mkdir()
        for tests, said in (('add_test(a "true")\n', '100% tests passed'),
                            ('add_test(a "true")\nadd_test(b "false")\n', r'\*\*failed\*\*: 50% tests passed, 1 tests failed out of 2, exit status 8')):
            (self.dir / 'tests/CTestTestfile.cmake').write_text(tests)
            (self.dir / '.gitignore').write_text('Testing\n')
            self.commit()
            self.assertEqual(self.prove('--only', 'compiler.clang')[0], 0 if 'false' not in tests else 1)
            self.assertRegex(self.page(), rf'\| `compiler.clang` \| .* \| {said}')

    def test_no_time_and_unknown_names(self):
        self.assertDone(self.prove('--hours', '0', '--only', 'compiler.aarch64'))
        self.assertEqual(self.calls(), 0)
        self.assertFails(self.prove('--only', 'compiler.arm'), 2, "'compiler.arm'", 'compiler.aarch64', 'mutants')

    def mutants(self, planting):
        """scripts/mutants with the faults a, b, c, which notes the names that it is given and then runs `planting`."""
        (self.dir / 'scripts/mutants').write_text(
            "import sys\nif '--list' in sys.argv:\n    for n in 'abc': print(n, 'io.npy', 'what')\n    sys.exit()\n"
            f"open('{self.dir}/.git/planted', 'a').write(' '.join(sys.argv[1:]) + '\\n')\n{planting}\n")
        self.commit()

    def test_faults_are_planted_in_rotation(self):
        planted = self.dir / '.git/planted'
        self.mutants("fates = {'a': 'killed', 'b': 'SURVIVED: what', 'c': 'does not compile:'}\n"
                     "for n in sys.argv[1:]: print(n, 'io.npy', fates[n])\nsys.exit(1)")
        self.assertEqual(self.prove('--only', 'mutants')[0], 1)
        self.assertRegex(self.page(), r'- SURVIVED at `\w{7}` on [\d-]+: b\n')
        self.assertRegex(self.page(), r'- UNPLANTED at `\w{7}` on [\d-]+: c\n')
        self.assertRegex(self.page(), r'- killed at `\w{7}` on [\d-]+: a\n')
        self.prove('--only', 'mutants')
        self.assertEqual(planted.read_text().splitlines(), ['a b c', 'b c'])

    def test_tests_that_fail_without_a_fault(self):
        self.mutants("for n in sys.argv[1:]: print(n, 'io.npy', 'killed')")
        self.assertDone(self.prove('--only', 'mutants'))
        (self.dir / 'src/a.cpp').write_text('2')
        self.mutants("print('io.npy fails even without a fault')\nsys.exit(1)")
        self.assertEqual(self.prove('--only', 'mutants')[0], 1)
        self.assertRegex(self.page(), r'- killed at `\w{7}` on [\d-]+: a, b, c\n')


if __name__ == '__main__': main()
