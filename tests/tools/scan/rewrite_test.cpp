#include "testing.hpp"

#include "npu_train/tools/scan/rewrite.hpp"

#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <map>

#include "npu_train/core/hash.hpp"
#include "npu_train/io/file.hpp"
#include "only_if.hpp"
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

std::string content_of(const fs::path& path) { return read_file(path, 1 << 26); }

// Returns the content and mode of every file, folder and link in a tree, and with `times` also the time of the last change.
std::map<std::string, std::string> tree(const fs::path& root, bool times = false) {
  std::map<std::string, std::string> out;
  for (fs::recursive_directory_iterator it(root), end; it != end; ++it) {
    if (it->path().filename() == "npu_migration") {
      it.disable_recursion_pending();
      continue;
    }
    struct stat status {};
    REQUIRE(::lstat(it->path().c_str(), &status) == 0);
    auto text = std::to_string(status.st_mode) + " ";
    if (times) text += std::to_string(status.st_mtim.tv_sec) + "." + std::to_string(status.st_mtim.tv_nsec) + " ";
    if (it->is_symlink()) {
      text += fs::read_symlink(it->path()).string();
    } else if (it->is_regular_file()) {
      text += hex64(hash64(content_of(it->path())));
    }
    out[fs::relative(it->path(), root).string()] = text;
  }
  return out;
}

std::string after(const std::string& name, const std::string& content, bool distributed = false) {
  const TempDir dir;
  put(dir / "in" / name, content);
  if (distributed) put(dir / "in/parallel.py", "import torch\nm = torch.nn.DataParallel(m)\n");
  rewrite_source(dir / "in", dir / "out", {.distributed = distributed});
  return content_of(dir / "out" / name);
}

// Like after(), but with one process for each NPU.
std::string on_ranks(const std::string& content) { return after("a.py", content, true); }

// Runs `patch` in `folder`.
int patch(const fs::path& folder, const fs::path& diff) {
  return std::system(("cd '" + folder.string() + "' && patch -s -p1 < '" + diff.string() + "' > /dev/null 2>&1").c_str());
}

}  // namespace

TEST_CASE("a rewrite leaves the original alone, and a second one changes nothing") {
  for (const std::string name : kProjects) {
    CAPTURE(name);
    const TempDir dir;
    fs::copy(project(name), dir / "in", fs::copy_options::recursive);
    const auto before = tree(dir / "in", true);
    const auto first = rewrite_source(dir / "in", dir / "out");
    CHECK((tree(dir / "in", true) == before));
    CHECK(first.remaining.hours_mechanical == 0);
    const auto second = rewrite_source(dir / "out", dir / "again");
    CHECK(second.changes == 0);
    CHECK(second.files_changed == 0);
    CHECK((tree(dir / "again") == tree(dir / "out")));
    CHECK(content_of(dir / "again/npu_migration/changes.diff").empty());
    const auto scan = scan_source(dir / "in");
    int64_t mechanical = 0;
    for (const auto& rule : scan.rules) mechanical += rule.mechanical;
    CHECK(first.changes == mechanical);
    CHECK((name == "plain") == (first.changes == 0));
  }
}

TEST_CASE("the diff makes the copy out of the original" * only_if(has_program("patch"), "there is no program patch")) {
  for (const std::string name : kProjects) {
    CAPTURE(name);
    const TempDir dir;
    fs::copy(project(name), dir / "in", fs::copy_options::recursive);
    put(dir / "in/odd names/a b\"\xC3\xA9.py", "import torch\nx.cuda()");  // no newline at the end
    put(dir / "in/crlf.py", "import torch\r\n\r\nx.cuda()\r\n");
    std::string far = "import torch\n";
    for (int i = 0; i < 60; ++i) far += i % 20 == 0 ? "x.cuda()\n" : "y = " + std::to_string(i) + "\n";
    put(dir / "in/far.py", far);
    rewrite_source(dir / "in", dir / "out");
    const int status = patch(dir / "in", dir / "out/npu_migration/changes.diff");
    CHECK(status == 0);
    auto patched = tree(dir / "in"), copied = tree(dir / "out");
    CHECK((patched == copied));
  }
}

