/// Test cases that only some machines can run. They are skipped by name: main.cpp prints each with its reason.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>

#include "testing.hpp"

namespace npu_train::testing {

/// TEST_CASE("archives are fetched" * only_if(has_program("curl"), "there is no program curl"))
class only_if {  // NOLINT: a decorator of doctest, which are all lower case
 public:
  only_if(bool condition, const char* why_not) : condition_(condition), why_not_(why_not) {}
  void fill(doctest::detail::TestCase& test) const {
    if (condition_) return;
    test.m_skip = true;
    test.m_description = why_not_;
  }

 private:
  bool condition_;
  const char* why_not_;
};

/// Whether a folder of the search path has the program.
inline bool has_program(const std::string& name) {
  const char* set = std::getenv("PATH");
  std::istringstream folders(set != nullptr ? set : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (::access((std::filesystem::path(folder) / name).c_str(), X_OK) == 0) return true;
  }
  return false;
}

/// The real CIFAR-10 images in shared_dir(), or an empty path.
inline std::filesystem::path real_images() {
  const auto folder = shared_dir() / "data" / "cifar10-subset";
  return !shared_dir().empty() && std::filesystem::exists(folder) ? folder : std::filesystem::path();
}

}  // namespace npu_train::testing
