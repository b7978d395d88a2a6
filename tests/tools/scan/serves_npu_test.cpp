#include "testing.hpp"

#include "npu_train/tools/scan/rewrite.hpp"
#include "npu_train/tools/scan/source_scan.hpp"

#include <algorithm>

#include "npu_train/io/file.hpp"
#include "tools/scan/project_files.hpp"

using namespace npu_train;
using npu_train::testing::has;
using npu_train::testing::put;
using npu_train::testing::TempDir;

namespace {

// A loader as written by libraries that run on both kinds of device.
constexpr const char* kLoader = R"(import torch

class Prefetch:
    def __init__(self, loader, device=torch.device('cuda')):
        self.loader = loader
        self.is_cuda = device.type == 'cuda' and torch.cuda.is_available()
        self.is_npu = device.type == 'npu' and torch.npu.is_available()

    def __iter__(self):
        if self.is_cuda:
            module = torch.cuda
        elif self.is_npu:
            module = torch.npu
        else:
            module = None
        stream = module.Stream() if module else None
        for x in self.loader:
            yield x

    def on_gpu(self):
        return self.is_cuda
)";

constexpr const char* kBackends = R"(import torch

BACKENDS = {
    "cuda": "nccl",
    "npu": "hccl",
    "cpu": "gloo",
}

def init(device):
    if device.startswith('cuda:'):
        torch.cuda.set_device(device)
    elif device.startswith('npu:'):
        torch.npu.set_device(device)

if torch.cuda.is_available():
    DEFAULT = 'cuda'
elif torch.npu.is_available():
    DEFAULT = 'npu'
else:
    DEFAULT = 'cpu'
)";

// An example that does not name any device.
constexpr const char* kMnist = R"(import argparse
import torch
import torch.nn as nn
import torch.nn.functional as F
from torchvision import datasets, transforms

def main():
    use_accel = torch.accelerator.is_available()
    device = torch.accelerator.current_accelerator() if use_accel else torch.device("cpu")
    loader = torch.utils.data.DataLoader(datasets.MNIST('../data', transform=transforms.ToTensor()))
    model = nn.Linear(784, 10).to(device)
    for data, target in loader:
        data, target = data.to(device), target.to(device)
        F.nll_loss(F.log_softmax(model(data), dim=1), target).backward()
)";

struct Rewritten {
  Rewritten(const std::string& name, const std::string& content) {
    put(dir / "in" / name, content);
    report = rewrite_source(dir / "in", dir / "out");
    text = read_file(dir / "out" / name, 1 << 20);
  }
  TempDir dir;
  Rewrite report;
  std::string text;
};

std::vector<std::string> rules_at(const SourceScan& scan, const std::string& found) {
  std::vector<std::string> out;
  for (const auto& f : scan.findings)
    if (f.text == found) out.push_back(f.rule);
  return out;
}

double hours_of(const std::string& code) {
  const TempDir dir;
  put(dir / "a.py", code);
  return scan_source(dir.path()).hours;
}

}  // namespace

TEST_CASE("code that serves CUDA and NPUs is left as it is, and listed") {
  for (const char* code : {kLoader, kBackends}) {
    const Rewritten made("a.py", code);
    CHECK(made.text == code);
    CHECK(made.report.changes == 0);
    const auto scan = scan_source(made.dir / "in");
    CHECK(scan.hours == 0);
    CHECK((scan.verdict == Feasibility::Ready));
    CHECK(has(to_text(scan), "serves-npu"));
    CHECK(has(to_text(scan), "unchanged"));
    for (const auto& f : scan.findings) CHECK(f.rule == "serves-npu");
  }
  const TempDir dir;
  put(dir / "a.py", kLoader);
  const auto scan = scan_source(dir.path());
  CHECK(scan.serves_npu == "a.py:7");
  CHECK(rules_at(scan, "torch.cuda") == std::vector<std::string>{"serves-npu"});
  CHECK(rules_at(scan, ".is_cuda").empty());  // the project's own name
}