TEST_CASE("what is written") {
  CHECK(after("a.py", "import torch\nm = m.cuda()  # .cuda()\n") == "import torch\nimport torch_npu\nm = m.npu()  # .cuda()\n");
  CHECK(after("a.py", "def f():\n    import torch  # late\n    torch.cuda.init()\n") ==
        "def f():\n    import torch  # late\n    import torch_npu\n    torch.npu.init()\n");
  CHECK(after("a.py", "from torch import (nn,\n  optim)\nx.cuda()\n") == "from torch import (nn,\n  optim)\nimport torch_npu\nx.npu()\n");
  CHECK(after("a.py", "import torch, torch_npu\nx.cuda()\n") == "import torch, torch_npu\nx.npu()\n");
  CHECK(after("a.py", "from torch import cuda\ncuda.init()\n") == "from torch_npu import npu as cuda\ncuda.init()\n");
  CHECK(after("a.py", "import torch; x.cuda(); y.cuda()\nz.cuda()\n") == "import torch; import torch_npu; x.npu(); y.npu()\nz.npu()\n");
  CHECK(after("a.py", "import os\nos.environ['CUDA_VISIBLE_DEVICES'] = 'cuda is great'\n") ==
        "import os\nos.environ['ASCEND_RT_VISIBLE_DEVICES'] = 'cuda is great'\n");
  CHECK(after("a.cpp", "auto y = x.cuda().to(torch::kCUDA, \"cuda:0\");\n") ==
        "auto y = x.to(at::kPrivateUse1).to(torch::kPrivateUse1, \"npu:0\");\n");
  CHECK(after("a.cu", "auto y = x.cuda();\n") == "auto y = x.cuda();\n");
}

TEST_CASE("import torch_npu is placed where it runs, before code that needs it") {
  // on one line
  CHECK(after("a.py", "import torch; torch.cuda.init()") == "import torch; import torch_npu; torch.npu.init()");
  CHECK(after("a.py", "import os; import torch\nx.cuda()\n") == "import os; import torch\nimport torch_npu\nx.npu()\n");
  CHECK(after("a.py", "import torch;\nx.cuda()\n") == "import torch;\nimport torch_npu\nx.npu()\n");
  // imports that do not run
  CHECK(after("a.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\nx.cuda()\n") ==
        "import torch_npu\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\nx.npu()\n");
  CHECK(after("a.py", "import typing\nif typing.TYPE_CHECKING:\n    import torch.nn\nimport torch\nx.cuda()\n") ==
        "import typing\nif typing.TYPE_CHECKING:\n    import torch.nn\nimport torch\nimport torch_npu\nx.npu()\n");
  CHECK(after("a.py", "if x: import torch\nx.cuda()\n") == "import torch_npu\nif x: import torch\nx.npu()\n");
  // an import in a function, with uses outside it; after documentation and __future__
  CHECK(
      after(
          "a.py",
          "\"\"\"What it is.\"\"\"\nfrom __future__ import annotations\nimport os\ndef f():\n    import torch\n    x.cuda()\ny.cuda()\n") ==
      "\"\"\"What it is.\"\"\"\nfrom __future__ import annotations\nimport torch_npu\nimport os\ndef f():\n    import torch\n    x.npu()\n"
      "y.npu()\n");
  CHECK(after("a.py", "#!/usr/bin/env python\n# -*- coding: utf-8 -*-\ndef f():\n    import torch\ndef g():\n    x.cuda()\n") ==
        "#!/usr/bin/env python\n# -*- coding: utf-8 -*-\nimport torch_npu\ndef f():\n    import torch\ndef g():\n    x.npu()\n");
  CHECK(after("a.py", "'d'\r\ndef f():\r\n  import torch\r\nx.cuda()\r\n") ==
        "'d'\r\nimport torch_npu\r\ndef f():\r\n  import torch\r\nx.npu()\r\n");
  CHECK(after("a.py", "'d'; a = 1\ndef f():\n  import torch\nx.cuda()\n") ==
        "'d'; import torch_npu; a = 1\ndef f():\n  import torch\nx.npu()\n");
  // an import in `try`, and in a function that contains every use
  CHECK(after("a.py", "try:\n    import torch\nexcept ImportError:\n    torch = None\nx.cuda()\n") ==
        "try:\n    import torch\n    import torch_npu\nexcept ImportError:\n    torch = None\nx.npu()\n");
  CHECK(after("a.py", "def f():\n    import torch\n    if a:\n        x.cuda()\n\ndef g():\n    pass\n") ==
        "def f():\n    import torch\n    import torch_npu\n    if a:\n        x.npu()\n\ndef g():\n    pass\n");
}

