// Python environments that may have torch_npu. Each is described by its own interpreter in another process, so that nothing of Python is
// loaded into this one.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace npu_train::detail {

struct PythonEnvironment {
  std::string python;             // path of its interpreter, as in sys.executable
  std::string version;            // "3.11.7"
  std::string libpython;          // shared library of Python; "" if there is none, as with a statically linked interpreter
  std::string torch;              // folder of torch; "" if it is not installed
  std::string torch_version;      // "" if unknown
  std::string torch_npu;          // folder of torch_npu; "" if it is not installed
  std::string torch_npu_version;  // "" if unknown
};

// Asks `python` to describe its environment. Returns "" and fills in `out`; if that fails, returns the reason.
std::string describe_python(const std::string& python, PythonEnvironment& out);

// Returns the interpreters to ask if NPU_TRAIN_PYTHON is not set, in search order: the one in the active virtual environment (VIRTUAL_ENV);
// the one whose site-packages contain our libtorch (`torch_libraries` is its folder); python3 in PATH.
std::vector<std::string> usual_pythons(const std::filesystem::path& torch_libraries);

}  // namespace npu_train::detail
