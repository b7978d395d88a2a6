#include "testing.hpp"

#include "npu_train/tools/scan/source_scan.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "npu_train/io/file.hpp"
#include "tools/scan/project_files.hpp"

using namespace npu_train;
using npu_train::testing::error_of;
using npu_train::testing::has;
using npu_train::testing::kProjects;
using npu_train::testing::project;
using npu_train::testing::put;
using npu_train::testing::TempDir;
namespace fs = std::filesystem;

namespace {

// Returns "file:line<tab>rule<tab>text -> replacement" for each finding, the form in which files *.expected list them.
std::vector<std::string> lines_of_findings(const SourceScan& scan) {
  std::vector<std::string> out;
  for (const auto& f : scan.findings)
    out.push_back(f.file + ":" + std::to_string(f.line) + "\t" + f.rule + "\t" + f.text + (f.mechanical ? " -> " + f.replacement : ""));
  return out;
}

std::vector<std::string> lines_of_file(const fs::path& path) {
  std::ifstream file(path);
  std::vector<std::string> out;
  for (std::string line; std::getline(file, line);) out.push_back(line);
  return out;
}

// Returns the rules that one file raises, in order, as "1:rule 2:rule"; a mechanical one has its replacement: "1:rule=text".
std::string found(const std::string& name, const std::string& content) {
  const TempDir dir;
  put(dir / name, content);
  std::string out;
  for (const auto& f : scan_source(dir.path()).findings) {
    if (f.rule == "npu-import") continue;
    out += (out.empty() ? "" : " ") + std::to_string(f.line) + ":" + f.rule + (f.mechanical ? "=" + f.replacement : "");
  }
  return out;
}

double sum_of_findings(const SourceScan& scan) {
  double sum = 0;
  for (const auto& f : scan.findings) sum += f.hours;
  return sum;
}

const RuleUse* rule(const SourceScan& scan, const std::string& id) {
  const auto it = std::find_if(scan.rules.begin(), scan.rules.end(), [&](const RuleUse& r) { return r.id == id; });
  return it == scan.rules.end() ? nullptr : &*it;
}

}  // namespace

TEST_CASE("projects as people write them: every place, and no other") {
  for (const std::string name : kProjects) {
    CAPTURE(name);
    const auto expected = lines_of_file(project(name + ".expected"));
    const auto got = lines_of_findings(scan_source(project(name)));
    for (const auto& line : expected) CHECK_MESSAGE(std::count(got.begin(), got.end(), line) > 0, "missed: ", line);
    for (const auto& line : got) CHECK_MESSAGE(std::count(expected.begin(), expected.end(), line) > 0, "false alarm: ", line);
    CHECK(got.size() == expected.size());
  }
}

TEST_CASE("the verdict follows the worst rule") {
  CHECK((scan_source(project("plain")).verdict == Feasibility::Ready));
  CHECK((scan_source(project("resnet_ddp")).verdict == Feasibility::FeasibleWithChanges));
  CHECK((scan_source(project("cpp_classifier")).verdict == Feasibility::Blocked));
  const TempDir dir;
  put(dir / "a.py", "import deepspeed\nimport torch\ntorch.backends.cudnn.benchmark = True\n");
  CHECK((scan_source(dir.path()).verdict == Feasibility::Ready));  // only notes
  put(dir / "b.py", "import bmtrain\n");
  CHECK((scan_source(dir.path()).verdict == Feasibility::Blocked));
}

