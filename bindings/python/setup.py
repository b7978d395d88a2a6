"""pip install bindings/python: copies the C interface of the build (NPU_TRAIN_BUILD, by default build/ of the checkout) into the package."""
import os
import pathlib
import shutil

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

NAME = 'libnpu_train_c.so.1'
HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get('NPU_TRAIN_BUILD', HERE.parents[1] / 'build'))


class WithLibrary(build_py):
    def run(self):
        super().run()
        library = BUILD / 'lib' / NAME
        if not library.is_file(): raise SystemExit(f'npu_train: there is no {library}; build it first: scripts/setup (NPU_TRAIN_BUILD names another build)')
        target = pathlib.Path(self.build_lib) / 'npu_train/lib'
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, target / NAME)
        if (BUILD / 'lib/npu_train').is_dir(): shutil.copytree(BUILD / 'lib/npu_train', target / 'npu_train', dirs_exist_ok=True)


class OfOnePlatform(Distribution):
    def has_ext_modules(self): return True


setup(cmdclass={'build_py': WithLibrary}, distclass=OfOnePlatform)