TEST_CASE("adjacent code without NPU support is still rewritten") {
  const Rewritten made("a.py", std::string(kBackends) + "\ndef train(model):\n    model.cuda()\n    return torch.device('cuda')\n");
  CHECK(has(made.text, "model.npu()\n    return torch.device('npu')\n"));
  CHECK(has(made.text, "\"cuda\": \"nccl\",\n    \"npu\": \"hccl\""));
  CHECK(made.report.changes == 3);  // including the import of torch_npu
}

TEST_CASE("attributes of a tensor and of the project") {
  CHECK(has(Rewritten("a.py", "import torch\ndef f(x):\n    return x.is_cuda\n").text, "x.is_npu"));
  const Rewritten own("a.py",
                      "import torch\nclass A:\n    def __init__(self, x):\n        self.is_cuda = x.is_cuda\n    def f(self):\n        "
                      "return self.is_cuda\n");
  CHECK(has(own.text, "self.is_cuda = x.is_npu\n"));
  CHECK(has(own.text, "return self.is_cuda\n"));
  const Rewritten property("a.py",
                           "import torch\nclass A:\n    @property\n    def is_cuda(self):\n        return True\n    def f(self):\n        "
                           "return self.is_cuda\n");
  CHECK(has(property.text, "return self.is_cuda\n"));
}

TEST_CASE("the value of a key that is a device belongs to its key") {
  const Rewritten made("a.py", "import torch\nBACKEND = {\"cuda\": \"nccl\", \"cpu\": \"gloo\"}\nOTHER = {\"backend\": \"nccl\"}\n");
  CHECK(has(made.text, "BACKEND = {\"cuda\": \"nccl\", \"cpu\": \"gloo\"}\n"));
  CHECK(has(made.text, "OTHER = {\"backend\": \"hccl\"}\n"));
  CHECK(rules_at(made.report.remaining, "\"cuda\"") == std::vector<std::string>{"device-key"});
}

TEST_CASE("a list of kinds of accelerators is for a person") {
  const Rewritten made("a.py",
                       "import torch\nCAPTURABLE = [\"cuda\", \"xpu\", \"hpu\"]\nok = x in (\"mps\", \"cuda\")\ntorch.device(\"cuda\", 0)\n"
                       "f(\"cuda\", \"xpu\")\nONE = [\"cuda\", \"cpu\"]\n");
  CHECK(has(made.text,
            "[\"cuda\", \"xpu\", \"hpu\"]\nok = x in (\"mps\", \"cuda\")\ntorch.device(\"npu\", 0)\nf(\"npu\", \"xpu\")\n"
            "ONE = [\"npu\", \"cpu\"]\n"));
  CHECK(rules_at(made.report.remaining, "\"cuda\"") == std::vector<std::string>{"device-list", "device-list"});
}

TEST_CASE("code of a library that serves every accelerator by names of its own is left") {
  // Code as in Hugging Face's accelerate and OpenMMLab's mmengine.
  constexpr const char* kLibrary = R"(import os
from typing import Literal
import torch
from .imports import is_npu_available, is_xpu_available

Activity = Literal["cpu", "xpu", "cuda", "hpu"]

class Kind(Enum):
    TORCH = "torch"
    CUDA = "cuda"
    XPU = "xpu"
    NPU = "npu"

def is_cuda_available():
    with patch():
        available = torch.cuda.is_available()
    return available

def is_npu_available(check_device=False):
    return hasattr(torch, "npu")

class Holder(torch.nn.Module):
    def cuda(self, device=None):
        self.device = torch.device("cuda", index=device)
        return super().cuda(device)

    def npu(self, device=None):
        return super().npu(device)

def seed(value):
    torch.manual_seed(value)
    if is_xpu_available():
        torch.xpu.manual_seed_all(value)
    elif is_npu_available():
        torch.empty(1)
    else:
        torch.cuda.manual_seed_all(value)

def backend(kind):
    if kind == Kind.MULTI_NPU:
        return "x"
    return "nccl"

def peak(device_type):
    module = getattr(torch, device_type, torch.cuda)
    module.reset_peak_memory_stats()

def choose(env, ids):
    if is_npu_available():
        env["ASCEND_RT_VISIBLE_DEVICES"] = ids
    else:
        env["CUDA_VISIBLE_DEVICES"] = ids
)";
  const Rewritten made("a.py", kLibrary);
  CHECK(made.text == kLibrary);
  CHECK(made.report.changes == 0);
}