TEST_CASE("effort is the sum of the hours of the findings") {
  for (const std::string name : {"resnet_ddp", "detector", "llm_finetune", "cpp_classifier"}) {
    const auto scan = scan_source(project(name));
    CHECK(scan.hours == doctest::Approx(sum_of_findings(scan)));
    CHECK(scan.hours > scan.hours_mechanical);
    double by_rule = 0;
    for (const auto& use : scan.rules) by_rule += use.hours;
    CHECK(scan.hours == doctest::Approx(by_rule));
  }
  const TempDir dir;
  put(dir / "a.py", "import torch\nm = torch.nn.DataParallel(m)\nn = torch.nn.DataParallel(n)\n");
  put(dir / "b.py", "import torch\na = torch.compile(a)\nb = torch.compile(b)\nc = torch.jit.script(c)\nd = torch.jit.script(d)\n");
  put(dir / "c.py", "import torch\na = torch.compile(a)\nc = torch.jit.script(c)\n");
  const auto scan = scan_source(dir.path());
  const auto *place = rule(scan, "data-parallel"), *project = rule(scan, "compile"), *file = rule(scan, "jit-script");
  REQUIRE((place != nullptr && project != nullptr && file != nullptr));
  CHECK(place->hours == 8);    // 4 h for each place
  CHECK(project->hours == 4);  // once
  CHECK(project->places == 3);
  CHECK(file->hours == 4);  // 2 h for each of two files
  CHECK(scan.hours == 16);
}

TEST_CASE("a library and its parts that have rules of their own are counted once") {
  const auto hours = [](const std::string& text) {
    const TempDir dir;
    put(dir / "a.py", text);
    const auto scan = scan_source(dir.path());
    CHECK(scan.hours == doctest::Approx(sum_of_findings(scan)));
    double of_libraries = 0;
    for (const auto& library : scan.libraries) of_libraries += library.hours;
    return std::pair(scan.hours, of_libraries);
  };
  CHECK((hours("import apex\n") == std::pair(2.0, 2.0)));
  CHECK((hours("from apex.optimizers import FusedAdam\no = FusedAdam(p)\n") == std::pair(2.0, 0.0)));
  CHECK((hours("from apex import amp\nfrom apex.optimizers import FusedAdam\no = FusedAdam(p)\nm, o = amp.initialize(m, o)\n") ==
         std::pair(4.0, 0.0)));
  CHECK((hours("from xformers.ops import memory_efficient_attention\n") == std::pair(4.0, 3.0)));
  CHECK((hours("from xformers.ops import memory_efficient_attention\ny = memory_efficient_attention(q, k, v)\n") == std::pair(4.0, 3.0)));
  CHECK((hours("from colossalai.nn.optimizer import HybridAdam\no = HybridAdam(p)\n") == std::pair(8.0, 6.0)));
  CHECK((hours("import bitsandbytes as bnb\no = bnb.optim.Adam8bit(p)\n") == std::pair(8.0, 6.0)));
  const TempDir dir;
  put(dir / "a.py", "from xformers.ops import memory_efficient_attention\n");
  CHECK(has(to_text(scan_source(dir.path())), "Of its 4 h, 1 h are counted in xformers-attention."));
}

TEST_CASE("Python: names are followed through imports") {
  CHECK(found("a.py", "import torch as t\nt.cuda.synchronize()\n") == "2:cuda-api=t.npu.synchronize");
  CHECK(found("a.py", "from torch import cuda\ncuda.synchronize()\n") == "1:cuda-import=torch_npu, npu as cuda");
  CHECK(found("a.py", "from torch import nn, cuda\ncuda.empty_cache()\n") == "1:cuda-import");
  CHECK(found("a.py", "import torch.cuda.amp as amp\nwith amp.autocast():\n  pass\n") == "1:cuda-amp=torch_npu.npu.amp");
  CHECK(found("a.py", "import torch.cuda\ntorch.cuda.init()\n") == "1:cuda-import=torch 2:cuda-api=torch.npu.init");
  CHECK(found("a.py", "import torch.nn as nn\nnn.DataParallel(m)\n") == "2:data-parallel");
  CHECK(found("a.py", "from torch.nn import DataParallel as DP\nm = DP(m)\n") == "2:data-parallel");
  CHECK(found("a.py", "from torch.nn import (\n  Linear,  # one\n  DataParallel as DP,\n)\n") == "3:data-parallel");
  CHECK(found("a.py", "from torch.nn import *\nm = DataParallel(m)\n") == "2:data-parallel");
  CHECK(found("a.py", "from .nn import DataParallel\nm = DataParallel(m)\n").empty());
  CHECK(found("a.py", "from torch.cuda import *\nfor x in range(3): print(x, is_available())\n") ==
        "1:cuda-import=torch_npu.npu 2:cuda-api");
  CHECK(found("a.py", "from apex.optimizers import FusedAdam\no = FusedAdam(p)\n") == "1:library:apex 2:apex-fused");
  CHECK(found("a.py", "import torch\nx = torch.cuda.FloatTensor(1)\ny = torch.cuda.DoubleTensor(1)\n") ==
        "2:cuda-api=torch.npu.FloatTensor 3:float64");
  CHECK(found("a.py", "import torch\ntorch.cuda.random.get_rng_state()\n") == "2:cuda-api=torch.npu.random.get_rng_state");
  CHECK(found("a.py", "import torch\nif hasattr(torch.cuda, 'x'): pass\n") == "2:cuda-api=torch.npu");
  CHECK(found("a.py", "import torch\ntorch.cuda.of_tomorrow()\n") == "2:cuda-api-missing");
  CHECK(found("a.py", "import torch.distributed as dist\ndist.is_nccl_available()\n") == "2:nccl=dist.is_hccl_available");
  CHECK(found("a.py", "import numpy as np\nnp.double(3)\nimport tvm\ntvm.cuda(0)\n").empty());
}

