#include "testing.hpp"

#include "npu_train/engine/run_files.hpp"

#include <fstream>

using namespace npu_train;
using namespace npu_train::testing;
namespace fs = std::filesystem;

TEST_CASE("run folders are numbered, and gaps or foreign names do not disturb") {
  TempDir dir;
  const auto base = dir.path().string();
  CHECK(fs::path(make_run_dir(base, "a")).filename() == "version_0");
  CHECK(fs::path(make_run_dir(base, "a")).filename() == "version_1");
  fs::create_directory(dir / "a/version_12");
  fs::create_directory(dir / "a/version_x");
  fs::create_directory(dir / "a/version_");
  CHECK(fs::path(make_run_dir(base, "a")).filename() == "version_13");
  CHECK(newest_run_dir(base, "a") == "");
  fs::create_directories(dir / "a/version_1/checkpoints/one");
  CHECK(fs::path(newest_run_dir(base, "a")).filename() == "version_1");
  CHECK(newest_run_dir(base, "none") == "");
  CHECK(error_of([] { make_run_dir("/proc/none", "a"); }).kind() == ErrorKind::Checkpoint);
}