TEST_CASE("what only looks like the code of such a library is rewritten") {
  // there is no function for NPUs with such a name, no member for them in the class, and no variable for them next to this one
  const Rewritten made("a.py", R"(import os
import torch

class Kind:
    CUDA = "cuda"
    INPUT = "input"

def is_cuda_available():
    return torch.cuda.is_available()

def peak(kind):
    return getattr(torch, kind, None), torch.cuda.max_memory_allocated()

def main():
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"
    return torch.accelerator.current_accelerator()
)");
  CHECK(has(made.text, "CUDA = \"npu\""));
  CHECK(has(made.text, "return torch.npu.is_available()"));
  CHECK(has(made.text, "torch.npu.max_memory_allocated()"));
  CHECK(has(made.text, "\"ASCEND_RT_VISIBLE_DEVICES\""));
}

TEST_CASE("a test for DataParallel is no use of it") {
  const TempDir dir;
  put(dir / "a.py",
      "import torch\nfrom torch import nn\ndef f(model, g):\n"
      "    if isinstance(model, nn.DataParallel) or isinstance(g(model, [1]), (nn.parallel.DistributedDataParallel, nn.DataParallel)):\n"
      "        model = model.module\n"
      "    print(isinstance(nn.DataParallel(model), nn.Module), isinstance(model, int), (1, nn.DataParallel))\n"
      "    return nn.DataParallel(model)\n");
  std::vector<int64_t> lines;
  for (const auto& f : scan_source(dir.path()).findings)
    if (f.rule == "data-parallel") lines.push_back(f.line);
  CHECK((lines == std::vector<int64_t>{6, 6, 7}));
}

TEST_CASE("a key of YAML is no device") {
  const Rewritten made("a.yaml", "parameters:\n  cuda:\n    type: string\njobs:\n  - cuda:\n      device: cuda\n");
  CHECK(made.text == "parameters:\n  cuda:\n    type: string\njobs:\n  - cuda:\n      device: npu\n");
}

TEST_CASE("torch.accelerator needs no change and no hours") {
  const Rewritten made("main.py", kMnist);
  CHECK(made.text == kMnist);
  const auto scan = scan_source(made.dir / "in");
  CHECK(scan.hours == 0);
  CHECK((scan.verdict == Feasibility::Ready));
  CHECK(scan.serves_npu == "main.py:8");
}

TEST_CASE("a project that serves NPUs has met the limits of operators; another one checks each operator once") {
  const std::string operators =
      "import torch\nimport torch.nn.functional as F\ndef f(x):\n    a = F.interpolate(x, scale_factor=2)\n"
      "    b = torch.nn.functional.interpolate(x, size=3)\n    return a.double(), b, torch.nn.RNN(2, 3)\n";
  const auto once = hours_of(operators);
  CHECK(once > 0);
  CHECK(hours_of(operators + "def g(x):\n    return F.interpolate(x, size=5)\n") == once);  // the same operator again
  CHECK(hours_of(operators + "def g(x):\n    return F.grid_sample(x, x)\n") > once);
  CHECK(hours_of(operators + "def g(x):\n    return torch.npu.is_available()\n") == 0);
  // places that tie the project to CUDA still count
  CHECK(hours_of(operators + "def g(x):\n    return torch.npu.is_available()\ndef h(x):\n    return x.cuda()\n") > 0);
}

TEST_CASE("a rewritten copy is judged as what it was before") {
  const Rewritten made("a.py", "import torch\nimport torch.nn.functional as F\ndef f(x):\n    return F.interpolate(x.cuda(), size=3)\n");
  CHECK(made.report.changes > 0);
  CHECK(made.report.remaining.hours > 0);
  CHECK(made.report.remaining.serves_npu.empty());
  CHECK(scan_source(made.dir / "out").hours == made.report.remaining.hours);
}
