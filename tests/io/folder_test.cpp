#include "testing.hpp"

#include <fstream>
#include <set>

#include "environment_variable.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/io/folder.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace fs = std::filesystem;

namespace {

std::set<std::string> entries_of(const fs::path& folder) {
  std::set<std::string> out;
  for (const auto& item : fs::directory_iterator(folder)) out.insert(item.path().filename().string());
  return out;
}

}  // namespace

TEST_CASE("leftovers under the caller's names are removed whatever process made them; others only if their process is dead") {
  const TempDir dir;
  // Temporary files of another machine, of process 1 of this machine (as in containers), and of this process.
  const std::string mine = [&] {
    AtomicFile file(dir / "x");
    for (const auto& item : fs::directory_iterator(dir.path())) return item.path().filename().string();
    return std::string();
  }();
  const auto machine = mine.substr(mine.find(".tmp-") + 5, 6);
  const auto foreign = machine == "abcdef" ? std::string("fedcba") : std::string("abcdef");
  for (const auto& name : {".last.tmp-" + foreign + "-7-0", ".last.tmp-" + machine + "-1-0",
                           ".last.tmp-" + machine + "-" + std::to_string(::getpid()) + "-999", ".other.tmp-" + machine + "-1-0"}) {
    fs::create_directory(dir / name);
    std::ofstream(dir / name / "weights") << "x";
  }
  std::ofstream(dir / "last") << "x";
  CHECK(remove_leftovers(dir.path(), [](std::string_view name) { return name == "last"; }) == 3);
  CHECK(entries_of(dir.path()) == std::set<std::string>{"last", ".other.tmp-" + machine + "-1-0"});
}

TEST_CASE("a folder is removed with its content") {
  const TempDir dir;
  fs::create_directories(dir / "a/b");
  std::ofstream(dir / "a/b/c") << "x";
  remove_folder(dir / "a");
  CHECK(fs::is_empty(dir.path()));
  CHECK(error_of([&] { remove_folder(dir / "a"); }).kind() == ErrorKind::Checkpoint);
}

TEST_CASE("a link is pointed elsewhere in one step") {
  const TempDir dir;
  for (const char* target : {"one", "two"}) {
    set_link(dir / "last", target);
    CHECK(fs::read_symlink(dir / "last") == target);
  }
  CHECK(entries_of(dir.path()) == std::set<std::string>{"last"});
  fs::create_directory(dir / "taken");
  CHECK(error_of([&] { set_link(dir / "taken", "one"); }).kind() == ErrorKind::Checkpoint);
  CHECK(entries_of(dir.path()) == std::set<std::string>{"last", "taken"});
}

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