TEST_CASE("a second rewrite of each of these changes nothing") {
  for (const char* content : {"import torch; torch.cuda.init()", "if x: import torch\nx.cuda()\n", "x.cuda();import torch",
                              "'d'; a = 1\ndef f():\n  import torch\nx.cuda()\n", "def f():\n    import torch\n    x.cuda()\n"}) {
    CAPTURE(content);
    const auto once = after("a.py", content);
    CHECK(after("a.py", once) == once);
  }
}

TEST_CASE("one process for each NPU replaces DataParallel, by names of a module that the copy gets") {
  const std::string both = "import torch\nimport torch_npu\nimport npu_distributed\n", ranks = "import torch\nimport npu_distributed\n";
  CHECK(on_ranks("import torch\nm = torch.nn.DataParallel(m)\nm.cuda(0)\nx.cuda()\n") ==
        both + "m = npu_distributed.DataParallel(m)\nm.npu()\nx.npu()\n");
  CHECK(on_ranks("import torch\ntorch.save(m, f)\ntorch.load(f)\n") == ranks + "npu_distributed.save(m, f)\ntorch.load(f)\n");
  CHECK(
      on_ranks("from torch.utils.data import DataLoader as L, Dataset\ndef f() -> L: return L(d)\nclass M(L): pass\n") ==
      "from torch.utils.data import DataLoader as L, Dataset\nimport npu_distributed\ndef f() -> L: return npu_distributed.DataLoader(d)\n"
      "class M(L): pass\n");
  CHECK(on_ranks("import torch.nn as nn\nif isinstance(m, nn.DataParallel): m = m.module\n") ==
        "import torch.nn as nn\nimport npu_distributed\nif isinstance(m, npu_distributed.DataParallel): m = m.module\n");
  CHECK(on_ranks("import torch\nn = torch.cuda.device_count()\ntorch.cuda.set_device(0)\ntorch.cuda.synchronize()\n") ==
        both + "n = npu_distributed.world_size()\nnpu_distributed.set_device(0)\ntorch.npu.synchronize()\n");
  // the first device becomes the device of the rank; other devices keep their numbers, and keys do not change
  CHECK(on_ranks("import torch\na = 'cuda:0' if b else 'cuda'\nc = f'cuda:{i}', 'cuda:1', {'cuda:0': 1}\n") ==
        both + "a = npu_distributed.device() if b else 'npu'\nc = f'npu:{i}', 'npu:1', {'cuda:0': 1}\n");
  // a use over several lines is left to a person
  CHECK(on_ranks("import torch\nm = torch.nn. \\\n  DataParallel(m)\n") == "import torch\nm = torch.nn. \\\n  DataParallel(m)\n");
}

TEST_CASE("samplers get the epoch at the start of each one") {
  const std::string ranks = "import torch\nimport npu_distributed\n";
  CHECK(on_ranks("import torch\nfor epoch in range(3):\n    # first\n    train()\n") ==
        ranks + "for epoch in range(3):\n    # first\n    npu_distributed.set_epoch(epoch)\n    train()\n");
  CHECK(on_ranks("import torch\ndef f():\n\tfor i_epoch in tqdm(range(a[1:2], 3)):\n\t\ttrain()\n") ==
        ranks + "def f():\n\tfor i_epoch in tqdm(range(a[1:2], 3)):\n\t\tnpu_distributed.set_epoch(i_epoch)\n\t\ttrain()\n");
  CHECK(on_ranks("import torch\nfor epoch in range(3): train(); test()\n") ==
        ranks + "for epoch in range(3): npu_distributed.set_epoch(epoch); train(); test()\n");
  CHECK(on_ranks("import torch\r\nfor epoch in range(3):\r\n  torch.save(m, f)\r\n") ==
        "import torch\r\nimport npu_distributed\r\nfor epoch in range(3):\r\n  npu_distributed.set_epoch(epoch)\r\n  "
        "npu_distributed.save(m, f)\r\n");
  for (const char* other : {"import torch\nfor epoch in history:\n    plot(epoch)\n", "for epoch in range(3):\n    plot(epoch)\n",
                            "import torch\nfor i in range(3):\n    train()\n", "import torch\nfor epoch in range(3):\n",
                            "import torch\nfor epoch in range(3)"}) {
    CAPTURE(other);
    CHECK(on_ranks(other) == other);
  }
}

