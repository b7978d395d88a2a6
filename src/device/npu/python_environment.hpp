// Python environments that may have torch_npu. Each is described by its own interpreter, which runs as another process: nothing of Python
// is loaded into this one.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace npu_train::detail {

struct PythonEnvironment {
  std::string python;             // its interpreter, as sys.executable
  std::string version;            // "3.11.7"
  std::string libpython;          // its shared library; "" if there is none, as with an interpreter that is linked statically
  std::string torch;              // folder of the package; "" if it is not installed
  std::string torch_version;      // "" if unknown
  std::string torch_npu;          // folder of the package; "" if it is not installed
  std::string torch_npu_version;  // "" if unknown
};

// Asks `python` to describe its environment. Returns "" and fills `out`, or the reason why it cannot be asked.
std::string describe_python(const std::string& python, PythonEnvironment& out);

// Returns the interpreters of a user without NPU_TRAIN_PYTHON, in the order of the search: that of the active virtual environment
// (VIRTUAL_ENV), that of the site-packages with our libtorch, whose folder is `torch_libraries`, and python3 in PATH.
std::vector<std::string> usual_pythons(const std::filesystem::path& torch_libraries);

}  // namespace npu_train::detail
