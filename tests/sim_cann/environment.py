"""Runs a test in the Python that has torch_npu, on sim_cann: NPU_TRAIN_TORCH_NPU_PYTHON, or .venv/torch_npu (scripts/setup --dev)."""
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import traceback
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
PYTHON = pathlib.Path(os.environ.get('NPU_TRAIN_TORCH_NPU_PYTHON', SOURCE / '.venv/torch_npu/bin/python'))
LIBRARIES = pathlib.Path(os.environ.get('NPU_TRAIN_SIM_CANN', SOURCE / 'build/lib/sim_cann'))
SKIPPED = 77


def on_sim_cann(**variables):
    """The environment of a process whose torch_npu runs on sim_cann."""
    out = {k: v for k, v in os.environ.items() if not k.startswith(('SIM_CANN_', 'ASCEND_'))}
    out.update(LD_LIBRARY_PATH=f"{LIBRARIES}:{out.get('LD_LIBRARY_PATH', '')}", OMP_NUM_THREADS='1', **variables)
    return out


def program(text, **variables):
    """Runs Python source in a new process: (exit status, stdout, stderr)."""
    done = subprocess.run([sys.executable, '-c', text], env=on_sim_cann(**variables), capture_output=True, text=True, timeout=600)
    return done.returncode, without_notice(done.stdout), done.stderr


class Script:
    """Python source that runs in a fork of this process, which must have imported torch_npu but used no device: it starts in no time."""

    def __init__(self, text, **variables):
        self.out, self.err = tempfile.TemporaryFile('w+'), tempfile.TemporaryFile('w+')
        self.pid = os.fork()
        if self.pid: return
        os.dup2(self.out.fileno(), 1)
        os.dup2(self.err.fileno(), 2)
        os.environ.update(variables)
        status = 0
        try:
            exec(text, {})
        except BaseException:
            traceback.print_exc()
            status = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)

    def result(self):
        """(exit status, stdout, stderr)"""
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        texts = []
        for file in (self.out, self.err):
            file.seek(0)
            texts.append(without_notice(file.read()))
            file.close()
        return status, *texts


def script(text, **variables): return Script(text, **variables).result()


def start_ranks(text, size, **variables):
    """Starts the scripts of `size` ranks, each on its own device, which meet over HCCL. Their store is in this process, so it outlives
    every rank. It starts after them: a fork while its thread looks up the name of a peer would keep a lock of the C library forever."""
    from torch.distributed import TCPStore
    listener = socket.create_server(('127.0.0.1', 0), backlog=size)
    port = listener.getsockname()[1]
    shared = {'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': str(port), 'TORCHELASTIC_USE_AGENT_STORE': 'True', 'TORCHELASTIC_RESTART_COUNT': '0',
              'WORLD_SIZE': str(size), 'SIM_CANN_DEVICES': str(max(size, 2)), **variables}
    out = [Script(text, RANK=str(rank), **shared) for rank in range(size)]
    store = TCPStore('127.0.0.1', port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())
    for one in out: one.store = store
    return out


def ranks(text, size, **variables): return [one.result() for one in start_ranks(text, size, **variables)]


def without_notice(text):
    """Removes the notice of torch_npu that the folder of an installed CANN is missing."""
    return ''.join(line for line in text.splitlines(True) if 'ASCEND_HOME_PATH' not in line)


def main(**variables):
    """Runs the tests of the calling file, in a new process with sim_cann unless this already is that process."""
    if os.environ.get('SIM_CANN_TEST') == '1':
        unittest.main(verbosity=2)
    if not PYTHON.exists() or subprocess.run([PYTHON, '-c', 'import importlib.util as u, sys; sys.exit(u.find_spec("torch_npu") is None)']).returncode:
        print(f'{PYTHON} has no torch_npu (scripts/setup --dev installs it): skipped')
        sys.exit(SKIPPED)
    if not (LIBRARIES / 'libopapi.so').exists():
        sys.exit(f'{LIBRARIES} has no libopapi.so: build the target npu_train_sim_cann_operators')
    sys.exit(subprocess.run([PYTHON, *sys.argv], env=on_sim_cann(**variables) | {'SIM_CANN_TEST': '1'}).returncode)
