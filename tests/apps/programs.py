"""Runs the programs as a user does, for the tests of this folder."""
import contextlib
import functools
import hashlib
import io
import json
import math
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

BIN = pathlib.Path(os.environ['NPU_TRAIN_BIN'])
SOURCE = pathlib.Path(__file__).resolve().parents[2]
FULL = os.environ.get('NPU_TRAIN_FULL_TESTS') == '1'  # with scripts/prove
# Signals that the programs handle, and signals that decide how they wait for their children.
OF_PROGRAMS = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU, signal.SIGCHLD)


def keep_inherited_signals():
    """Keeps programs from inheriting this driver's signal settings: nohup ignores SIGHUP, and `&` in a script ignores SIGINT and SIGQUIT.

    A handler that does nothing ignores a signal as well, and exec replaces it by the default. (subprocess itself restores SIGPIPE.)
    """
    for number in OF_PROGRAMS:
        if signal.getsignal(number) == signal.SIG_IGN: signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


keep_inherited_signals()  # every driver imports this file before it starts a process

# A network that trains in seconds, with every kind of state: dropout, EMA, a loss scale that overflows at first.
SMALL = '''
seed: 7
device: cpu
precision: {precision}
model: {{name: vit_tiny_cifar10, depth: 1, dim: 32, heads: 2, patch_size: 8, dropout: 0.1}}
data: {{name: generated, train_size: 320, val_size: 100, batch_size: 16, num_workers: {workers}}}
optimizer: {{name: adamw, lr: 0.002}}
lr_scheduler: {{name: cosine, interval: step, T_max: 60}}
grad_scaler: {{init_scale: 16777216, growth_interval: 5}}
average: {{enabled: true, decay: 0.9}}
trainer: {{max_epochs: 3, threads: 1, log_every_n_steps: 5}}
checkpoint: {{every_n_train_steps: 4, save_top_k: 1}}
'''

# The beginning of a configuration whose runs have equal bits. A test adds the sections that it is about.
REPEATABLE = '''
seed: 7
deterministic: true
rng: portable
precision: 32-true
optimizer: {name: adamw, lr: 0.002}
'''

# A small network whose ranks have several buckets. A test adds the section `trainer`.
NPU_RANKS = REPEATABLE + '''
device: npu
model: {name: vit_tiny_cifar10, depth: 1, dim: 32, heads: 2, patch_size: 8}
data: {name: generated, train_size: 96, val_size: 16, batch_size: 8, num_workers: 0}
dist: {bucket_mib: 0.02}
'''


class ForkServer:
    """Runs command lines of one program in processes that are forked from one that has loaded libtorch, see fork_server.cpp.

    They differ from processes that start by themselves in /proc/self/cmdline, in that npu_tool is npu_tool_torch from the start, in what a
    library reads while it is loaded, and in their output: files, which are read when the program has ended. They take 0.01 s for their start
    instead of 0.18 s.
    """
    LIBRARY = BIN.parent / 'tests/libfork_server.so'
    _of_thread = threading.local()

    def __init__(self, program):
        self._socket, end = socket.socketpair()
        env = {**os.environ, 'LD_PRELOAD': str(self.LIBRARY), 'NPU_TRAIN_FORK_SERVER': str(end.fileno())}
        with end: self._process = subprocess.Popen([program], env=env, stdin=subprocess.DEVNULL, pass_fds=[end.fileno()])
        self.environment = dict(os.environ)

    @classmethod
    def of(cls, program):
        """The server of this thread for the program and the present environment."""
        servers = cls._of_thread.__dict__
        known = servers.get(program)
        if known is None or known._process.poll() is not None or known.environment != dict(os.environ): servers[program] = cls(program)
        return servers[program]

    @classmethod
    def can_serve(cls):
        """Whether the library was built (not with a sanitizer), and can be preloaded: the variable has names separated by blanks and colons."""
        return cls.LIBRARY.exists() and 'LD_PRELOAD' not in os.environ and not set(' :') & set(str(cls.LIBRARY))

    def __del__(self):
        self._socket.close()
        if hasattr(self, '_process'):
            self._process.kill()  # it may wait for a program
            self._process.wait()

    def run(self, words, cwd, timeout):
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            text = b''.join(os.fsencode(word) + b'\0' for word in (os.path.abspath(cwd or os.getcwd()), *words))
            socket.send_fds(self._socket, [struct.pack('i', len(text))], [out.fileno(), err.fileno()])
            self._socket.sendall(text)
            child = self._number()
            self._socket.settimeout(timeout)
            try: status = self._number()
            except BaseException as error:  # also of Ctrl-C: subprocess.run() ends the program, too
                self._socket.settimeout(None)
                with contextlib.suppress(ProcessLookupError): os.kill(child, signal.SIGKILL)
                self._number()  # the status, so that the next answer belongs to the next request
                if isinstance(error, TimeoutError): raise subprocess.TimeoutExpired(words, timeout) from None
                raise
            self._socket.settimeout(None)
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(io.TextIOWrapper(file, newline=None).read())
            return os.waitstatus_to_exitcode(status), *texts

    def _number(self):
        content = self._socket.recv(4, socket.MSG_WAITALL)
        assert len(content) == 4, f'{self._process.args[0]}, which forks programs, has ended with {self._process.wait()}'
        return struct.unpack('i', content)[0]