TEST_CASE("Python: .cuda() of any receiver") {
  CHECK(found("a.py", "x.cuda()\n") == "1:cuda-method=.npu");
  CHECK(found("a.py", "f(x)[0].cuda(non_blocking=True)\n") == "1:cuda-method=.npu");
  CHECK(found("a.py", "y = [t.cuda() for t in ts]\n") == "1:cuda-method=.npu");
  CHECK(found("a.py", "self.net \\\n  .cuda()\n") == "2:cuda-method=.npu");
  CHECK(found("a.py", "print(f'{x.cuda().sum():.3f} of {y.is_cuda}')\n") == "1:cuda-method=.npu 1:cuda-method=.is_npu");
  CHECK(found("a.py", "print(f'{{x.cuda()}}', 'y.cuda()')\n").empty());
  CHECK(found("a.py", "x = args.cuda\ncuda = 3\nx.cuda_cores()\n").empty());
  CHECK(found("a.py", "class A:\n  def cuda(self): pass\n  def f(self): self.cuda(); x.cuda()\n") ==
        "2:own-cuda-method 3:cuda-method 3:cuda-method=.npu");
}

TEST_CASE("Python: texts that are devices, and texts that are not") {
  CHECK(found("a.py", "x.to('cuda')\n") == "1:device-string=npu");
  CHECK(found("a.py", "x.to(device=\"cuda:1\")\n") == "1:device-string=npu:1");
  CHECK(found("a.py", "d = f'cuda:{rank}'\n") == "1:device-string=npu:{rank}");
  CHECK(found("a.py", "d = 'cuda:%d' % i, 'cuda:{}'.format(i), 'cuda:' + i\n") ==
        "1:device-string=npu:%d 1:device-string=npu:{} 1:device-string=npu:");
  CHECK(found("a.py", "init(backend='nccl')\ninit('cpu:gloo,cuda:nccl')\n") == "1:nccl=hccl 2:device-string=npu 2:nccl=hccl");
  CHECK(found("a.py", "d = ['cuda', 'cpu', 'cuda:0,cuda:1']\n") == "1:device-string=npu 1:device-string=npu 1:device-string=npu");
  CHECK(found("a.py", "d = {'cuda': 1}\n") == "1:device-key");
  CHECK(found("a.py", "x = d['cuda']\n").empty());
  CHECK(found("a.py", "def f():\n  return ['cuda']\n") == "2:device-string=npu");
  CHECK(found("a.py", "t = x.type('torch.cuda.HalfTensor')\n") == "1:cuda-api=torch.npu.HalfTensor");
  CHECK(found("a.py", "print('cuda is great', 'cuda.', 'cudart', 'no cuda', 'cuda 11', 'cuda:fast', 'cuda/x', 'nccl-tests')\n").empty());
  CHECK(found("a.py", "'''cuda'''\n\"cuda\"\n__all__ = ['cuda']\n").empty());
  CHECK(found("a.py", "def f():\n  \"\"\"\n  x.cuda()\n  'cuda'\n  \"\"\"\n  # 'cuda' x.cuda()\n").empty());
  CHECK(found("a.py", "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '0'\nos.getenv('NCCL_DEBUG')\nprint('NCCL_DEBUG is set')\n") ==
        "2:cuda-env=ASCEND_RT_VISIBLE_DEVICES 3:cuda-env-missing");
}

