#include "device/npu/python_interpreter.hpp"

#include <dlfcn.h>

#include <clocale>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <system_error>
#include <type_traits>

#include "npu_train/core/error.hpp"

namespace npu_train::detail {
namespace {

// The functions of libpython that are used here. All belong to its stable ABI except set_program_name, which 3.15 removes.
struct PythonApi {
  const char* (*get_version)() = nullptr;
  int (*is_initialized)() = nullptr;
  wchar_t* (*decode_locale)(const char*, size_t*) = nullptr;
  void (*set_program_name)(const wchar_t*) = nullptr;
  void (*initialize)(int signals) = nullptr;
  void* (*save_thread)() = nullptr;
  int (*take_lock)() = nullptr;
  void (*release_lock)(int) = nullptr;
  void* (*compile)(const char*, const char*, int) = nullptr;
  void* (*evaluate)(void* code, void* globals, void* locals) = nullptr;
  void* (*builtins)() = nullptr;
  void* (*new_dict)() = nullptr;
  int (*set_item)(void* dict, const char*, void*) = nullptr;
  void* (*get_item)(void* dict, const char*) = nullptr;
  void* (*to_object)(const char*, ptrdiff_t) = nullptr;
  const char* (*to_text)(void*, ptrdiff_t*) = nullptr;
  void (*clear_error)() = nullptr;
  void (*release)(void*) = nullptr;
};

// Returns the name of a missing function, or nullptr.
const char* look_up(void* library, PythonApi& out) {
  const char* missing = nullptr;
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    if (function == nullptr) missing = name;
  };
  find("Py_GetVersion", out.get_version);
  find("Py_IsInitialized", out.is_initialized);
  find("Py_DecodeLocale", out.decode_locale);
  find("Py_SetProgramName", out.set_program_name);
  find("Py_InitializeEx", out.initialize);
  find("PyEval_SaveThread", out.save_thread);
  find("PyGILState_Ensure", out.take_lock);
  find("PyGILState_Release", out.release_lock);
  find("Py_CompileString", out.compile);
  find("PyEval_EvalCode", out.evaluate);
  find("PyEval_GetBuiltins", out.builtins);
  find("PyDict_New", out.new_dict);
  find("PyDict_SetItemString", out.set_item);
  find("PyDict_GetItemString", out.get_item);
  find("PyUnicode_FromStringAndSize", out.to_object);
  find("PyUnicode_AsUTF8AndSize", out.to_text);
  find("PyErr_Clear", out.clear_error);
  find("Py_DecRef", out.release);
  return missing;
}

constexpr const char* kWhere = "device npu";
constexpr int kStatements = 257;  // Py_file_input

std::string started;  // path of the interpreter whose environment start_python() uses

class Lock {
 public:
  explicit Lock(const PythonApi& python) : python_(python), state_(python.take_lock()) {}
  ~Lock() { python_.release_lock(state_); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  const PythonApi& python_;
  int state_;
};

// Runs the text `code` and sets `result`, `error` and `output`. Captures what the code prints, because standard output belongs to the
// program.
constexpr const char* kRun = R"(
import contextlib, io
result = error = ''
printed = io.StringIO()
scope = {'__name__': 'npu_train'}
try:
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        exec(compile(code, '<npu_train>', 'exec'), scope)
    result = str(scope.get('result', ''))
except BaseException as e:
    error = f'{type(e).__name__}: {e}'
output = printed.getvalue()
)";

// Sets the process's LC_CTYPE to the user's locale in its scope, because an interpreter decodes paths by it. An interpreter also changes
// LC_CTYPE at its start; the destructor restores the previous value.
class UserLocale {
 public:
  UserLocale() : before_(std::setlocale(LC_CTYPE, nullptr)) { std::setlocale(LC_CTYPE, ""); }
  ~UserLocale() { std::setlocale(LC_CTYPE, before_.c_str()); }
  UserLocale(const UserLocale&) = delete;
  UserLocale& operator=(const UserLocale&) = delete;

 private:
  std::string before_;
};

// Restores SIGINT's handler at the end of its scope, because importing the module `signal` installs Python's handler.
class HostInterrupt {
 public:
  HostInterrupt() { ::sigaction(SIGINT, nullptr, &before_); }
  ~HostInterrupt() { ::sigaction(SIGINT, &before_, nullptr); }
  HostInterrupt(const HostInterrupt&) = delete;
  HostInterrupt& operator=(const HostInterrupt&) = delete;