TEST_CASE("a distributed copy is complete, and a second rewrite changes nothing") {
  const TempDir dir;
  fs::copy(project("image_dp"), dir / "in", fs::copy_options::recursive);
  const auto first = rewrite_source(dir / "in", dir / "out", {.distributed = true});
  CHECK(first.launcher == "run_distributed.sh");
  CHECK(first.not_distributed.empty());
  CHECK(first.remaining.hours_mechanical == 0);
  for (const auto& rule : first.remaining.rules) CHECK(rule.id != "data-parallel");
  CHECK(has(content_of(dir / "out/run_distributed.sh"), "--nproc_per_node=\"$nproc\" \"$here/train.py\" \"$@\""));
  CHECK(((fs::status(dir / "out/run_distributed.sh").permissions() & fs::perms::owner_exec) != fs::perms::none));
  const auto second = rewrite_source(dir / "out", dir / "again", {.distributed = true});
  CHECK(second.changes == 0);
  CHECK(second.launcher.empty());
  CHECK(has(second.not_distributed, "starts its own processes (npu_distributed.py:"));
  CHECK((tree(dir / "again") == tree(dir / "out")));
}

TEST_CASE("the diff of a distributed copy has the new files" * only_if(has_program("patch"), "there is no program patch")) {
  const TempDir dir;
  fs::copy(project("image_dp"), dir / "in", fs::copy_options::recursive);
  rewrite_source(dir / "in", dir / "out", {.distributed = true});
  const int status = patch(dir / "in", dir / "out/npu_migration/changes.diff");
  CHECK(status == 0);
  for (const char* file : {"train.py", "utils/checkpoint.py", "npu_distributed.py", "run_distributed.sh"}) {
    CAPTURE(file);
    CHECK(content_of(dir / "in" / file) == content_of(dir / "out" / file));
  }
}

TEST_CASE("what ranks need and a rewrite does not do is reported") {
  const TempDir dir;
  put(dir / "in/a.py",
      "import torch\nfrom torch.utils.data import DataLoader\nclass Mine(DataLoader):\n    pass\nm = torch.nn.DataParallel(m)\n"
      "n = torch.nn. \\\n  DataParallel(n)\n");
  const auto result = rewrite_source(dir / "in", dir / "out", {.distributed = true});
  REQUIRE(result.by_hand.size() == 2);
  CHECK(result.by_hand[0] == "a.py:4: DataLoader");
  CHECK(has(result.by_hand[1], "a.py:7: torch.nn."));
  CHECK(has(to_text(result), "a.py:4: DataLoader"));
  CHECK(rewrite_source(project("image_dp"), dir / "none", {.distributed = true}).by_hand.empty());
}

TEST_CASE("names of npu_distributed are imported before their first use") {
  const std::string import = "import npu_distributed\n";
  CHECK(on_ranks("d = 'cuda:0'\n") == import + "d = npu_distributed.device()\n");
  CHECK(on_ranks("\"\"\"doc\"\"\"\nfrom __future__ import annotations\nD = 'cuda:0'\nimport torch\n") ==
        "\"\"\"doc\"\"\"\nfrom __future__ import annotations\n" + import + "D = npu_distributed.device()\nimport torch\n");
  CHECK(on_ranks("D = 'cuda:0'\nimport torch\nx.cuda()\n") ==
        import + "D = npu_distributed.device()\nimport torch\nimport torch_npu\nx.npu()\n");
  CHECK(on_ranks("def f():\n  d = 'cuda:0'\n  import torch\n") == import + "def f():\n  d = npu_distributed.device()\n  import torch\n");
  CHECK(on_ranks("d = 'cuda'\n") == "d = 'npu'\n");
}

