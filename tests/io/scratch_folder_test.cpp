#include "testing.hpp"

#include "npu_train/io/scratch_folder.hpp"

#include <fstream>

#include "environment_variable.hpp"

using namespace npu_train;
using namespace npu_train::testing;
namespace fs = std::filesystem;

TEST_CASE("a scratch folder is one's own, and goes with its files") {
  TempDir dir;
  const EnvironmentVariable here("TMPDIR", dir.path().string());
  fs::path first;
  {
    const npu_train::detail::ScratchFolder a("test"), b("test");
    CHECK(a.path != b.path);
    CHECK(a.path.parent_path() == dir.path());
    first = a.path;
    std::ofstream(a.path / "file") << "text";
  }
  CHECK_FALSE(fs::exists(first));
}

TEST_CASE("where none can be made, the variable is named") {
  TempDir dir;
  const EnvironmentVariable nowhere("TMPDIR", (dir / "none").string());
  const auto e = error_of([] { npu_train::detail::ScratchFolder folder("test"); });
  CHECK(e.kind() == ErrorKind::Checkpoint);
  CHECK(has(e.what(), "TMPDIR"));
}
