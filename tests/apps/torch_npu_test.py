"""device=npu with the wheel of torch_npu: each fault of a Python environment by name, and runs on a CANN of the host."""
import csv
import json
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

from programs import BIN, FULL, ProgramTest, main, npu_tool, run, run_dir, train_app
from torch_npu_wheel import CANN, PACKAGES, PYTHON, needs_cann, needs_wheel, of_user

GUEST = BIN.parent / 'tests/npu_guest'
EMPTY = BIN.resolve().parent / 'tests/unfit_libraries/empty.so'
# Code that a user's Python executes at its start: it registers a function for the end of a process that has used torch_npu.
AT_END = '''
import atexit, sys
def end():
    if 'torch_npu' not in sys.modules: return
    with open({!r}, 'a') as file: file.write('end\\n')
    {}
atexit.register(end)
'''


class Driver(ProgramTest):
    def train(self, *words, **env):
        small = ('device=npu', 'precision=32-true', 'trainer.max_steps=2', f'output.dir={self.dir}/out')
        return train_app(self.config(), *small, *words, env=of_user(**env))

    def environment(self, name, *links):
        """A new environment of Python with links to these packages alone."""
        folder = self.dir / name
        subprocess.run([sys.executable, '-m', 'venv', '--without-pip', folder], check=True)
        site = next(folder.glob('lib/python3*/site-packages'))
        for package in links: (site / package.name).symlink_to(package)
        return folder, site

    def answering(self, name, expression):
        """An interpreter that describes its environment as PYTHON does, except for what sed's `expression` changes."""
        path = self.dir / name
        path.write_text(f'#!/bin/sh\n{PYTHON} "$@" | sed "{expression}"\n')
        path.chmod(0o755)
        return path


class Faults(Driver):
    def test_no_python_at_all(self):
        result = self.train(python=None, PATH='/nonexistent')
        self.assertFails(result, 4, 'torch_npu is not found', 'python3: there is no such program', "-m pip install 'torch-npu==")

    def test_a_named_python_that_is_not_there(self):
        self.assertFails(self.train(python='/nonexistent/python'), 4, 'NPU_TRAIN_PYTHON=/nonexistent/python', 'there is no such program')

    def test_a_python_without_torch_npu(self):
        folder, _ = self.environment('empty')
        self.assertFails(self.train(python=folder), 4, f'{folder} has no torch_npu', 'bin/python -m pip install')

    def test_the_active_environment_is_looked_at_first(self):
        folder, _ = self.environment('empty')
        self.assertRegex(self.train(python=None, PATH='/nonexistent', VIRTUAL_ENV=str(folder))[2],
                         rf'\({re.escape(str(folder))}/bin/python3: no torch_npu, .*python3: there is no such program')

    def test_a_folder_without_the_library(self):
        self.assertFails(self.train(python=None, NPU_TRAIN_TORCH_NPU=str(self.dir)), 4, f'{self.dir}/libtorch_npu.so', 'torch_npu is not found', 'CANN')

    def test_a_torch_npu_of_another_minor_version(self):
        folder, site = self.environment('old')
        (site / 'torch_npu').mkdir()
        (site / 'torch_npu/__init__.py').write_text('raise RuntimeError("must not be imported")\n')
        (site / 'torch_npu-2.5.1.dist-info').mkdir()
        (site / 'torch_npu-2.5.1.dist-info/METADATA').write_text('Metadata-Version: 2.1\nName: torch_npu\nVersion: 2.5.1\n')
        self.assertFails(self.train(python=folder), 4, 'torch_npu 2.5.1, which does not fit libtorch')


