/// The first include of every test file: doctest, with its own CHECK instead of c10's, which aborts.
#pragma once
#include <c10/util/Logging.h>
#undef CHECK
#undef CHECK_EQ
#undef CHECK_NE
#undef CHECK_LT
#undef CHECK_LE
#undef CHECK_GT
#undef CHECK_GE
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <limits>
#include <string>

#include <unistd.h>

#include "npu_train/core/error.hpp"

namespace npu_train::testing {

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// A temporary folder for one test case, removed at its end.
class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "npu_train_XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

/// Calls `fn` and returns the Error that it throws; fails the test if it throws none.
template <class Fn>
Error error_of(Fn&& fn) {
  try {
    fn();
  } catch (const Error& e) {
    return e;
  }
  FAIL("expected an npu_train::Error");
  return Error(ErrorKind::Internal, "testing", "none");
}

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// Returns the folder of the real images: NPU_TRAIN_SHARED, or ../shared next to the repository. Empty if it does not exist; the test is
/// then skipped by name.
inline std::filesystem::path shared_dir() {
  if (const char* set = std::getenv("NPU_TRAIN_SHARED")) return set;
  const auto beside = std::filesystem::path(NPU_TRAIN_SOURCE_DIR).parent_path() / "shared";
  return std::filesystem::exists(beside) ? beside : std::filesystem::path();
}

}  // namespace npu_train::testing