def run(*args, timeout=1200, cwd=None, env=None):
    """(exit code, stdout, stderr)."""
    p = subprocess.run([str(a) for a in args], capture_output=True, text=True, timeout=timeout, cwd=cwd, env=env, stdin=subprocess.DEVNULL)
    return p.returncode, p.stdout, p.stderr


def forked(program, loaded, *args, timeout=1200, cwd=None, env=None):
    """Like run(), but in a fork server. With scripts/prove, or with an `env`, the program is started by itself."""
    if FULL or env is not None or not ForkServer.can_serve(): return run(program, *args, timeout=timeout, cwd=cwd, env=env)
    return ForkServer.of(loaded).run([str(a) for a in (program, *args)], cwd, timeout)


def train_app(*args, **kw): return forked(BIN / 'train_app', BIN / 'train_app', *args, **kw)


def npu_tool(*args, **kw):
    # npu_tool becomes npu_tool_torch, except where it must not need libtorch.
    if args[:1] == ('doctor',): return run(BIN / 'npu_tool', *args, **kw)
    return forked(BIN / 'npu_tool', BIN / 'npu_tool_torch', *args, **kw)


# The Python with onnxruntime that npu_tool runs, too: NPU_TRAIN_ONNX_PYTHON, .venv/onnx (scripts/setup --dev), or this one.
OWN_ONNX = SOURCE / '.venv/onnx/bin/python'
ONNX_PYTHON = os.environ.get('NPU_TRAIN_ONNX_PYTHON') or (str(OWN_ONNX) if OWN_ONNX.exists() else sys.executable)
os.environ['NPU_TRAIN_ONNX_PYTHON'] = ONNX_PYTHON
NO_ONNXRUNTIME = 'onnxruntime is not installed (pip install onnxruntime; NPU_TRAIN_ONNX_PYTHON)'


@functools.cache
def has_onnxruntime(): return subprocess.run([ONNX_PYTHON, '-c', 'import numpy, onnxruntime'], capture_output=True).returncode == 0


def needs_onnxruntime(test):
    """For a test that runs `npu_tool export --to FILE.onnx --check`. A function, so that only drivers with such tests look for it."""
    return unittest.skipUnless(has_onnxruntime(), NO_ONNXRUNTIME)(test)


SIM_NPU = (BIN.parent / 'lib' / 'npu_train' / 'libnpu_train_sim_npu.so').exists()
needs_sim_npu = unittest.skipUnless(SIM_NPU, 'sim_npu is not built')


class ProgramTest(unittest.TestCase):
    def setUp(self):
        self._dir = tempfile.TemporaryDirectory(prefix='npu_train_')
        self.dir = pathlib.Path(self._dir.name)

    def tearDown(self): self._dir.cleanup()

    def config(self, text=None, name='c.yaml', precision='16-mixed', workers=4):
        path = self.dir / name
        path.write_text(text if text is not None else SMALL.format(precision=precision, workers=workers))
        return path

    def start(self, *args):
        """Starts train_app in the background, with its output in said.txt. It is ended at the end of the test at the latest."""
        with open(self.dir / 'said.txt', 'w') as said:
            return self.ended(subprocess.Popen([str(BIN / 'train_app'), *map(str, args)], stdin=subprocess.DEVNULL, stdout=said, stderr=said))

    def ended(self, process):
        """Ends the process at the end of the test at the latest. A rank that waits for others would keep the driver's output open."""
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def reserved_port(self):
        """A port of the loopback interface that no other program gets during the test. It is bound, but not listened to, so that a server
        that sets SO_REUSEADDR can take it."""
        held = socket.socket()
        self.addCleanup(held.close)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(('127.0.0.1', 0))
        return held.getsockname()[1]

    def said(self): return (self.dir / 'said.txt').read_text()

    def wait_for(self, process, reached, what):
        """Polls `reached()` while the process lives. The bound only keeps a hanging program from hanging the tests."""
        deadline = time.monotonic() + 300
        while not reached():
            self.assertIsNone(process.poll(), f'the run ended before {what}:\n{self.said()}')
            self.assertLess(time.monotonic(), deadline, f'no sign of {what}:\n{self.said()}')
            time.sleep(0.002)

    def assertFails(self, result, code, *words):
        self.assertEqual(result[0], code, result[1] + result[2])
        for word in words: self.assertIn(word, result[2])

    def assertDone(self, result):
        self.assertEqual(result[0], 0, result[1] + result[2])
        return result[1]