TEST_CASE("C++: names, methods, headers, kernels") {
  CHECK(found("a.cpp", "auto d = torch::kCUDA;\n") == "1:cuda-enum=torch::kPrivateUse1");
  CHECK(found("a.cpp", "using namespace torch;\nauto d = Device(kCUDA, 1);\n") == "2:cuda-enum=kPrivateUse1");
  CHECK(found("a.cpp", "namespace c = torch::cuda;\nc::synchronize();\n") == "2:cuda-cpp-api");
  CHECK(found("a.cpp", "using namespace at::cuda;\nvoid f(int a) { if (a) g(std::min(a, 1)); getCurrentCUDAStream(); }\n") ==
        "1:cuda-cpp-api 2:cuda-cpp-api");
  CHECK(found("a.cpp", "using namespace torch;\nvoid f() { g(); cuda::f(); }\nnamespace at::cuda {}\n") == "2:cuda-cpp-api");
  CHECK(found("a.cpp", "auto y = x.cuda() + p->cuda(1);\n") == "1:cuda-method=.to(at::kPrivateUse1) 1:cuda-method");
  CHECK(found("a.cpp", "bool b = x.is_cuda() || a.cuda;\n") == "1:cuda-method=.is_privateuseone");
  CHECK(found("a.cpp", "torch::Device d(\"cuda:0\"); // \"cuda\"\n") == "1:device-string=npu:0");
  CHECK(found("a.cpp", "auto s = R\"x(torch::kCUDA)\" )x\"; char c = '\"'; /* kCUDA */ int n = 1'000;\n").empty());
  CHECK(found("a.cpp", "log(\"cuda is great\"); int cuda_cores, cudaDevices;\n").empty());
  CHECK(found("a.cpp", "#include <cuda_runtime.h>\n#include \"ATen/cuda/CUDAContext.h\"\n#include \"cuda_helpers.h\"\n") ==
        "1:cuda-header 2:cuda-header");
  CHECK(found("a.cpp", "#define T cudaStream_t\nvoid f() { cudaFree(p); ncclSend(p); cublasSgemm(h); }\n") ==
        "1:cuda-runtime 2:cuda-runtime 2:nccl-api 2:cuda-library");
  CHECK(found("a.cpp", "auto d = torch::\n  kCUDA;\n") == "1:cuda-enum");  // left to a person
  CHECK(found("a.cpp", "std::cout <<x; using A = B<C<D<int>>>; bool operator<<<T>(A);\n").empty());
  CHECK(found("a.cpp", "TORCH_LIBRARY_IMPL(ops, CUDA, m) {}\nTORCH_LIBRARY_IMPL(ops, CPU, m) {}\n") == "1:cuda-cpp-api");
  CHECK(found("a.cpp", "using namespace at;\nint mode = 0; auto h = at::heaviside(a, b);\n") == "2:unsupported-api");
  CHECK(found("a.cu", "__global__ void k(int* p) {}\nvoid f(at::Tensor x) { k<<<1, 2>>>(x.cuda()); }\n") ==
        "1:cuda-kernel 2:kernel-launch 2:cuda-method");  // CUDA sources are not rewritten
}

