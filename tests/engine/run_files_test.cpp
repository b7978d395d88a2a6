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
  CHECK(run_dirs(base, "a").empty());
  fs::create_directories(dir / "a/version_1/checkpoints/one");
  REQUIRE(run_dirs(base, "a").size() == 1);
  CHECK(fs::path(run_dirs(base, "a")[0]).filename() == "version_1");
  CHECK(run_dirs(base, "none").empty());
  CHECK(error_of([] { make_run_dir("/proc/none", "a"); }).kind() == ErrorKind::Checkpoint);
}