TEST_CASE("the first device stays a text where only a literal is valid") {
  const std::string both = "import torch\nimport torch_npu\n";
  for (const auto& [found, put] :
       {std::pair("d = 'cuda:0' ' x'\n", "d = 'npu:0' ' x'\n"), std::pair("d = ('a'\n  'cuda:0')\n", "d = ('a'\n  'npu:0')\n"),
        std::pair("match d:\n  case 'cpu' | 'cuda:0': pass\n", "match d:\n  case 'cpu' | 'npu:0': pass\n"),
        std::pair("d = b'cuda:0'\n", "d = b'npu:0'\n"), std::pair("T = Literal['cuda:0']\n", "T = Literal['npu:0']\n"),
        std::pair("T = Literal['cpu', 'cuda:0']\n", "T = Literal['cpu', 'npu:0']\n"), std::pair("d: 'cuda:0' = 1\n", "d: 'npu:0' = 1\n"),
        std::pair("def f(a, d: 'cuda:0') -> 'cuda:0': pass\n", "def f(a, d: 'npu:0') -> 'npu:0': pass\n")}) {
    CAPTURE(found);
    CHECK(on_ranks(std::string("import torch\n") + found) == both + put);
  }
  for (const char* found : {"f(a, {D: 'cuda:0'})", "case = 'cuda:0'", "d = 'cpu' if a else 'cuda:0'", "def f(d='cuda:0'): pass"}) {
    CAPTURE(found);
    CHECK(has(on_ranks(std::string("import torch\n") + found + "\n"), "npu_distributed.device()"));
  }
}

TEST_CASE("places that ranks need are listed with their lines in the copy") {
  const TempDir dir;
  // Returns the entries of by_hand for one file, without explanations.
  const auto places = [&](const std::string& content) {
    fs::remove_all(dir / "in"), fs::remove_all(dir / "out");
    put(dir / "in/a.py", content);
    put(dir / "in/b.py", "import torch\nm = torch.nn.DataParallel(m)\n");
    const auto result = rewrite_source(dir / "in", dir / "out", {.distributed = true});
    const auto todo = content_of(dir / "out/npu_migration/todo.md");
    CHECK(has(todo, "## Several processes") != result.by_hand.empty());
    std::string out;
    for (const auto& place : result.by_hand) {
      CHECK(has(todo, "- [ ] " + place));
      CHECK(has(to_text(result), place));
      out += place.substr(0, place.find(": ", place.find(": ") + 2)) + "\n";
    }
    return out;
  };
  const std::string head = "import torch, shutil, os\nfrom torch.utils.data import DataLoader as L\n";
  // rank 1 would copy an incomplete file
  CHECK(places(head + "torch.save(s, f)\nif best: shutil.copyfile(f, 'best')\nos.makedirs('a')\ntorch.load(f)\n") ==
        "a.py:5: shutil.copyfile\na.py:6: os.makedirs\na.py:7: torch.load\n");
  CHECK(places(head + "from os import replace\nreplace(a, b)\nos.rename(a, b)\nos.remove(a)\nshutil.move(a, b)\ntorch.save(s, f)\n") ==
        "a.py:5: replace\na.py:6: os.rename\na.py:7: os.remove\na.py:8: shutil.move\n");
  CHECK(places(head + "shutil.copyfile(a, b)\ntorch.load(f)\n").empty());
  CHECK(places(head + "make = functools.partial(L, d)\nsave = torch.save\nl: L = None\nx: Dict[str, L]\nisinstance(l, (int, L))\n") ==
        "a.py:3: L\na.py:4: torch.save\n");
  CHECK(places(head + "L(d, sampler=s)\nL(d, batch_sampler=g(1))\nL(d, sampler=None)\nL(f(sampler=1))\n") ==
        "a.py:4: sampler\na.py:5: batch_sampler\n");
  CHECK(places(head + "x.cuda(args.gpu)\nx.cuda(0)\nx.cuda(non_blocking=True)\nx.cuda()\nx.cuda(device=g)\n") ==
        "a.py:4: args\na.py:8: device\n");
  CHECK(places("import os\nos.environ['CUDA_VISIBLE_DEVICES'] = '0'\nprint(os.environ['CUDA_VISIBLE_DEVICES'])\n") ==
        "a.py:2: 'CUDA_VISIBLE_DEVICES'\n");
  CHECK(places(head + "f = torch.nn.CrossEntropyLoss(reduction='sum')\ng = torch.nn.MSELoss(reduction='mean')\n") ==
        "a.py:3: reduction='sum'\n");
  CHECK(places(head + "for epoch in range(3):\n  d = 'cuda:0' 'x'\n") == "a.py:7: 'cuda:0'\n");
}

