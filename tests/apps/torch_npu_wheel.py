"""The wheel of torch_npu for drivers: that of NPU_TRAIN_TORCH_NPU_ENVIRONMENT, or of .venv/torch_npu (scripts/setup --dev).

NPU_TRAIN_SIM_CANN names the folder with the libraries of a CANN that needs no NPU, in place of lib/sim_cann of the build.
"""
import os
import pathlib
import subprocess
import unittest

from programs import BIN, SOURCE

ENVIRONMENT = pathlib.Path(os.environ.get('NPU_TRAIN_TORCH_NPU_ENVIRONMENT', SOURCE / '.venv/torch_npu'))
PYTHON = ENVIRONMENT / 'bin/python'
OWN_CANN = BIN.resolve().parent / 'lib/sim_cann'
CANN = os.environ.get('NPU_TRAIN_SIM_CANN') or (str(OWN_CANN) if OWN_CANN.exists() else '')
FIND = 'import importlib.util as u, os; print(*(os.path.dirname(u.find_spec(p).origin) for p in ("torch", "torch_npu", "numpy")), sep="\\n")'


def packages():
    """The folders of torch, torch_npu and numpy in the environment; None without torch_npu."""
    if not PYTHON.exists(): return None
    answer = subprocess.run([PYTHON, '-c', FIND], capture_output=True, text=True)
    return [pathlib.Path(line) for line in answer.stdout.split()] if answer.returncode == 0 else None


PACKAGES = packages()
needs_wheel = unittest.skipUnless(PACKAGES, f'torch_npu is not installed in {ENVIRONMENT} (scripts/setup --dev)')
needs_cann = unittest.skipUnless(PACKAGES and CANN, 'there is no CANN for the host (NPU_TRAIN_SIM_CANN)')


def of_user(python=PYTHON, cann=CANN, **more):
    """The variables of a shell in which only `python` and `cann` are named."""
    ours = ('ASCEND_RT_VISIBLE_DEVICES', 'VIRTUAL_ENV', 'NPU_TRAIN_PYTHON', 'NPU_TRAIN_TORCH_NPU', 'TORCH_NPU_INSTALL_PREFIX', 'LD_LIBRARY_PATH', 'PYTHONPATH',
            'NPU_TRAIN_SIM_CANN', 'ASCEND_HOME_PATH')
    out = {name: value for name, value in os.environ.items() if name not in ours}
    out['SIM_CANN_DEVICES'] = '2'
    if python: out['NPU_TRAIN_PYTHON'] = str(python)
    if cann: out['LD_LIBRARY_PATH'] = str(cann)
    return {**out, **more}