TEST_CASE("notebooks, code in scripts, extensions, streams and gpu as a name") {
  CHECK(found("a.ipynb", "{\"cells\": [{\"cell_type\": \"code\",\n\"source\": [\n\"import apex\\n\",\n\"x.cuda()\"\n]}]}") ==
        "3:library:apex 4:cuda-method=.npu");
  CHECK(found("a.ipynb", "{\"cells\": [{\"cell_type\": \"code\", \"source\": [\"%%bash\\n\", \"x.cuda()\"]}]}").empty());
  CHECK(found("a.ipynb", "{\"cells\": [{\"cell_type\": \"raw\", \"source\": [\"x.cuda()\"]}]}").empty());
  CHECK(found("a.ipynb", "no notebook\n") == "1:notebook");
  CHECK(found("a.sh", "python -c 'x.cuda()'; bash -c 'x.cuda()'\npython <<E\n\nx.cuda()\nE\n") == "1:cuda-method=.npu 4:cuda-method=.npu");
  CHECK(found("a.sh", "cat <<E | python3 > log\nx.cuda()\nE\npython <<E | tee log\nx.cuda()\nE\ncat <<E | tee log\nx.cuda()\nE\n") ==
        "2:cuda-method=.npu 5:cuda-method=.npu");
  CHECK(found("Dockerfile", "ARG T=1\nFROM pytorch/pytorch:2.1.0-cuda12.1-cudnn8-runtime AS base\nFROM docker.io/nvidia/cuda:12.1.0\n") ==
        "2:container 3:container");
  CHECK(found("Containerfile", "FROM nvidia/cuda:12.1.0-devel\nRUN python3 -c 'import torch; torch.cuda.init()'\n") ==
        "1:container 2:cuda-api=torch.npu.init");
  CHECK(found("a.py", "from torch.utils.cpp_extension import load\nm = load(name='a', sources=['a.cpp'])\n") == "2:cpp-extension");
  CHECK(
      found("a.py", "from torch.utils import cpp_extension\ncpp_extension.load_inline('a', '')\ncpp_extension.CUDAExtension('a', [])\n") ==
      "2:cpp-extension 3:cuda-extension");
  CHECK(found("setup.py", "from torch.utils.cpp_extension import CUDAExtension, BuildExtension\nx = CUDAExtension('a', [])\n") ==
        "2:cuda-extension");
  CHECK(found("a.py", "import torch\nk(torch.cuda.current_stream().cuda_stream, s.cuda_stream)\n") ==
        "2:cuda-api=torch.npu.current_stream 2:cuda-stream 2:cuda-stream");
  CHECK(found("a.py", "t = Trainer(accelerator='gpu', devices=1)\nf(device=\"gpu\")\ng(accelerator='cpu')\n") == "1:gpu-name 2:gpu-name");
  CHECK(found("a.yaml", "trainer:\n  accelerator: gpu\n  device: \"gpu\"\n  name: gpu\n") == "2:gpu-name 3:gpu-name");
}