TEST_CASE("projects whose ranks are not ours to start") {
  const TempDir dir;
  const auto reason = [&](const std::string& content) {
    fs::remove_all(dir / "in"), fs::remove_all(dir / "out");
    put(dir / "in/a.py", content);
    const auto result = rewrite_source(dir / "in", dir / "out", {.distributed = true});
    CHECK(result.launcher.empty() != result.not_distributed.empty());
    CHECK(fs::exists(dir / "out/npu_distributed.py") == !result.launcher.empty());
    CHECK(has(to_text(result), result.not_distributed));
    return result.not_distributed;
  };
  const std::string parallel = "import torch\nm = torch.nn.DataParallel(m)\n";
  CHECK(reason(parallel).empty());
  CHECK(reason(parallel + "torch.distributed.init_process_group('nccl')\n") == "the project starts its own processes (a.py:3)");
  CHECK(reason(parallel + "from accelerate import Accelerator\na = Accelerator()\n") == "the project starts its own processes (a.py:4)");
  CHECK(reason("import torch\nm.cuda()\n") == "no Python file uses torch.nn.DataParallel");
  // a check of a type starts no ranks
  CHECK(reason(parallel + "isinstance(m, torch.nn.parallel.DistributedDataParallel)\n").empty());
  // a file that would be overwritten, and a program that is not obvious
  put(dir / "in/run_distributed.sh", "mine");
  CHECK(
      has(error_of([&] { rewrite_source(dir / "in", dir / "other", {.distributed = true}); }).what(), "run_distributed.sh: has the name"));
  CHECK_FALSE(fs::exists(dir / "other"));
  fs::remove(dir / "in/run_distributed.sh");
  for (const char* name : {"in/b.py", "in/c.py"}) put(dir / name, parallel + "if __name__ == '__main__':\n    main()\n");
  rewrite_source(dir / "in", dir / "two", {.distributed = true});
  CHECK(has(content_of(dir / "two/run_distributed.sh"), "run_distributed.sh SCRIPT [arguments"));
  CHECK(has(content_of(dir / "two/run_distributed.sh"), "--nproc_per_node=\"$nproc\" \"$@\""));
}

TEST_CASE("code inside of other files is rewritten in its place") {
  const std::string notebook =
      R"NB({"cells": [{"cell_type": "markdown", "source": ["model.cuda()"]},
 {"cell_type": "code", "outputs": [{"text": "x.cuda()"}], "source": ["%matplotlib inline\n", "import torch\n", "m = \"cuda\""]},
 {"source": "x = x.cuda()\nprint('\u00e9', x.to(\"cuda:0\"))", "cell_type": "code"}], "nbformat": 4}
)NB";
  const auto written = after("a.ipynb", notebook);
  CHECK(written == R"NB({"cells": [{"cell_type": "markdown", "source": ["model.cuda()"]},
 {"cell_type": "code", "outputs": [{"text": "x.cuda()"}], "source": ["%matplotlib inline\n", "import torch\nimport torch_npu\n", "m = \"npu\""]},
 {"source": "x = x.npu()\nprint('\u00e9', x.to(\"npu:0\"))", "cell_type": "code"}], "nbformat": 4}
)NB");
  CHECK(after("a.ipynb", written) == written);
  CHECK(after("a.ipynb", "{\"cells\": [") == "{\"cells\": [");
  CHECK(after("a.sh", "python3 -c 'import torch; print(torch.cuda.is_available())' && echo cuda_is\n") ==
        "python3 -c 'import torch; import torch_npu; print(torch.npu.is_available())' && echo cuda_is\n");
  CHECK(after("a.sh", "$PYTHON -u -c \"import torch; x.to(\\\"cuda\\\")\"\n") ==
        "$PYTHON -u -c \"import torch; import torch_npu; x.to(\\\"npu\\\")\"\n");
  CHECK(after("a.sh", "python - <<'EOF'\nimport torch\nx.cuda()\nEOF\ncat <<EOF\nx.cuda()\nEOF\ncat > a.py <<EOF\nx.cuda()\nEOF\n") ==
        "python - <<'EOF'\nimport torch\nimport torch_npu\nx.npu()\nEOF\ncat <<EOF\nx.cuda()\nEOF\ncat > a.py <<EOF\nx.npu()\nEOF\n");
}

