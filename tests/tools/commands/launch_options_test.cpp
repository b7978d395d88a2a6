#include "testing.hpp"

#include <sys/wait.h>

#include <cstdlib>
#include <fstream>

#include "tools/commands/train_app/launch_options.hpp"

using namespace npu_train;
using namespace npu_train::testing;

using Words = std::vector<std::string>;

namespace {

Words rank_words(Words words) {
  std::vector<char*> pointers;
  for (auto& word : words) pointers.push_back(word.data());
  auto out = cli::rank_command(static_cast<int>(pointers.size()), pointers.data());
  REQUIRE(!out.empty());
  CHECK(out[0] == std::filesystem::read_symlink("/proc/self/exe").string());
  out.erase(out.begin());
  return out;
}

/// Returns the exit code of a child that runs `body`. A destructor and a function of atexit() leave files in `dir` if they run.
int code_of_child(const std::filesystem::path& dir, const std::function<void()>& body) {
  static std::filesystem::path at_exit;
  at_exit = dir / "atexit";
  const pid_t child = ::fork();
  if (child == 0) {
    std::atexit([] { std::ofstream(at_exit) << "ran"; });
    struct Object {
      std::filesystem::path file;
      ~Object() { std::ofstream(file) << "ran"; }
    };
    try {
      const Object object{dir / "destructor"};
      cli::end_with_peer(body);
    } catch (const Error& e) {
      std::exit(e.exit_code());
    }
    std::exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

}  // namespace

TEST_CASE("a rank gets the words of the command but those of the launcher") {
  CHECK(rank_words({"app", "c.yaml", "--nproc", "4", "a=1", "--max-restarts=2", "--min-nproc", "2"}) == Words{"c.yaml", "a=1"});
  CHECK(rank_words({"app", "--nproc=4", "c.yaml", "output.name=nproc"}) == Words{"c.yaml", "output.name=nproc"});
}

TEST_CASE("a restart resumes, whatever the command resumed") {
  for (const auto& given : {Words{"app", "c.yaml"}, Words{"app", "c.yaml", "--resume", "last"}, Words{"app", "--resume=a/b", "c.yaml"}})
    CHECK(cli::resumed_command(given) == Words{"app", "--resume", "auto", "c.yaml"});
}

TEST_CASE("after the failure of another rank nothing runs that could wait for it") {
  const TempDir dir;
  const auto ran = [&](const char* file) { return std::filesystem::exists(dir / file); };
  CHECK(code_of_child(dir.path(), [] { throw Error(ErrorKind::Peer, "test", "rank 1 is gone"); }) == 9);
  CHECK(!ran("atexit"));
  CHECK(!ran("destructor"));
  CHECK(code_of_child(dir.path(), [] { throw Error(ErrorKind::Data, "test", "an error of its own"); }) == 3);
  CHECK(ran("atexit"));
  CHECK(ran("destructor"));
}
