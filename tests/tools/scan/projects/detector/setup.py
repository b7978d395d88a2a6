import os

import torch
from setuptools import find_packages, setup
from torch.utils.cpp_extension import BuildExtension, CppExtension, CUDAExtension


def make_extension(name, sources, sources_cuda):
    macros = []
    args = {"cxx": []}
    if torch.cuda.is_available() or os.getenv("FORCE_CUDA", "0") == "1":
        macros += [("WITH_CUDA", None)]
        args["nvcc"] = ["-D__CUDA_NO_HALF_OPERATORS__"]
        return CUDAExtension(name, sources + sources_cuda, define_macros=macros, extra_compile_args=args)
    return CppExtension(name, sources)


setup(
    name="detector",
    packages=find_packages(),
    install_requires=["mmcv-full>=1.3.8", "torch>=1.8", "spconv-cu117", "numpy"],
    extras_require={"cuda": ["cupy-cuda11x"]},
    ext_modules=[make_extension("detector.ops.box_ext", ["detector/ops/src/box.cpp"], ["detector/ops/src/box_kernel.cu"])],
    cmdclass={"build_ext": BuildExtension},
)
