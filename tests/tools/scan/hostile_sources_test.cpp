// Checks with malicious sources that the work grows in proportion to their size, whatever they repeat.
#include "testing.hpp"

#include "npu_train/tools/scan/source_scan.hpp"

#include "bounded.hpp"
#include "tools/scan/project_files.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

constexpr size_t kBytes = size_t{1} << 20;  // an eighth of the largest file; quadratic work would take minutes

std::string repeated(const std::string& part, size_t bytes = kBytes) {
  std::string out;
  out.reserve(bytes + part.size());
  while (out.size() < bytes) out += part;
  return out;
}

// Returns "x,x0,x1,..." with this separator.
std::string many_names(const std::string& separator, size_t bytes) {
  std::string out = "x";
  for (size_t i = 0; out.size() < bytes; ++i) out += separator + "x" + std::to_string(i);
  return out;
}

}  // namespace

TEST_CASE("the work on hostile sources grows in proportion to their size") {
  const auto half = kBytes / 2;
  const auto dotted = repeated("a.", half) + "b", scoped = repeated("a::", half) + "b";
  const std::string triple = "\"\"\"";
  struct Row {
    const char* what;
    const char* file;
    std::string content;
  };
  const std::vector<Row> rows = {
      {"python -c without end", "run.sh", "python " + repeated("-c \"\" ")},
      {"-c without end", "run.sh", repeated("-c \"\" ")},
      {"here-documents of one line", "run.sh", repeated("a<<b ")},
      {"here-documents of a line of words", "run.sh", repeated("a ", half) + repeated("<<b ", half)},
      {"here-documents for Python", "run.sh", "python " + repeated("a.py a<<b ")},
      {"here-documents line by line", "run.sh", repeated("a<<b\n")},
      {"options that are set", "run.sh", repeated("--a=--b=")},
      {"one word", "run.sh", repeated("/")},
      {"open raw strings", "a.cpp", repeated("R\"\n")},
      {"raw strings with marks", "a.cpp", repeated("R\"abcdefghijklmnop\n")},
      {"a name of names of names", "a.cpp", repeated("using::")},
      {"an alias of a long name", "a.cpp", "using x = " + scoped + ";\n" + repeated("x ", half)},
      {"opened namespaces of long names", "a.cpp", "using namespace " + scoped + ";\n" + repeated("x::y ", half)},
      {"a long name", "a.cpp", repeated("torch::")},
      {"kernels without a function", "a.cu", repeated("__global__ __launch_bounds__ ")},
      {"launches", "a.cu", repeated("a<")},
      {"launches of nothing", "a.cu", repeated("<<<")},
      {"continued lines", "a.cpp", repeated("//\\\n")},
      {"directives", "a.cpp", repeated("#include <\n")},
      {"lists of requirements", "setup.py", repeated("require=[\"x\"]\n")},
      {"open lists of requirements", "setup.py", repeated("require=[\"x\" ")},
      {"many names of a long module", "a.py", "from " + dotted + " import " + many_names(",", half)},
      {"uses of a long module", "a.py", "import " + dotted + " as x\n" + repeated("x.y ", half)},
      {"uses of many modules", "a.py", repeated("from torch import *\n", half) + repeated("cuda ", half)},
      {"a long attribute", "a.py", "import torch\n" + repeated("torch.")},
      {"imports of the future", "a.py", repeated("from __future__ import a\n") + "if 1: import torch\nx.cuda()\n"},
      {"imports of torch", "a.py", repeated("if 1: import torch\n") + "x.cuda()\n"},
      {"fields of formats", "a.py", repeated("f'{a'")},
      {"comments in fields", "a.py", repeated("f'{#}'")},
      {"branches of nothing", "a.py", repeated("else:\n") + "torch.npu\n"},
      {"fields of a long format", "a.py", "f" + triple + repeated("{a!r:{b}}")},
      {"nested fields", "a.py", "f" + triple + repeated("{f'")},
      {"open brackets", "a.py", repeated("(")},
      {"open texts", "a.py", repeated(triple + "\\")},
      {"a command of CMake with a long name", "CMakeLists.txt", repeated("a", half) + "(" + repeated("b ", half)},
      {"commands in commands", "CMakeLists.txt", repeated("find_package(")},
      {"open brackets of CMake", "CMakeLists.txt", repeated("[=")},
      {"comments of CMake", "CMakeLists.txt", repeated("#[=\n")},
      {"quotes of a line of TOML", "pyproject.toml", "dependencies = [" + repeated("\"")},
      {"items of a line of YAML", "a.yaml", repeated("- ")},
      {"keys of a line of YAML", "a.yaml", repeated("a: ")},
      {"texts of JSON", "a.json", repeated("\" ")},
      {"cells of a notebook", "a.ipynb", "{\"cells\": [" + repeated("{\"cell_type\": \"code\", \"source\": [\"a\"]},") + "0]}"},
      {"a notebook that nests", "a.ipynb", "{\"cells\": " + repeated("[")},
      {"addresses in requirements", "requirements.txt", repeated("git+https://a@")},
  };
  for (const auto& row : rows) {
    CAPTURE(std::string(row.what));
    const TempDir dir;
    put(dir / row.file, row.content);
    CHECK(grows_in_proportion([&] { scan_source(dir.path()); }));
  }
}

TEST_CASE("Python inside of shells is found as before") {
  const TempDir dir;
  put(dir / "run.sh",
      "echo a; python3 -c 'x.cuda()' -c 'y.cuda()'\n"
      "-c 'z.cuda()'\n"
      "cat <<EOF | /usr/bin/python\nu.cuda()\nEOF\n"
      "cat <<EOF\nv.cuda()\nEOF\n"
      "tee train.py <<EOF\nw.cuda()\nEOF\n");
  std::vector<int64_t> lines;
  for (const auto& f : scan_source(dir.path()).findings)
    if (f.text == ".cuda") lines.push_back(f.line);
  CHECK((lines == std::vector<int64_t>{1, 1, 4, 10}));
}
