// The Python interpreter of this process: the host program's, or one that is started here from a libpython loaded at run time. The build
// does not link with Python.
#pragma once

#include <string>

namespace npu_train::detail {

struct PythonAnswer {
  std::string result{};  // str() of the variable `result` that the code sets
  std::string error{};   // "ImportError: no such file"; "" if the code ran to its end
  std::string output{};  // what the code printed to sys.stdout and sys.stderr
  bool ok() const { return error.empty(); }
};

// True if the process has an interpreter.
bool has_python();

// True if the process has an interpreter that start_python() did not start.
bool has_python_of_host();

// Starts an interpreter in the environment of `python`, with the library `libpython` of Python `version` ("3.11.7"). The interpreter stays
// until the process ends. Signal handlers and LC_CTYPE are unchanged afterwards, and the calling thread does not hold the interpreter's
// lock. Further calls with the same environment do nothing. Error(Device) if the interpreter cannot be started, or if the process has
// another one.
void start_python(const std::string& libpython, const std::string& python, const std::string& version);

// Runs statements in a namespace of their own, under the interpreter's lock. Requires has_python(). If start_python() started the
// interpreter, SIGINT's handler is unchanged afterwards.
PythonAnswer run_python(const std::string& code);

}  // namespace npu_train::detail