@needs_wheel
class FaultsOfWheel(Driver):
    def test_another_libtorch(self):
        torch, torch_npu, numpy = PACKAGES
        folder, site = self.environment('other', torch_npu, numpy)
        (site / 'torch/lib').mkdir(parents=True)
        for file in ('__init__.py', 'lib/libtorch_cpu.so'): (site / 'torch' / file).touch()
        self.assertFails(self.train(python=folder), 4, f'{site.resolve()}/torch/lib/libtorch_cpu.so', f'{torch}/lib/libtorch_cpu.so')

    def test_a_python_without_libpython(self):
        result = self.train(python=self.answering('static', 's/^npu_train:libpython=.*/npu_train:libpython=/'))
        self.assertFails(result, 4, str(PYTHON), 'has no shared library libpython', '--enable-shared')

    def test_a_broken_libpython(self):
        (self.dir / 'libpython.so').write_text('no library\n')
        result = self.train(python=self.answering('broken', f's#^npu_train:libpython=.*#npu_train:libpython={self.dir}/libpython.so#'))
        self.assertFails(result, 4, f'{self.dir}/libpython.so', 'cannot be loaded')

    def test_the_libpython_of_another_python(self):
        result = self.train(python=self.answering('mixed', 's/^npu_train:version=.*/npu_train:version=3.10.99/'))
        self.assertFails(result, 4, 'of 3.10.99', 'two installations')

    def test_another_libpython_in_the_process(self):
        used = subprocess.run([PYTHON, '-c', 'import sysconfig as s; print(s.get_config_var("LIBDIR") + "/" + s.get_config_var("INSTSONAME"))'],
                              capture_output=True, text=True, check=True).stdout.strip()
        other = shutil.copy(used, self.dir)
        self.assertFails(self.train(LD_PRELOAD=other), 4, f'this process has loaded {other}', used, 'a process can have only one Python')

    def test_no_numpy(self):
        torch, torch_npu, numpy = PACKAGES
        others = [p for folder in {torch.parent, torch_npu.parent} for p in folder.iterdir() if p.suffix != '.pth' and p != numpy]
        folder, _ = self.environment('no_numpy', *{p.name: p for p in others}.values())
        self.assertFails(self.train(python=folder, cann=CANN or None), 4, 'has no module numpy', 'bin/python -m pip install numpy')

    def test_no_cann(self):
        result = self.train(cann=None)
        self.assertFails(result, 4, 'libhccl.so, which is not found', 'part of CANN', 'set_env.sh')
        self.assertNotIn('Traceback', result[2])

    def test_another_cann(self):
        for name in ('hccl', 'ascendcl', 'acl_op_compiler', 'acl_tdt_channel', 'ge_runner', 'graph', 'atb', 'runtime'):
            (self.dir / f'lib{name}.so').symlink_to(EMPTY)
        self.assertFails(self.train(cann=self.dir), 4, 'does not fit the CANN that is loaded', 'undefined symbol')

    def test_a_second_attempt_reports_the_same(self):
        code, out, err = run(GUEST, '--twice', env=of_user(cann=None))
        first, second = (line.split(': ', 1)[1] for line in out.splitlines()[:2])
        self.assertIn('libhccl.so', first)
        self.assertEqual(first, second)
        self.assertEqual((code, len(out.splitlines())), (0, 2), out + err)

    def test_two_names_contradict(self):
        self.assertFails(self.train(NPU_TRAIN_TORCH_NPU=str(EMPTY)), 4, 'are both set')

    def test_the_library_of_the_wheel_without_its_python(self):
        library = {'python': None, 'NPU_TRAIN_TORCH_NPU': str(PACKAGES[1] / 'lib')}
        self.assertFails(self.train(cann=None, **library), 4, 'which is not found', 'part of CANN', 'set_env.sh')
        if CANN: self.assertFails(self.train(**library), 4, 'works only in a process that runs Python', 'set NPU_TRAIN_PYTHON')


