"""npu_tool doctor: this machine in words and as JSON, codes and symptoms, logs on stdin, and what a user may do wrong."""
import json
import os
import pathlib
import shutil
import subprocess

from programs import BIN, FULL, ProgramTest, main, needs_sim_npu, npu_tool, run

USAGE, DEVICE, FAILED = 2, 4, 7


def piped(data, *args, timeout=300):
    """(exit code, stdout, stderr) with `data`, bytes or pieces of bytes, on stdin."""
    p = subprocess.Popen([str(BIN / 'npu_tool'), 'doctor', *map(str, args)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    for piece in [data] if isinstance(data, bytes) else data: p.stdin.write(piece)
    out, err = p.communicate(timeout=timeout)
    return p.returncode, out.decode(), err.decode()


class WithoutLibtorch(ProgramTest):
    """Copies of the programs whose libtorch is missing or broken."""
    def setUp(self):
        super().setUp()
        self.bin, self.lib = self.dir / 'bin', self.dir / 'torch' / 'lib'
        self.bin.mkdir()
        self.lib.mkdir(parents=True)
        self.torch = next(pathlib.Path(line.split()[2]).parent for line in self.assertDone(run('ldd', BIN / 'npu_tool_torch')).splitlines()
                          if 'libtorch_cpu.so' in line)
        shutil.copy(BIN / 'npu_tool', self.bin)
        (self.bin / 'npu_tool_torch').symlink_to((BIN / 'npu_tool_torch').resolve())

    def program(self, content):
        """Replaces npu_tool_torch."""
        (self.bin / 'npu_tool_torch').unlink(missing_ok=True)
        (self.bin / 'npu_tool_torch').write_bytes(content)
        (self.bin / 'npu_tool_torch').chmod(0o755)

    def moved(self):
        """A libtorch that is no longer in the folder of the build."""
        content = (BIN / 'npu_tool_torch').read_bytes()
        self.assertIn(b'torch/lib', content)
        self.program(content.replace(b'torch/lib', b'torch/xyz'))  # changes its run path

    def tool(self, *args, **env):
        return run(self.bin / 'npu_tool', *args, env={**{k: v for k, v in os.environ.items() if k != 'LD_LIBRARY_PATH'}, **env})

    def assertExplains(self, *parts, **env):
        """The doctor fails with a finding that contains the parts, and makes the checks that need no libtorch; other commands explain the same."""
        code, out, err = self.tool('doctor', '--json', '--output', self.dir, **env)
        self.assertEqual(code, FAILED, out + err)
        found = {(f['area'], f['name']): f for f in json.loads(out)['findings']}
        libtorch = found['system', 'libtorch']
        self.assertEqual(libtorch['verdict'], 'fail')
        for part in parts: self.assertIn(str(part), ' '.join((libtorch['finding'], libtorch['evidence'], libtorch['fix'])))
        self.assertLessEqual({('system', 'operating system'), ('cpu', 'model'), ('cpu', 'cores'), ('memory', 'memory'), ('disk', 'space')}, set(found))
        self.assertEqual(found['hello', 'devices']['verdict'], 'fail')
        self.assertFalse({('cpu', 'kernels'), ('cpu', 'threads')} & set(found))  # only libtorch knows these
        return libtorch

    def test_npu_tool_does_not_link_libtorch(self):
        for program, links in (('npu_tool', False), ('npu_tool_torch', True)):
            needed = self.assertDone(run('ldd', BIN / program))
            for library in ('libtorch', 'libc10'): self.assertEqual(library in needed, links, needed)

    def test_a_libtorch_that_is_gone(self):
        self.moved()
        wanted = json.loads(self.assertDone(npu_tool('doctor', '--versions', '--json')))['components']
        wanted = next(row['here'] for row in wanted if row['component'] == 'PyTorch').partition('+')[0]
        self.assertExplains('npu_tool_torch cannot start: libtorch_cpu.so, libc10.so not found', 'searched: LD_LIBRARY_PATH (/no/such/folder)', 'torch/xyz',
                            f'libtorch {wanted}', f'pip install torch=={wanted}', 'export LD_LIBRARY_PATH=', LD_LIBRARY_PATH='/no/such/folder')
        self.assertIn('libtorch_cpu.so', self.tool('doctor', '--no-hello')[1])
        for words in (('--version',), ('doctor', '--nonsense'), ('checklist', self.config()), ('bench',)):
            result = self.tool(*words)
            self.assertFails(result, DEVICE, '[npu_tool] npu_tool_torch cannot start: libtorch_cpu.so', 'npu_tool doctor checks the rest')
            self.assertEqual(result[1], '')
        # If LD_LIBRARY_PATH finds the library, everything works.
        self.assertIn('npu_train ', self.assertDone(self.tool('--version', LD_LIBRARY_PATH=str(self.torch))))
        found = json.loads(self.tool('doctor', '--no-hello', '--json', '--output', self.dir, LD_LIBRARY_PATH=str(self.torch))[1])['findings']
        self.assertIn('kernels', [f['name'] for f in found])

    def test_options_without_libtorch(self):
        self.moved()
        self.assertIn('AI CPU', self.assertDone(self.tool('doctor', '--explain', '507018')))
        self.assertFails(self.tool('doctor', '--explain', 'EI0099'), USAGE, 'EI0099')
        self.assertIn('torch-npu==', self.assertDone(self.tool('doctor', '--setup')))
        rows = {r['component']: r['here'] for r in json.loads(self.assertDone(self.tool('doctor', '--versions', '--json')))['components']}
        self.assertEqual(rows['PyTorch'], '')
        self.assertRegex(rows['Python'], r'^\d')
        found = json.loads(self.tool('doctor', self.config(), '--device', 'npu', '--json', '--html', self.dir / 'page.html', '--write-env',
                                     self.dir / 'env.sh', OMP_NUM_THREADS='many')[1])['findings']
        found = {(f['area'], f['name']): f for f in found}
        self.assertEqual(found['hello', 'npu']['verdict'], 'fail')
        self.assertIn('was not read', found['system', 'configuration']['finding'])
        self.assertIn('libtorch_cpu.so', (self.dir / 'page.html').read_text())
        self.assertIn('OMP_NUM_THREADS', (self.dir / 'env.sh').read_text())
        code, out, _ = self.tool('doctor', '--dist', '--json')
        self.assertEqual(code, FAILED)
        found = {(f['area'], f['name']): f['verdict'] for f in json.loads(out)['findings']}
        self.assertEqual((found['system', 'libtorch'], found['collectives', 'start'], found['dist', 'loopback']), ('fail', 'fail', 'ok'))

    def test_a_truncated_libtorch(self):
        with open(self.torch / 'libtorch_cpu.so', 'rb') as whole: (self.lib / 'libtorch_cpu.so').write_bytes(whole.read(1_000_000))
        self.assertExplains(self.lib / 'libtorch_cpu.so', 'is damaged', 'truncated: 1000000 bytes', 'install libtorch', LD_LIBRARY_PATH=str(self.lib))

    def test_a_libtorch_of_another_version(self):
        shutil.copy(self.torch / 'libc10.so', self.lib / 'libtorch_cpu.so')  # a library that has few of the symbols
        (self.lib.parent / 'version.py').write_text("__version__ = '2.1.0'\n")
        self.assertExplains('not the version', f'libtorch 2.1.0 was found in {self.lib}', 'it was built with libtorch', 'undefined symbol',
                            LD_LIBRARY_PATH=str(self.lib))

    def test_a_program_that_is_missing_or_damaged(self):
        self.program((BIN / 'npu_tool_torch').read_bytes()[:5000])
        self.assertExplains('npu_tool_torch is damaged', 'cmake --install')
        (self.bin / 'npu_tool_torch').unlink()
        self.assertExplains('there is no', 'npu_tool_torch', 'cmake --install')
        self.assertFails(self.tool('--help'), DEVICE, 'there is no')

    def test_a_device_that_crashes_does_not_end_the_report(self):
        self.program(b'#!/bin/sh\n[ "$1" = --parse-only ] || kill -SEGV $$\n')
        self.assertExplains('ended by signal 11', '--no-hello')
        self.program(b'#!/bin/sh\n[ "$1" = --parse-only ] || { echo "$0 $*"; exit 5; }\n')  # output and status must be those of npu_tool
        self.assertEqual(self.tool('doctor', '--no-hello')[:2], (5, f'{self.bin}/npu_tool_torch doctor --no-hello\n'))


class Doctor(ProgramTest):
    def doctor(self, *args, **env):
        return npu_tool('doctor', '--output', self.dir, *args, env={**os.environ, **env})

    def findings(self, *args, code=0, **env):
        result = self.doctor('--json', *args, **env)
        self.assertEqual(result[0], code, result[1] + result[2])
        document = json.loads(result[1])
        found = {(f['area'], f['name']): f for f in document['findings']}
        self.assertEqual(len(found), len(document['findings']))
        judged = [f for f in found.values() if f['verdict'] != 'not here']
        self.assertEqual(document['total'], len(judged))
        self.assertEqual(document['passed'], sum(f['verdict'] == 'ok' for f in judged))
        return found

    def test_this_machine_in_words(self):
        result = self.doctor('--device', 'cpu')
        self.assertIn(result[0], (0, FAILED), result[2])  # the test machine may have problems of its own
        for word in ('system\n', 'cpu\n', 'memory\n', 'disk\n', 'hello\n', 'cores: ', 'write speed: ', ' checks passed', 'cpu bf16: ', 'cpu step 16-mixed: '):
            self.assertIn(word, result[1])
        self.assertEqual(os.listdir(self.dir), [])  # the file for the measurement was removed

    def test_every_finding_is_whole(self):
        for f in self.findings('--no-hello').values():
            self.assertTrue(f['finding'] and f['evidence'], f)
            if f['verdict'] in ('warn', 'fail'): self.assertTrue(f['fix'], f)

    def test_hello_in_every_precision(self):
        found = self.findings('--device', 'cpu')
        for dtype in ('fp32', 'fp16', 'bf16'): self.assertEqual(found['hello', f'cpu {dtype}']['verdict'], 'ok')
        for mode in ('32-true', 'bf16-mixed', '16-mixed', 'bf16-true', '16-true'): self.assertEqual(found['hello', f'cpu step {mode}']['verdict'], 'ok')
        self.assertFalse([key for key in self.findings('--no-hello') if key[0] == 'hello'])

    @needs_sim_npu
    def test_the_simulated_npu_is_greeted_when_asked(self):
        found = self.findings('--device', 'sim_npu')
        self.assertEqual(found['hello', 'sim_npu:0 fp32']['verdict'], 'ok')
        self.assertEqual(found['hello', 'sim_npu:0 step bf16-mixed']['verdict'], 'ok')
        # The chip does not support bf16.
        found = self.findings(self.config(), 'device=sim_npu', 'sim_npu.soc=910A', f'output.dir={self.dir}/out', 'precision=16-mixed')
        self.assertEqual(found['hello', 'sim_npu:0 bf16']['verdict'], 'not here')
        self.assertEqual(found['hello', 'sim_npu:0 step bf16-true']['verdict'], 'not here')
        self.assertEqual(found['hello', 'sim_npu:0 step 16-mixed']['verdict'], 'ok')
        self.assertFalse((self.dir / 'out').exists())

    def test_a_simulated_cann_is_listed(self):
        found = self.findings('--no-hello', NPU_TRAIN_SIM_CANN='1', ASCEND_HOME_PATH='')['environment', 'NPU_TRAIN_SIM_CANN']
        self.assertEqual((found['verdict'], found['evidence']), ('warn', 'NPU_TRAIN_SIM_CANN=1, ASCEND_HOME_PATH is not set'))
        self.assertIn('simulated on the host', found['finding'])
        found = self.findings('--no-hello', code=FAILED, NPU_TRAIN_SIM_CANN='1', ASCEND_HOME_PATH=str(self.dir))['environment', 'NPU_TRAIN_SIM_CANN']
        self.assertIn('another one, so device npu is refused', found['finding'])
        self.assertNotIn(('environment', 'NPU_TRAIN_SIM_CANN'), self.findings('--no-hello', NPU_TRAIN_SIM_CANN=''))

    def test_a_device_that_is_not_there_fails_and_the_report_goes_on(self):
        found = self.findings('--device', 'npu', code=FAILED, NPU_TRAIN_TORCH_NPU=str(self.dir))
        self.assertEqual(found['hello', 'npu']['verdict'], 'fail')
        self.assertIn('libtorch_npu.so', found['hello', 'npu']['evidence'])
        self.assertIn(('cpu', 'cores'), found)

    def test_a_named_device_is_looked_for_without_a_hello(self):
        found = self.findings('--device', 'npu', '--no-hello', code=FAILED, NPU_TRAIN_TORCH_NPU=str(self.dir))
        self.assertEqual(found['hello', 'npu']['verdict'], 'fail')
        found = self.findings('--device', 'cpu', '--no-hello')
        self.assertEqual(found['hello', 'cpu']['verdict'], 'ok')

    def test_kernels_that_the_processor_does_not_have(self):
        flags = next((line for line in pathlib.Path('/proc/cpuinfo').read_text().splitlines() if line.startswith('flags')), '').split()
        if not flags or 'avx512f' in flags: self.skipTest('no x86, or one with AVX-512')
        found = self.findings('--device', 'cpu', code=FAILED, ATEN_CPU_CAPABILITY='avx512')
        self.assertEqual(found['cpu', 'kernels']['verdict'], 'fail')
        self.assertIn('SIGILL', found['cpu', 'kernels']['finding'])
        self.assertEqual([key for key in found if key[0] == 'hello'], [('hello', 'cpu')])
        self.findings('--no-hello', '--write-env', self.dir / 'env.sh', code=FAILED, ATEN_CPU_CAPABILITY='avx512')
        self.assertIn('unset ATEN_CPU_CAPABILITY', (self.dir / 'env.sh').read_text())

    def test_stdin_is_a_log_only_for_a_bare_call(self):
        log = b'error code is 507018\n'
        for args in (('--no-hello',), ('--json', '--no-hello'), ('--no-hello', '--output', self.dir)):
            out = piped(log, *args)[1]
            self.assertIn('cores', out)
            self.assertNotIn('AI CPU', out)
        self.assertIn('AI CPU', piped(log)[1])
        # A pipe that is never closed, and contains a log.
        reader, writer = os.pipe()
        try:
            os.write(writer, log)
            p = subprocess.run([str(BIN / 'npu_tool'), 'doctor'], stdin=reader, capture_output=True, text=True, timeout=300)
        finally:
            os.close(reader)
            os.close(writer)
        self.assertIn('AI CPU', p.stdout)
        self.assertIn('no more input', p.stderr)

    def test_the_configuration_names_device_and_folder(self):
        result = npu_tool('doctor', self.config(), f'output.dir={self.dir}/runs', '--no-hello', '--json')
        space = next(f for f in json.loads(result[1])['findings'] if f['name'] == 'space')
        self.assertIn(str(self.dir / 'runs'), space['finding'])
        self.assertFails(npu_tool('doctor', self.dir / 'none.yaml'), USAGE, 'none.yaml')

    def test_the_environment_is_judged_and_written(self):
        found = self.findings('--no-hello', '--write-env', self.dir / 'env.sh', '--html', self.dir / 'report.html', ASCEND_LAUNCH_BLOCKING='1', SECRET_TOKEN='hidden-value')
        self.assertEqual(found['environment', 'ASCEND_LAUNCH_BLOCKING']['verdict'], 'warn')
        text = (self.dir / 'env.sh').read_text()
        self.assertIn('unset ASCEND_LAUNCH_BLOCKING', text)
        self.assertEqual(subprocess.run(['sh', '-n', str(self.dir / 'env.sh')]).returncode, 0)
        page = (self.dir / 'report.html').read_text()
        self.assertIn('ASCEND_LAUNCH_BLOCKING', page)
        self.assertNotIn('hidden-value', text + page + json.dumps([*found.values()]))
        result = self.doctor('--no-hello', '--write-env', self.dir / 'no' / 'such' / 'folder' / 'env.sh')
        self.assertFails(result, 6, 'env.sh')

    def test_a_failure_ends_with_its_code(self):
        found = self.findings('--no-hello', code=FAILED, WORLD_SIZE='2', RANK='2', MASTER_ADDR='host')
        self.assertEqual(found['environment', 'RANK']['verdict'], 'fail')

    def test_codes_and_symptoms(self):
        for word, expected in (('507018', 'AI CPU'), ('EI0006', 'HCCL_CONNECT_TIMEOUT'), ('out of memory', 'data.batch_size'), ('device busy', 'npu-smi'),
                               ('is_available false', 'npu_tool doctor'), ('library not found', 'set_env.sh'), ('outputs differ', 'validate'), ('slow', 'bench'),
                               ('No module named torch_npu', 'pip list'), ("ModuleNotFoundError: No module named 'torch_npu'", 'pip list'), ('segfault', 'gdb'),
                               ('Segmentation fault (core dumped)', 'gdb'), ('my training hangs', 'py-spy'), ('hangs', 'py-spy'), ('OOM', 'data.batch_size'),
                               ('Illegal instruction', 'ATEN_CPU_CAPABILITY')):
            self.assertIn(expected, self.assertDone(npu_tool('doctor', '--explain', word)), word)
        self.assertIn('data.batch_size', self.assertDone(npu_tool('doctor', '--explain', 'out', 'of', 'memory')))  # the words are not quoted
        document = json.loads(self.assertDone(npu_tool('doctor', '--explain', 'error code is 507018', '--json')))
        self.assertEqual(document['found'][0]['name'], '507018')
        for other in (('--device', 'cpu'), ('--write-env', self.dir / 'e.sh'), ('--no-hello',), ('--output', '.'), ('--html', 'p.html')):
            self.assertFails(npu_tool('doctor', '--explain', '507018', *other), USAGE, 'excludes', other[0])
        self.assertFails(npu_tool('doctor', '--explain', 'EI0099'), USAGE, 'EI0099', 'did you mean', 'out of memory')

    def test_symptoms_in_chinese(self):
        for word, expected in (('torch.npu.is_available()返回False', 'npu_tool doctor'), ('libascend.so找不到', 'set_env.sh'), ('训练速度慢', '--what loader,step'),
                               ('特定层无输出', 'trainer.static_shapes'), ('文件对比耗时过长', '--sample 0.1'), ('memory leak', 'npu_tool memory')):
            self.assertIn(expected, self.assertDone(npu_tool('doctor', '--explain', word)).replace('\n          ', ' '), word)

    def test_the_environment_matrix(self):
        out = self.assertDone(npu_tool('doctor', '--versions'))
        for word in ('7.0.RC1', '6.3.RC1', 'CentOS 7.6', 'TOOLCHAIN_HOME', 'msprof'): self.assertIn(word, out)
        document = json.loads(self.assertDone(npu_tool('doctor', '--versions', '--json')))
        rows = {r['component']: r for r in document['components']}
        self.assertEqual(rows['torch_npu']['cann7'], {'recommended': '2.1.0', 'minimum': '1.8.1'})
        self.assertRegex(rows['PyTorch']['here'], r'^\d+\.\d+')
        self.assertFails(npu_tool('doctor', '--versions', '--no-hello'), USAGE, 'excludes')

    def test_the_steps_of_an_installation(self):
        out = self.assertDone(npu_tool('doctor', '--setup'))
        for word in ('nothing was installed or changed', 'HwHiAiUser', '-npu-driver_', 'Ascend-cann-toolkit_9.1.0_linux-', 'set_env.sh', 'torch-npu=='): self.assertIn(word, out)
        self.assertLess(out.index('-npu-driver_'), out.index('-npu-firmware_'))  # the machine has neither
        names = [s['name'] for s in json.loads(self.assertDone(npu_tool('doctor', '--setup', '--json')))['steps']]
        self.assertEqual(names[0], 'NPU')
        self.assertEqual(names[-1], 'check')
        for other in (('--versions',), ('--no-hello',), ('--explain', '507018'), ('--dist',)):
            self.assertFails(npu_tool('doctor', '--setup', *other), USAGE, 'excludes', other[0])

    def test_a_log_of_50_megabytes(self):
        megabytes = 1_000_000
        block = b''.join(b'epoch 1 step %d loss 2.3 507018 \xff\x00\x1b[31m\n' % i for i in range(20000))
        def log(size):
            for _ in range(size // len(block)): yield block
            yield b'RuntimeError: ERR00100 PTA call acl api failed, error code is 507015[Error]\n'
            yield block
        for args in ((), ('--explain', '-'), ('--explain',)):
            code, out, err = piped(log((50 if FULL else 5) * megabytes), *args)
            self.assertEqual(code, 0, err)
            self.assertIn('1. 507015: ', out)
            self.assertIn('ERR00100', out)
            self.assertNotIn('507018:', out)
            self.assertNotIn('\x1b', out)
        found = json.loads(piped(log(50 * megabytes), '--explain', '-', '--json')[1])
        self.assertEqual([f['name'] for f in found['found']], ['507015', 'ERR00100'])
        self.assertGreater(found['bytes'], 45 * megabytes)

    def test_logs_of_nothing(self):
        self.assertIn('empty', piped(b'', '--explain', '-')[1])
        self.assertIn('no known code or symptom', piped(b'all is well\n', '--explain', '-')[1])
        # Stdin is a log file.
        (self.dir / 'train.log').write_bytes(b'error code is 507018\n')
        with open(self.dir / 'train.log') as log:
            p = subprocess.run([str(BIN / 'npu_tool'), 'doctor'], stdin=log, capture_output=True, text=True)
        self.assertIn('507018', p.stdout)
        # A pipe without data is not read as a log, so the machine is examined.
        reader, writer = os.pipe()
        try:
            p = subprocess.run([str(BIN / 'npu_tool'), 'doctor', '--no-hello', '--output', str(self.dir)], stdin=reader, capture_output=True, text=True, timeout=300)
        finally:
            os.close(reader)
            os.close(writer)
        self.assertIn('checks passed', p.stdout)

    def test_usage(self):
        self.assertFails(npu_tool('doctor', '--device', 'tpu'), USAGE, "'tpu'", 'sim_npu')
        self.assertFails(npu_tool('doctor', '--explain', 'purple elephants'), USAGE, 'purple elephants')
        self.assertEqual(npu_tool('doctor', '--nonsense')[0], USAGE)


if __name__ == '__main__': main()
