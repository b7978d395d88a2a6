#include "only_if.hpp"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "environment_variable.hpp"
#include "npu_train/core/process.hpp"
#include "testing.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

constexpr const char* kNoChild = "NPU_TRAIN_TEST_OF_ONLY_IF";

// Returns true, except in the child processes of the case. There it prints a message, which shows that the condition is evaluated.
bool is_no_child() {
  if (std::getenv(kNoChild) == nullptr) return true;
  std::puts("evaluated");
  return false;
}

}  // namespace

TEST_CASE("a condition is evaluated if its case is selected, and the case is skipped with the reason" *
          only_if(is_no_child(), "the reason")) {
  const EnvironmentVariable child(kNoChild, "yes");
  const auto program = std::filesystem::read_symlink("/proc/self/exe").string();
  const auto output = [&](const std::string& option) {
    const auto result = run_command({program, option}, {.deadline = std::nullopt});
    CHECK(result.ok());
    return result.output;
  };
  const std::string skipped =
      "\nskipped: a condition is evaluated if its case is selected, and the case is skipped with the reason: the reason\n";
  for (const std::string option : {"--source-file=*/only_if_test.cpp", "--test-case=a condition is evaluated*"}) {
    CAPTURE(option);
    const auto said = output(option);
    CHECK(has(said, "evaluated\n"));
    CHECK(has(said, skipped));
    CHECK(has(said, "test cases: 0 | 0 passed | 0 failed"));
  }
  for (const std::string option : {"--source-file=*/no_such_test.cpp", "--test-case-exclude=*", "--help"}) {
    CAPTURE(option);
    const auto said = output(option);
    CHECK_FALSE(has(said, "evaluated\n"));
    CHECK_FALSE(has(said, "skipped: "));
    CHECK(has(said, "[doctest]"));
  }
}
