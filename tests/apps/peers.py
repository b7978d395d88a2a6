"""Other Pythons, with packages that the drivers compare with."""
import atexit
import functools
import json
import os
import pathlib
import subprocess
import sys

from programs import SOURCE


def python_of(environment):
    """NPU_TRAIN_<ENVIRONMENT>_PYTHON, .venv/<environment> (scripts/setup --dev), or this one."""
    own = SOURCE / '.venv' / environment / 'bin/python'
    return os.environ.get(f'NPU_TRAIN_{environment.upper()}_PYTHON') or (str(own) if own.exists() else sys.executable)


class Peer:
    """Scripts of another Python, which imports packages once for all of them: transformers takes as long as twenty runs of train_app."""

    def __init__(self, python, env=None, **imports):
        """`imports`: the statement that imports a package and the parts of it that scripts use, by the package's name; they are executed in order."""
        self.python, self.env, self.imports = python, env, imports

    @functools.cached_property
    def process(self):
        server = pathlib.Path(__file__).with_name('python_peer.py')
        process = subprocess.Popen([self.python, server, json.dumps(self.imports)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self.env)
        atexit.register(process.communicate)
        self.packages = json.loads(process.stdout.readline() or '[]')
        return process

    def has(self, *packages): return self.process is not None and set(packages) <= set(self.packages)

    def run(self, *script, cwd='.'):
        """(exit code, stdout, stderr) of `python script`."""
        print(json.dumps([os.path.abspath(cwd), *map(str, script)]), file=self.process.stdin, flush=True)
        return tuple(json.loads(self.process.stdout.readline()))


MODELS_PYTHON = python_of('models')