TEST_CASE("CMake, shell, containers, settings, packages") {
  CHECK(found("CMakeLists.txt", "# find_package(CUDA)\nFIND_PACKAGE(CUDA REQUIRED)\nmessage(\"CUDA is found\")\n") == "2:cmake-cuda");
  CHECK(found("CMakeLists.txt", "find_package(Torch)\n") == "1:cmake-torch");
  CHECK(found("CMakeLists.txt", "find_package(Torch)\nfind_package(Torch_npu)\n").empty());
  CHECK(found("x.cmake", "enable_language(CUDA)\ncuda_add_library(x x.cu)\ntarget_link_libraries(x CUDA::cublas ${CUDA_LIBRARIES})\n") ==
        "1:cmake-cuda 2:cmake-cuda 2:cuda-extension 3:cmake-cuda");
  CHECK(found("a.sh", "CUDA_VISIBLE_DEVICES=0 python a.py --device=cuda:0 'cuda is great'\n/usr/bin/nvidia-smi\n# nvcc\n") ==
        "1:cuda-env=ASCEND_RT_VISIBLE_DEVICES 1:device-string=npu:0 2:cuda-tool");
  CHECK(found("a.sh", "echo \"uses $CUDA_VISIBLE_DEVICES\" ${NCCL_DEBUG:-x}\ncat <<A\ncuda nvcc\nA\ntorchrun x\n") ==
        "1:cuda-env=ASCEND_RT_VISIBLE_DEVICES 1:cuda-env-missing 5:launcher");
  CHECK(found("Dockerfile", "FROM nvcr.io/nvidia/pytorch:23.10-py3\n") == "1:container");
  CHECK(found("Dockerfile.in", "FROM nvcr.io/nvidia/pytorch:23.10-py3\n") == "1:container");
  CHECK(found("a.yaml", "device: cuda\nname: cuda is great\nd: [\"cuda\"]\nenv:\n  CUDA_VISIBLE_DEVICES: 0\n") ==
        "1:device-string=npu 3:device-string=npu 5:cuda-env=ASCEND_RT_VISIBLE_DEVICES");
  CHECK(found("a.json", "{\"cuda\": \"cuda\", \"a\": \"cuda is great\"}\n") == "1:device-string=npu");
  CHECK(found("requirements-dev.txt", "# apex\nFlash_Attn>=2 ; python_version > '3'\nspconv-cu118\ntorch\n") ==
        "2:library:flash_attn 3:library:spconv");
  CHECK(found("requirements.txt", "apex @ git+https://x.org/a.git\ngit+ssh://git@github.com/NVIDIA/apex.git@dev/x\n-r deepspeed\n") ==
        "1:library:apex 2:library:apex");
  CHECK(found("pyproject.toml", "[tool.poetry.dependencies]\npython = '^3.9'\nbmtrain = '*'\n[tool.x]\napex = 1\n") == "3:library:BMTrain");
  CHECK(found("setup.cfg", "[options]\ninstall_requires =\n    apex\n    numpy\n[x]\ny = apex\n") == "3:library:apex");
}

TEST_CASE("modules of the project itself are no third-party libraries") {
  const TempDir dir;
  put(dir / "composer/__init__.py", "");
  put(dir / "tools/triton.py", "");
  put(dir / "main.py", "import composer\nimport triton\n");
  put(dir / "tools/run.py", "import triton\n");
  const auto scan = scan_source(dir.path());
  REQUIRE(scan.libraries.size() == 1);
  CHECK(scan.libraries[0].name == "triton");
  CHECK(scan.libraries[0].first_place == "main.py:2");
  CHECK(scan.libraries[0].places == 1);
}

TEST_CASE("folders that are no projects are refused") {
  const TempDir dir;
  const auto missing = error_of([&] { scan_source(dir / "missing"); });
  CHECK((missing.kind() == ErrorKind::Usage));
  CHECK(has(missing.what(), "does not exist"));
  put(dir / "file.py", "x = 1\n");
  CHECK((error_of([&] { scan_source(dir / "file.py"); }).kind() == ErrorKind::Usage));
  put(dir / "images/a.png", "\x89PNG");
  const auto none = error_of([&] { scan_source(dir / "images"); });
  CHECK((none.kind() == ErrorKind::Data));
  CHECK(has(none.what(), "no source files"));
  fs::create_directory(dir / "empty");
  CHECK((error_of([&] { scan_source(dir / "empty"); }).kind() == ErrorKind::Data));
  put(dir / "images/b.png", "");
  const auto many = error_of([&] { scan_source(dir / "images", {.max_files = 1}); });
  CHECK((many.kind() == ErrorKind::Data));
  CHECK(has(many.what(), "more than 1 files"));
}

