// Sets a variable of this process's environment in a scope.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace npu_train::testing {

class EnvironmentVariable {
 public:
  EnvironmentVariable(const char* name, const std::string& value) : name_(name) {
    if (const char* set = std::getenv(name)) before_ = set;
    ::setenv(name, value.c_str(), 1);
  }
  ~EnvironmentVariable() { before_ ? ::setenv(name_, before_->c_str(), 1) : ::unsetenv(name_); }
  EnvironmentVariable(const EnvironmentVariable&) = delete;
  EnvironmentVariable& operator=(const EnvironmentVariable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

}  // namespace npu_train::testing