 private:
  struct sigaction before_ {};
};

PythonApi of_process() {
  PythonApi out;
  look_up(RTLD_DEFAULT, out);
  return out;
}

// Returns the file of the libpython that this process has loaded; "" if there is none.
std::string loaded_libpython() {
  Dl_info found{};
  void* const function = ::dlsym(RTLD_DEFAULT, "Py_GetVersion");
  return function != nullptr && ::dladdr(function, &found) != 0 && found.dli_fname != nullptr ? found.dli_fname : "";
}

std::string text_of(const PythonApi& python, void* dict, const char* name) {
  void* const value = python.get_item(dict, name);
  ptrdiff_t size = 0;
  const char* const text = value != nullptr ? python.to_text(value, &size) : nullptr;
  if (text == nullptr) python.clear_error();  // half of a surrogate pair cannot be written as UTF-8
  return text != nullptr ? std::string(text, static_cast<size_t>(size)) : std::string();
}

}  // namespace

bool has_python() {
  auto* const is_initialized = reinterpret_cast<int (*)()>(::dlsym(RTLD_DEFAULT, "Py_IsInitialized"));
  return is_initialized != nullptr && is_initialized() != 0;
}

bool has_python_of_host() { return has_python() && started.empty(); }

void start_python(const std::string& libpython, const std::string& python, const std::string& version) {
  if (has_python()) {
    check(started == python, ErrorKind::Device, kWhere, "this process runs the Python of ", started.empty() ? "its host program" : started,
          ", not that of ", python, "; hint: start another process");
    return;
  }
  // A libpython that is already loaded must be this one, because libtorch_python would call the functions of the libpython that was loaded
  // first.
  std::error_code none;
  const auto loaded_before = loaded_libpython();
  check(loaded_before.empty() || std::filesystem::equivalent(loaded_before, libpython, none), ErrorKind::Device, kWhere,
        "this process has loaded ", loaded_before, ", and torch_npu of ", python, " needs ", libpython,
        "; a process can have only one Python; hint: name an interpreter of the first in NPU_TRAIN_PYTHON, or do not link that library");
  void* const library = ::dlopen(libpython.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    const char* const reason = ::dlerror();
    throw Error(ErrorKind::Device, kWhere,
                std::string("the library of ") + python + " cannot be loaded: " + (reason != nullptr ? reason : ""),
                "install that Python again, or name another interpreter in NPU_TRAIN_PYTHON");
  }
  PythonApi api;
  if (const char* const missing = look_up(library, api))
    throw Error(ErrorKind::Device, kWhere, libpython + " has no function " + missing, "CPython 3.10 to 3.14 have it: use one of them");
  const std::string loaded = api.get_version();
  check(loaded.starts_with(version + " ") || loaded.starts_with(version + "+"), ErrorKind::Device, kWhere, libpython, " is of Python ",
        loaded.substr(0, loaded.find(' ')), ", and ", python, " is of ", version,
        "; hint: two installations are mixed up; name an interpreter with its own library in NPU_TRAIN_PYTHON");
  const UserLocale locale;
  // Sets the path of the program, by which the interpreter finds its environment. The interpreter keeps the pointer.
  wchar_t* const program = api.decode_locale(python.c_str(), nullptr);
  check(program != nullptr, ErrorKind::Device, kWhere, "the path ", python, " cannot be decoded in the locale of this process");
  api.set_program_name(program);
  api.initialize(0);
  api.save_thread();
  started = python;
}

PythonAnswer run_python(const std::string& code) {
  static const PythonApi python = of_process();
  std::optional<HostInterrupt> interrupt;
  if (!has_python_of_host()) interrupt.emplace();
  const Lock lock(python);
  PythonAnswer out{.error = "the interpreter has no memory left"};
  void* const scope = python.new_dict();
  void* const text = python.to_object(code.data(), static_cast<ptrdiff_t>(code.size()));
  void* const statements = python.compile(kRun, "<npu_train>", kStatements);
  if (scope != nullptr && text != nullptr && statements != nullptr && python.set_item(scope, "__builtins__", python.builtins()) == 0 &&
      python.set_item(scope, "code", text) == 0) {
    void* const none = python.evaluate(statements, scope, scope);
    if (none != nullptr) out = {text_of(python, scope, "result"), text_of(python, scope, "error"), text_of(python, scope, "output")};
    python.release(none);
  }
  python.clear_error();
  for (void* object : {statements, text, scope}) python.release(object);
  return out;
}

}  // namespace npu_train::detail