@needs_cann
class Runs(Driver):
    def losses(self, device, precision):
        """(step, phase, scale, skipped steps, loss) of a run with the same initial weights and batches on every device."""
        out = self.dir / f'{device}_{precision}'.replace(':', '_')
        words = ('model.dropout=0', 'data.train_size=64', 'data.val_size=32', 'trainer.max_steps=3', 'trainer.log_every_n_steps=1')
        self.assertDone(train_app(self.config(precision=precision), *words, f'device={device}', f'output.dir={out}', env=of_user()))
        with open(run_dir(out) / 'metrics.csv') as file:
            rows = [row for row in csv.DictReader(file) if row['loss']]
        return [(row['step'], row['phase'], row['loss_scale'], row['skipped'], float(row['loss'])) for row in rows]

    def test_a_run_has_the_losses_of_the_cpu(self):
        """In 16-mixed it also has the same skipped steps and loss scales. The first scale overflows."""
        for precision, tolerance in (('32-true', 1e-5), ('16-mixed', 3e-4)):
            with self.subTest(precision):
                cpu, npu = self.losses('cpu', precision), self.losses('npu:1', precision)
                self.assertGreaterEqual(len(npu), 4)  # three steps and a validation
                for a, b in zip(cpu, npu, strict=True):
                    self.assertEqual(a[:4], b[:4])
                    self.assertAlmostEqual(a[4], b[4], delta=tolerance)

    def test_standard_output_belongs_to_the_program(self):
        """torch_npu prints to it when it is imported."""
        words = ('--what', 'step', '--steps', '1', '--json', 'device=npu', 'precision=32-true')
        self.assertEqual(json.loads(self.assertDone(npu_tool('bench', self.config(), *words, env=of_user())))['device'], 'npu:0')

    def test_a_first_operator_that_fails(self):
        for library in pathlib.Path(CANN).iterdir():
            if 'opapi' not in library.name and 'aclnn' not in library.name: (self.dir / library.name).symlink_to(library.resolve())
        result = self.train(cann=self.dir)
        self.assertFails(result, 4)
        self.assertRegex(result[2], r'(?s)the device does not start.*npu-smi|1 \+ 1 gave')

    def test_the_simulated_cann_without_a_library_path(self):
        own = BIN.resolve().parent / 'lib/sim_cann'
        self.assertDone(self.train(cann=None, NPU_TRAIN_SIM_CANN='1' if own.exists() else CANN))
        self.assertFails(self.train(cann=None, NPU_TRAIN_SIM_CANN='yes'), 4, 'NPU_TRAIN_SIM_CANN=yes', 'there is no libascendcl.so in yes', 'allowed: 1')
        self.assertFails(self.train(cann=None, NPU_TRAIN_SIM_CANN=CANN, ASCEND_HOME_PATH='/opt/cann'), 4, 'ASCEND_HOME_PATH=/opt/cann', 'only one CANN')

    def test_a_process_with_another_cann(self):
        other = self.dir / 'libascendcl.so'
        other.write_bytes((pathlib.Path(CANN) / other.name).read_bytes())
        self.assertFails(self.train(cann=None, NPU_TRAIN_SIM_CANN=CANN, LD_PRELOAD=str(other)), 4, f'this process has loaded {other}')

    def test_the_device_is_started_once_and_ended_with_the_process(self):
        """Functions that Python calls at its end are called. If one fails, the run has succeeded nevertheless."""
        for fault in ('', 'raise RuntimeError("no end")'):
            trace = self.dir / f'trace_{len(fault)}'
            (self.dir / 'sitecustomize.py').write_text(AT_END.format(str(trace), fault))
            result = self.train(PYTHONPATH=str(self.dir))
            self.assertDone(result)
            self.assertEqual(trace.read_text(), 'end\n')
            self.assertEqual(result[2].count('npu: torch_npu from '), 1, result[2])

    def test_a_device_that_cannot_be_started(self):
        result = self.train(SIM_CANN_FAULT='aclrtSetDevice:1:fail')
        self.assertFails(result, 4, 'the device does not start', 'aclrtSetDevice', 'npu-smi')

    def test_a_later_call_starts_what_an_earlier_one_could_not(self):
        code, out, err = run(GUEST, '--twice', env=of_user(SIM_CANN_FAULT='aclrtSetDevice:1:fail'))
        self.assertRegex(out, '(?m)^first: .*the device does not start')
        self.assertRegex(out, '(?m)^second: $')

    def test_channels_last_is_refused(self):
        self.assertFails(self.train('trainer.memory_format=channels_last'), 2, 'channels_last', 'contiguous')

    def test_two_canns_in_one_library_path(self):
        (self.dir / 'libascendcl.so').symlink_to(EMPTY)
        self.assertFails(self.train(cann=f'{self.dir}:{CANN}'), 4, 'does not fit the CANN that is loaded', 'undefined symbol: acl')

    def test_a_chip_that_is_not_played(self):
        self.assertFails(self.train(SIM_CANN_SOC='910C9'), 2, 'SIM_CANN_SOC=910C9', 'allowed: Ascend910A')

    def test_no_device(self):
        self.assertFails(self.train(ASCEND_RT_VISIBLE_DEVICES=''), 4, 'finds no NPU', 'npu-smi')

    def check_guest(self, result):
        code, out, err = result
        said = dict(line.split(': ', 1) for line in out.splitlines())
        self.assertEqual((said['sum'], said['seed'], said['child']), ('6', '7', 'computes'), out + err)
        self.assertEqual(said['count'], '2')
        self.assertIn('npu:100 does not exist', said['refused'])
        self.assertNotRegex(out, '(?m)^(differs|new): ')
        self.assertEqual(code, 0, out + err)

    def test_a_program_gets_its_process_back_and_returns_from_main(self):
        self.check_guest(run(GUEST, env=of_user()))

    def test_a_python_process_that_did_not_import_torch_npu(self):
        for first, named in (('', None), ('', PYTHON), ('import torch, torch_npu;', None))[::1 if FULL else 2]:
            code = (f'{first}import ctypes; guest = ctypes.CDLL("{BIN.parent}/tests/libnpu_guest_library.so"); code = guest.npu_guest(0);'
                    'import sys; sys.exit(code)')
            with self.subTest(first, named=named): self.check_guest(run(PYTHON, '-c', code, env=of_user(python=named, TORCH_DEVICE_BACKEND_AUTOLOAD='0')))

    def test_a_python_process_and_another_named_python(self):
        other, site = self.environment('other')
        (site / 'torch_npu').mkdir()
        (site / 'torch_npu/__init__.py').write_text('raise RuntimeError("must not be imported")\n')
        code = f'import ctypes, sys; sys.exit(ctypes.CDLL("{BIN.parent}/tests/libnpu_guest_library.so").npu_guest(1))'
        first, second = run(PYTHON, '-c', code, env=of_user(python=other, TORCH_DEVICE_BACKEND_AUTOLOAD='0'))[1].splitlines()[:2]
        for words in (str(PACKAGES[1]), f'NPU_TRAIN_PYTHON={other} has {site.resolve()}/torch_npu', 'a process can have only one Python'):
            self.assertIn(words, first)
        self.assertEqual(first.removeprefix('first'), second.removeprefix('second'))


if __name__ == '__main__':
    main()
