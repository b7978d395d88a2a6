#include "device/npu/torch_npu_wheel.hpp"

#include <c10/core/DefaultDtype.h>

#include <cstdlib>
#include <stdexcept>
#include <system_error>

#include "device/npu/python_interpreter.hpp"
#include "device/npu/torch_npu_errors.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/device/torch_npu_python.hpp"

namespace npu_train::detail {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPythonVariable = "NPU_TRAIN_PYTHON";

// Turns off torch's plugins during the import. Otherwise, importing torch would import torch_npu as a plugin, and hide the reason if that
// import fails. The host program's value of the variable is restored.
constexpr const char* kImport = R"(
import os
variable = 'TORCH_DEVICE_BACKEND_AUTOLOAD'
before = os.environ.get(variable)
os.environ[variable] = '0'
try:
    import torch
    import torch_npu
finally:
    if before is None: os.environ.pop(variable, None)
    else: os.environ[variable] = before
result = torch_npu.__version__
)";

constexpr const char* kFolderOfTorchNpu = R"(
import importlib.util, os
found = importlib.util.find_spec('torch_npu')
result = os.path.realpath(os.path.dirname(found.origin)) if found and found.origin else ''
)";

void check_environment(const PythonEnvironment& environment) {
  const auto& python = environment.python;
  check_torch_npu_version(environment.torch_npu, environment.torch_npu_version);
  if (environment.torch.empty()) fail_npu(python + " has torch_npu but no torch", what_to_install(python));
  std::error_code none;
  const auto theirs = fs::weakly_canonical(fs::path(environment.torch) / "lib/libtorch_cpu.so", none);
  const auto ours = libtorch_folder() / "libtorch_cpu.so";
  if (theirs != ours)
    fail_npu("this process uses " + ours.string() + ", and the torch of " + python + " (" + environment.torch_version + ") is " +
                 theirs.string() + "; a process can have only one libtorch",
             "install torch_npu in the environment of this libtorch, or configure npu_train with -DTorch_DIR=" + environment.torch +
                 "/share/cmake/Torch");
  if (environment.libpython.empty())
    fail_npu(python + " (Python " + environment.version + ") has no shared library libpython, so a program cannot load it",
             "use a Python that was configured with --enable-shared: apt-get install libpython3-dev, conda, or `PYTHON_CONFIGURE_OPTS="
             "--enable-shared pyenv install`");
}

[[noreturn]] void explain_import(const std::string& python, const std::string& library, const std::string& error) {
  const std::string no_module = "ModuleNotFoundError: No module named '";
  if (error.starts_with(no_module)) {
    const auto module = error.substr(no_module.size(), error.find('\'', no_module.size()) - no_module.size());
    if (module == "torch_npu") fail_npu(python + " has no torch_npu", what_to_install(python));
    fail_npu(python + " has no module " + module + ", which torch_npu imports",
             python + " -m pip install " + (module == "yaml" ? "pyyaml" : module));
  }
  const std::string import_error = "ImportError: ";
  if (error.starts_with(import_error)) explain_loading(library, error.substr(import_error.size()));
  fail_npu("torch_npu of " + python + " cannot be imported: " + error, what_to_install(python));
}

bool import_failed = false;

// Imports torch_npu and restores libtorch's default dtype, which the import of torch sets.
void import_torch_npu(const std::string& python, const std::string& library) {
  const auto dtype = c10::get_default_dtype();
  const auto answer = run_python(kImport);
  c10::set_default_dtype(dtype);
  import_failed = !answer.ok();
  if (!answer.output.empty()) log_info("npu: torch_npu printed: " + answer.output.substr(0, answer.output.find_last_not_of('\n') + 1));
  if (!answer.ok()) explain_import(python, library, answer.error);
}

// Runs the functions that modules have registered with atexit, because otherwise they would run only when an interpreter ends. These
// functions synchronise the devices and shut CANN down.
void end_python_modules() { run_in_torch_npu_python("import atexit\natexit._run_exitfuncs()\n"); }

}  // namespace

std::optional<PythonEnvironment> environment_with_torch_npu(std::vector<std::string>& tried) {
  PythonEnvironment out;
  if (const char* named = std::getenv(kPythonVariable); named != nullptr && *named != '\0') {
    std::error_code none;
    const std::string python = fs::is_directory(named, none) ? (fs::path(named) / "bin/python").string() : named;
    if (const auto reason = describe_python(python, out); !reason.empty())
      fail_npu(std::string(kPythonVariable) + "=" + named + ": " + reason, "set it to the python of an environment with torch_npu");
    if (out.torch_npu.empty()) fail_npu(std::string(kPythonVariable) + "=" + named + " has no torch_npu", what_to_install(python));
    return out;
  }
  for (const auto& python : usual_pythons(libtorch_folder())) {
    const auto reason = describe_python(python, out);
    if (reason.empty() && !out.torch_npu.empty()) return out;
    tried.push_back(python + ": " + (reason.empty() ? "no torch_npu" : reason));
  }
  return std::nullopt;
}

std::string run_in_torch_npu_python(const std::string& code) {
  const auto answer = run_python(code);
  if (!answer.ok()) throw std::runtime_error(answer.error);
  return answer.result;
}

bool has_torch_npu_in_python() {
  return has_python() && run_in_torch_npu_python("import sys\nresult = 'torch_npu' in sys.modules\n") == "True";
}

bool import_has_failed() { return import_failed; }

void use_python_functions(TorchNpu& out) {
  if (!has_torch_npu_in_python()) return;
  out.init = [] { run_in_torch_npu_python("import torch\ntorch.npu.init()\n"); };
  out.supports_inf_nan = [] {
    static const bool answer = run_in_torch_npu_python("import torch\nresult = torch.npu.utils.is_support_inf_nan()\n") == "True";
    return answer;
  };
}

void import_wheel(const PythonEnvironment& environment, TorchNpu& out) {
  check_environment(environment);
  out.path = environment.torch_npu + "/lib/libtorch_npu.so";
  start_python(environment.libpython, environment.python, environment.version);
  import_torch_npu(environment.python, out.path);
  out.finalize = end_python_modules;
}

void import_into_host() {
  std::vector<std::string> tried;
  if (const char* named = std::getenv(kPythonVariable); named != nullptr && *named != '\0') {
    const auto theirs = environment_with_torch_npu(tried)->torch_npu;
    const auto ours = run_in_torch_npu_python(kFolderOfTorchNpu);
    if (ours != theirs)
      fail_npu("the Python of this process has " + (ours.empty() ? "no torch_npu" : ours) + ", and " + kPythonVariable + "=" + named +
                   " has " + theirs + "; a process can have only one Python",
               "start the program with that interpreter, or unset " + std::string(kPythonVariable));
  }
  import_torch_npu("the Python of this process", "its libtorch_npu.so");
}

}  // namespace npu_train::detail