TEST_CASE("line ends, byte order marks, encodings and a missing last line end stay") {
  CHECK(after("a.py", "import torch\r\nx.cuda()\r\n") == "import torch\r\nimport torch_npu\r\nx.npu()\r\n");
  CHECK(after("a.py", "\xEF\xBB\xBFimport torch\nx.cuda()") == "\xEF\xBB\xBFimport torch\nimport torch_npu\nx.npu()");
  CHECK(after("a.py", "x.cuda();import torch") == "x.npu();import torch\nimport torch_npu");
  CHECK(after("a.py", "# gr\xFC\xDF\nx.to('cuda')\n") == "# gr\xFC\xDF\nx.to('npu')\n");
}

TEST_CASE("modes, empty folders, links and files of any kind are kept; what leads out is not") {
  const TempDir dir;
  put(dir / "in/run.py", "#!/usr/bin/env python3\nx.cuda()\n");
  fs::permissions(dir / "in/run.py", fs::perms(0750));
  put(dir / "in/data.bin", std::string("cuda\0cuda", 9));
  put(dir / "in/build/gen.py", "x.cuda()\n");
  put(dir / "in/locked/a.py", "x.cuda()\n");
  fs::permissions(dir / "in/locked", fs::perms(0555));
  fs::create_directory(dir / "in/empty");
  fs::create_symlink("../run.py", dir / "in/locked_link");
  fs::create_symlink("run.py", dir / "in/inside.py");
  fs::create_symlink("nothing", dir / "in/dangling");
  fs::create_symlink("loop", dir / "in/loop");
  fs::create_symlink("/etc/passwd", dir / "in/absolute");
  fs::create_directory_symlink("..", dir / "in/up");
  REQUIRE(::mkfifo((dir / "in/pipe").c_str(), 0600) == 0);
  const auto result = rewrite_source(dir / "in", dir / "out");
  CHECK(content_of(dir / "out/run.py") == "#!/usr/bin/env python3\nx.npu()\n");
  CHECK(((fs::status(dir / "out/run.py").permissions() & fs::perms::all) == fs::perms(0750)));
  CHECK(((fs::status(dir / "out/locked").permissions() & fs::perms::all) == fs::perms(0555)));
  CHECK(content_of(dir / "out/data.bin") == std::string("cuda\0cuda", 9));
  CHECK(content_of(dir / "out/build/gen.py") == "x.cuda()\n");  // a build folder is copied as it is
  CHECK(fs::is_directory(dir / "out/empty"));
  CHECK(fs::read_symlink(dir / "out/inside.py") == "run.py");
  CHECK(fs::read_symlink(dir / "out/dangling") == "nothing");
  std::string left;
  for (const auto& text : result.left_out) left += text + "\n";
  CHECK(result.left_out.size() == 5);
  for (const auto* name : {"absolute: ", "locked_link: ", "loop: ", "pipe: ", "up: "}) CHECK(has(left, name));
  for (const auto* name : {"absolute", "locked_link", "loop", "pipe", "up"})
    CHECK_FALSE(fs::exists(fs::symlink_status(dir / "out" / name)));
  fs::permissions(dir / "in/locked", fs::perms(0755));
  fs::permissions(dir / "out/locked", fs::perms(0755));
}