def run_dir(out):
    """The run's folder under an output.dir with one run. A second run there would be version_1, and its results would not be seen."""
    runs = list(pathlib.Path(out).glob('*/version_*'))
    assert len(runs) == 1, f'{out} has the runs {runs}'
    return runs[0]


def checksums(out):
    """Checksums of the last checkpoint's files, as its manifest lists them."""
    manifest = json.loads((run_dir(out) / 'checkpoints' / 'last' / 'manifest.json').read_text())
    return {f['name']: f['checksum'] for f in manifest['files']}


def contents(out):
    """For each tensor file of the last checkpoint a digest of its names, dtypes, shapes and elements. Slices of ranks are joined first."""
    folder = run_dir(out) / 'checkpoints' / 'last'
    manifest = json.loads((folder / 'manifest.json').read_text())
    tensors, flat = {}, {}
    files = {f['name']: safetensors_of(folder / f['name']) for f in manifest['files'] if f['name'].endswith('.safetensors')}
    for entry in manifest['tensors']:
        dtype, shape, data = files[entry['file']][entry['name']]
        if 'sizes' not in entry: tensors[entry['file'], entry['name']] = (dtype, shape, data)
        else: flat.setdefault((entry['part'] + '.safetensors', entry['name']), []).append((entry['range'], dtype, data, entry))
    for key, slices in flat.items():
        slices.sort(key=lambda s: s[0])
        memory, entry = b''.join(data for _, _, data, _ in slices), slices[0][3]
        tensors[key] = (slices[0][1], entry['sizes'], row_major(memory, entry['sizes'], entry['strides']))
    digests = {}
    for (file, name), content in sorted(tensors.items()):
        *named, data = (name, *content)
        digest = digests.setdefault(file, hashlib.sha256())
        for part in (repr(named).encode(), data): digest.update(part)
    return {file: digest.hexdigest() for file, digest in digests.items()}


def safetensors_of(path):
    """{name: (dtype, shape, bytes)} of a file."""
    content = path.read_bytes()
    begin = 8 + int.from_bytes(content[:8], 'little')
    header = json.loads(content[8:begin])
    return {n: (t['dtype'], t['shape'], content[begin + t['data_offsets'][0]:begin + t['data_offsets'][1]]) for n, t in header.items()
            if n != '__metadata__'}


def row_major(memory, sizes, strides):
    """The elements of a dense tensor whose memory has these strides, in row-major order."""
    own = [math.prod(sizes[i + 1:]) for i in range(len(sizes))]
    if own == strides or not memory: return memory
    out = bytearray(memory)
    source, to = (memoryview(m).cast({1: 'B', 2: 'H', 4: 'I', 8: 'Q'}[len(memory) // math.prod(sizes)]) for m in (memory, out))
    longest = sizes.index(max(sizes))  # copied all at once
    places = [(0, 0)]
    for d, extent in enumerate(sizes):
        if d != longest: places = [(a + i * strides[d], b + i * own[d]) for a, b in places for i in range(extent)]
    step, own_step, last = max(strides[longest], 1), own[longest], sizes[longest] - 1
    for a, b in places: to[b:b + last * own_step + 1:own_step] = source[a:a + last * step + 1:step]
    return bytes(out)


def checkpoints(out):
    """Manifests of the complete checkpoints of an output.dir with one run, the oldest first."""
    found = []
    for path in pathlib.Path(out).glob('*/version_0/checkpoints/epoch=*/manifest.json'):
        try: found.append(json.loads(path.read_text()) | {'folder': path.parent.name})
        except FileNotFoundError: pass  # a running program has removed it just now
    return sorted(found, key=lambda m: m['batches_seen'])


def tree(folder):
    """The content of every file and link under a folder, to see whether anything changed."""
    out = {}
    for path in sorted(pathlib.Path(folder).rglob('*')):
        if path.is_symlink(): out[str(path)] = os.readlink(path)
        elif path.is_file(): out[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
    return out


# Cases that take minutes: scripts/prove runs them, .ci/run reports them as skipped.
in_full = unittest.skipUnless(FULL, 'takes minutes; scripts/prove runs it')


def pairs_of(some, others):
    """All pairs with scripts/prove; otherwise each of `others` with one of `some`, alternately."""
    return [(a, b) for i, a in enumerate(some) for k, b in enumerate(others) if FULL or k % len(some) == i]


def main():
    result = unittest.main(exit=False, verbosity=1).result
    for test, why in result.skipped: print(f'skipped: {test.id()}: {why}')
    sys.exit(not result.wasSuccessful())