TEST_CASE("binary files, large files and links in circles do no harm") {
  const TempDir dir;
  put(dir / "p/a.py", "x.cuda()\n");
  put(dir / "p/binary.py", std::string("x.cuda()\0\1\2", 11));
  put(dir / "p/wide.py", std::string("\xFF\xFEx\0.\0", 6));
  put(dir / "p/noise.cpp", std::string(1000, '\1') + "x.cuda();");
  put(dir / "p/large.py", "x.cuda()\n" + std::string(5000, ' '));
  put(dir / "outside.py", "y.cuda()\n");
  fs::create_directory_symlink(".", dir / "p/circle");
  fs::create_symlink("b", dir / "p/a_link");
  fs::create_symlink("a_link", dir / "p/b");
  fs::create_symlink("../outside.py", dir / "p/out.py");
  fs::create_directory_symlink("/", dir / "p/root");
  put(dir / "p/.git/hook.py", "x.cuda()\n");
  put(dir / "p/build/gen.py", "x.cuda()\n");
  put(dir / "p/env/pyvenv.cfg", "");
  put(dir / "p/env/lib/x.py", "x.cuda()\n");
  const auto scan = scan_source(dir / "p", {.max_file_bytes = 4096});
  CHECK(lines_of_findings(scan) == std::vector<std::string>{"a.py:1\tcuda-method\t.cuda -> .npu"});
  CHECK(scan.files == 1);
  CHECK(scan.binary_files == 3);
  CHECK(scan.links == 5);
  CHECK(scan.folders_skipped == 3);
  std::string notes;
  for (const auto& note : scan.notes) notes += note + "\n";
  CHECK(has(notes, "large.py: not scanned: "));
  CHECK(has(notes, "binary.py: not text"));
}

TEST_CASE("names and texts of files cannot act on a terminal") {
  const TempDir dir;
  put(dir / "a\x1b[31m\xff\n.py", "x.to(\"cuda\")\n");
  put(dir / "b.py", "# \xe9\xe9 latin-1\nx.to('cuda')\n");
  put(dir / "c.py", "h\xC3\xA9 = x.cuda()\n");
  put(dir / "d.py", "import torch\ntorch.cuda.x\xE2\x80\xAEy()\n");
  const auto scan = scan_source(dir.path());
  REQUIRE(scan.findings.size() == 4);
  CHECK(scan.findings[0].file == "a\\x1b[31m\\xff\\n.py");
  CHECK(scan.findings[1].line == 2);
  CHECK(scan.findings[2].column == 7);  // counted in characters, not bytes
  CHECK(scan.findings[3].text == "torch.cuda.x\\u202ey");
}