TEST_CASE("the log reports every change, the list the remaining manual changes") {
  const TempDir dir;
  const auto result = rewrite_source(project("resnet_ddp"), dir / "out");
  const auto log = load_json(dir / "out/npu_migration/log.json");
  const auto& changes = log.at("changes", "log").items("log");
  CHECK(static_cast<int64_t>(changes.size()) == result.changes);
  CHECK(log.at("changed", "log").integer("log") == result.changes);
  bool seen = false;
  for (const auto& change : changes) {
    CHECK(change.at("before", "log").text("log") != change.at("after", "log").text("log"));
    const auto path = change.at("file", "log").text("log");
    std::ifstream original(project("resnet_ddp") / path);
    std::string line;
    for (int64_t i = 0; i < change.at("line", "log").integer("log"); ++i) std::getline(original, line);
    CHECK(line == change.at("before", "log").text("log"));
    seen |= path == "main.py" && change.at("after", "log").text("log") == "    model = model.npu()";
  }
  CHECK(seen);
  const auto todo = content_of(dir / "out/npu_migration/todo.md");
  CHECK(has(todo, "- [ ] `main.py:73` `nn.DataParallel`"));  // line numbers are those of the copy
  CHECK_FALSE(has(todo, "device-string"));
  CHECK(has(to_text(result), "changes in 5 files of 9"));
  CHECK(to_json(result).at("changes", "json").integer("json") == result.changes);
}

TEST_CASE("reports of a rewrite are neither scanned nor copied") {
  const TempDir dir;
  put(dir / "in/a.py", "import torch\nx.cuda()\ntorch.nn.DataParallel(m)\n");
  rewrite_source(dir / "in", dir / "out");
  put(dir / "out/npu_migration/extra.py", "x.cuda()\n");
  CHECK(scan_source(dir / "out").places == 1);
  rewrite_source(dir / "out", dir / "again");
  CHECK_FALSE(fs::exists(dir / "again/npu_migration/extra.py"));
  // A project's own folder with that name is scanned, and never overwritten.
  put(dir / "in/npu_migration/mine.py", "x.cuda()\n");
  CHECK(scan_source(dir / "in").places == 4);
  const auto error = error_of([&] { rewrite_source(dir / "in", dir / "third"); });
  CHECK((error.kind() == ErrorKind::Data));
  CHECK_FALSE(fs::exists(dir / "third"));
}

TEST_CASE("where a copy may go") {
  const TempDir dir;
  put(dir / "in/a.py", "x.cuda()\n");
  put(dir / "full/other.txt", "mine");
  put(dir / "file", "mine");
  fs::create_directory(dir / "free");
  fs::create_directory_symlink("in", dir / "alias");
  for (const auto& out : {dir / "in", dir / "in/out", dir.path(), dir / "full", dir / "file", dir / "alias/out", fs::path("")}) {
    CAPTURE(out);
    CHECK((error_of([&] { rewrite_source(dir / "in", out); }).kind() == ErrorKind::Usage));
  }
  CHECK(content_of(dir / "full/other.txt") == "mine");
  CHECK(tree(dir / "in").size() == 1);
  rewrite_source(dir / "in", dir / "free/");
  CHECK(content_of(dir / "free/a.py") == "x.npu()\n");
  rewrite_source(dir / "in", dir / "new/deep/out");
  CHECK(content_of(dir / "new/deep/out/a.py") == "x.npu()\n");
}

TEST_CASE("a rewrite that fails leaves nothing behind") {
  const TempDir dir;
  put(dir / "in/a.py", "x.cuda()\n");
  put(dir / "in/b.py", "x.cuda()\n");
  CHECK((error_of([&] { rewrite_source(dir / "in", dir / "out", {.scan = {.max_files = 1}}); }).kind() == ErrorKind::Data));
  put(dir / "none/a.png", "");
  CHECK((error_of([&] { rewrite_source(dir / "none", dir / "out"); }).kind() == ErrorKind::Data));  // fails after the copy was made
  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator(dir.path())) left.push_back(entry.path().filename().string());
  CHECK(left.size() == 2);
}
