/// Test cases that only some machines can run. Other machines skip them by name: main.cpp prints each with its reason.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>

#include "testing.hpp"

namespace npu_train::testing {

/// Skips the test case, with the reason `why_not`, if it is selected and the condition does not hold. Defined in main.cpp.
void skip_unless(bool (*condition)(), const char* why_not, const doctest::TestCaseData& test);

/// TEST_CASE("archives are fetched" * only_if(has_program("curl"), "there is no program curl"))
///
/// The condition is evaluated only if the options of the program select the case (--source-file, --test-case, ...).
class only_if {  // NOLINT: a decorator of doctest, which are all lower case
 public:
  only_if(bool (*condition)(), const char* why_not) : condition_(condition), why_not_(why_not) {}
  void fill(doctest::detail::TestCase& test) const { skip_unless(condition_, why_not_, test); }

 private:
  bool (*condition_)();
  const char* why_not_;
};

// only_if is a macro because a function's argument would be evaluated at static initialisation, in the processes of all other files, too.
#define only_if(condition, why_not) only_if([] { return static_cast<bool>(condition); }, why_not)  // NOLINT

/// Returns whether a folder of the search path has the program.
inline bool has_program(const std::string& name) {
  const char* set = std::getenv("PATH");
  std::istringstream folders(set != nullptr ? set : "");
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (::access((std::filesystem::path(folder) / name).c_str(), X_OK) == 0) return true;
  }
  return false;
}

/// Returns the folder of the real CIFAR-10 images in shared_dir(), or an empty path.
inline std::filesystem::path real_images() {
  const auto folder = shared_dir() / "data" / "cifar10-subset";
  return !shared_dir().empty() && std::filesystem::exists(folder) ? folder : std::filesystem::path();
}

}  // namespace npu_train::testing