TEST_CASE("a million lines are read; findings are capped, counts are not") {
  const TempDir dir;
  std::string text = "import torch\n";
  for (int i = 0; i < 25'000; ++i) text += "x = 1\n# 'cuda'\ny = x.cuda()\n\n";
  for (int i = 0; i < 10; ++i) put(dir / ("f" + std::to_string(i) + ".py"), text);
  const auto scan = scan_source(dir.path(), {.places_per_rule_and_file = 3});
  CHECK(scan.lines == 10 * 100'001);
  CHECK(scan.findings.size() == 10 * (3 + 1));
  CHECK(scan.places == 10 * 25'001);
  REQUIRE(rule(scan, "cuda-method") != nullptr);
  CHECK(rule(scan, "cuda-method")->places == 250'000);
  CHECK(scan.hours == doctest::Approx(250'010 * 0.05));
  CHECK(scan_source(dir.path(), {.findings = 7}).findings.size() == 7);
}

TEST_CASE("texts that are not well formed end, in time that grows with their length") {
  constexpr size_t kBytes = 1 << 20;
  const auto repeated = [](const std::string& head, const std::string& part) {
    auto out = head;
    while (out.size() < kBytes) out += part;
    return out;
  };
  for (const auto& [name, head, part] :
       std::vector<std::tuple<std::string, std::string, std::string>>{{"a.py", "f\"\"\"", "{"},
                                                                      {"b.py", "", "f\"{"},
                                                                      {"c.py", "", "["},
                                                                      {"d.py", "import torch\n", "x.cuda();"},
                                                                      {"e.py", "torch.cuda", ".a"},
                                                                      {"f.py", "", "import "},
                                                                      {"g.cpp", "", "R\"("},
                                                                      {"h.cpp", "", "a::"},
                                                                      {"i.cu", "", "x<<<"},
                                                                      {"j.cpp", "", "'"},
                                                                      {"k.sh", "", "cat <<A\n"},
                                                                      {"l.sh", "", "\""},
                                                                      {"m.json", "", "\"a\" "},
                                                                      {"n.yaml", "", "- "},
                                                                      {"x.cmake", "", "f("},
                                                                      {"pyproject.toml", "", "dependencies = [\""},
                                                                      {"setup.py", "", "require=["},
                                                                      {"requirements.txt", "", "torch+cu1 /whl/cu"},
                                                                      {"o.py", "", "from x import *\n"},
                                                                      {"p.cpp", "", "using namespace a;"},
                                                                      {"q.py", "", "f'{f\""},
                                                                      {"r.py", "", "\\\n"},
                                                                      {"s.cpp", "", "__global__ "}}) {
    CAPTURE(name);
    const TempDir dir;
    put(dir / name, repeated(head, part));
    CHECK(scan_source(dir.path()).files == 1);
  }
}

TEST_CASE("a string goes on after a backslash at the end of the line, also of one that ends in two characters") {
  for (const std::string end : {"\n", "\r\n"}) {
    CHECK(found("a.py", "f('a\\" + end + "b', 'cuda')" + end) == "2:device-string=npu");
    CHECK(found("a.cpp", "f(\"a\\" + end + "b\", \"cuda\");" + end) == "2:device-string=npu");
  }
}

TEST_CASE("atomic operations and sums in fp16 are named") {
  CHECK(found("a.cu", "__global__ void f(float* x) { atomicAdd(x, 1.0f); }\n") == "1:cuda-kernel 1:atomics");
  CHECK(found("a.cu", "__device__ half g(half a, half b) { return __hadd(a, b); }\n") == "1:cuda-device-code 1:fp16-accumulation");
  CHECK(found("a.cpp", "std::atomic<int> n; n.fetch_add(1);\n").empty());
  CHECK(found("a.py", "import torch\ny.index_add_(0, i, x)\ntorch.scatter_add(y, 0, i, x)\n") == "2:atomic-sum 3:atomic-sum");
  CHECK(found("a.py", "import torch\ntorch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = True\n") == "2:fp16-accumulation");
}

TEST_CASE("each place says who makes the change") {
  const TempDir dir;
  put(dir / "a.py", "import torch\nx.cuda()\ntorch.cuda.nvtx.range_push('a')\nos.environ['CUDA_VISIBLE_DEVICES'] = '0'\n");
  put(dir / "a.cpp", "auto y = x.to(torch::kCUDA);\nf(\"cuda\");\n");
  put(dir / "a.sh", "python a.py --device cuda\ntorchrun a.py\n");
  const auto scan = scan_source(dir.path());
  std::string text;
  for (const auto& f : scan.findings) text += f.file + ":" + std::to_string(f.line) + " " + f.rule + " " + to_string(f.done_by) + "\n";
  CHECK(text ==
        "a.cpp:1 cuda-enum tool\na.cpp:2 device-string tool\na.py:1 npu-import tool\na.py:2 cuda-method automatic\na.py:3 nvtx hand\n"
        "a.py:4 cuda-env tool\na.sh:1 device-string automatic\na.sh:2 launcher nobody\n");
  int64_t places = 0;
  for (const auto& [who, n] : scan.done_by) places += n;
  CHECK(places == scan.places);
  CHECK(scan.done_by.at(DoneBy::Automatic) == 2);
}

TEST_CASE("the place behind what is not well formed is still found") {
  CHECK(found("a.py", "x = ((\nimport torch\ntorch.cuda.init()\n") == "3:cuda-api=torch.npu.init");
  CHECK(found("a.py", "x = 'never closed\ny.cuda()\n") == "2:cuda-method=.npu");
  CHECK(found("a.py", "x = f'{a'\ny.cuda()\n") == "2:cuda-method=.npu");
  CHECK(found("a.py", "x = f\"{a:'>10}{b.cuda()}\"\n") == "1:cuda-method=.npu");
  CHECK(found("a.cpp", "#error don't\nauto d = torch::kCUDA;\nconst char* s = \"open\nx.cuda();\n") ==
        "2:cuda-enum=torch::kPrivateUse1 4:cuda-method=.to(at::kPrivateUse1)");
}
