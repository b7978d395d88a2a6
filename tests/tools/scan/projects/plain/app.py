"""Talks about cuda and nccl and torch.cuda, and uses none."""
import numpy as np
from nothing import cuda_cores, cudaish


class Shop:
    '''DataParallel, .cuda(), "cuda"'''

    cuda_cores = 8

    def sell(self, gpu):
        # gpu.cuda(); torch.cuda.is_available()
        print("cuda is great", 'buy "cuda" now', f"{gpu.cuda_cores} cuda cores", gpu.cuda)
        catalogue = {"title": "The cuda book"}
        shelf = catalogue["cuda"]
        total = np.double(3) + self.cuda_cores + cudaish(cuda_cores)
        return total, shelf, "nccl-tests", "CUDA_VISIBLE_DEVICES is a variable", "cuda toolkit", b"\x00cuda"


def target(config):
    import tvm
    return tvm.cuda(0), tvm.target.cuda, [config[name] for name in ("cudart", "cuda-11", "cuda/lib")]
