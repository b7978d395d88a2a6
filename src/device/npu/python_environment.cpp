#include "device/npu/python_environment.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <sstream>
#include <system_error>

#include "npu_train/core/process.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train::detail {
namespace {

namespace fs = std::filesystem;

// Each line with an answer begins with kMark, because modules that run at the start of an interpreter may print, too. The script does not
// search the working directory for packages.
constexpr const char* kMark = "npu_train:";
constexpr const char* kQuestions = R"(
import importlib.metadata, importlib.util, os, sys, sysconfig
sys.path[:] = [p for p in sys.path if p]
def answer(name, value): print('npu_train:' + name + '=' + str(value or ''))
def folder(package):
    found = importlib.util.find_spec(package)
    return os.path.realpath(os.path.dirname(found.origin)) if found and found.origin else ''
def version(package):
    try: return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError: return ''
def libpython():
    config = sysconfig.get_config_var
    folders = [config('LIBDIR'), os.path.join(sys.base_prefix, 'lib'), os.path.join(sys.base_prefix, 'lib', config('MULTIARCH') or '')]
    for path in (os.path.join(f, config(n)) for f in folders if f for n in ('INSTSONAME', 'LDLIBRARY') if config(n)):
        if '.so' in os.path.basename(path) and os.path.exists(path): return path
answer('executable', sys.executable)
answer('version', '.'.join(str(n) for n in sys.version_info[:3]))
answer('libpython', libpython())
for package in 'torch', 'torch_npu':
    answer(package, folder(package))
    answer(package + '_version', version(package))
)";

// Returns the answers "name=value" among the lines of the output.
std::map<std::string, std::string> answers_in(const std::string& output) {
  std::map<std::string, std::string> out;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    const std::string mark = kMark;
    const auto equals = line.find('=');
    if (line.starts_with(mark) && equals != std::string::npos)
      out[line.substr(mark.size(), equals - mark.size())] = line.substr(equals + 1);
  }
  return out;
}

std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

std::string variable(const char* name) {
  const char* set = std::getenv(name);
  return set == nullptr ? "" : set;
}

}  // namespace

std::string describe_python(const std::string& python, PythonEnvironment& out) {
  using End = CommandResult::End;
  constexpr auto kDeadline = std::chrono::seconds(60);  // generous, for a busy network file system
  const auto result = run_command({python, "-c", kQuestions}, {.deadline = kDeadline});
  if (result.end == End::NotFound) return "there is no such program";
  if (result.end == End::TimedOut) return "it gave no answer within " + std::to_string(kDeadline.count()) + " s";
  if (result.end == End::Signalled) return "it was ended by signal " + std::to_string(result.status);
  auto answers = answers_in(result.output);
  if (!result.ok() || answers["version"].empty())
    return "it is no Python 3.8 or newer that works: exit code " + std::to_string(result.status) + ", " + last_line(result.output);
  out = {.python = answers["executable"].empty() ? python : answers["executable"],  // not `python`, which may be a launcher such as pyenv's
         .version = answers["version"],
         .libpython = answers["libpython"],
         .torch = answers["torch"],
         .torch_version = answers["torch_version"],
         .torch_npu = answers["torch_npu"],
         .torch_npu_version = answers["torch_npu_version"]};
  return "";
}

std::vector<std::string> usual_pythons(const fs::path& torch_libraries) {
  std::vector<std::string> out;
  const auto add = [&](const fs::path& python) {
    std::error_code none;
    if (fs::exists(python, none) && std::find(out.begin(), out.end(), python) == out.end()) out.push_back(python.string());
  };
  if (const auto active = variable("VIRTUAL_ENV"); !active.empty()) add(fs::path(active) / "bin/python3");
  // Derives the environment from PREFIX/lib/python3.11/site-packages/torch/lib.
  if (const auto packages = torch_libraries.parent_path().parent_path(); packages.filename().string().ends_with("-packages"))
    add(packages.parent_path().parent_path().parent_path() / "bin/python3");
  out.emplace_back("python3");
  return out;
}

}  // namespace npu_train::detail
