#include "testing.hpp"

#include "npu_train/tools/doctor/program_start.hpp"

#include <csignal>

#include "fake_host.hpp"

using namespace npu_train;
using namespace npu_train::testing;

namespace {

constexpr const char* kProgram = "/opt/npu/bin/npu_tool_torch";
constexpr const char* kLoader = "/opt/npu/bin/npu_tool_torch: ";

// A program that is installed with its libtorch, and whose start fails with the loader's exit status.
struct Installed {
  FakeHost host;

  Installed() {
    add_linux(host, 4, 16 * kGiB);
    host.write(kProgram,
               FakeLibrary{{"libtorch_cpu.so", "libc10.so", "libyaml-cpp.so.0.7", "libc.so.6"}, "$ORIGIN/../lib:/opt/torch/lib"}.bytes());
    for (const char* file :
         {"/opt/torch/lib/libtorch_cpu.so", "/opt/torch/lib/libc10.so", "/usr/lib/libyaml-cpp.so.0.7", "/usr/lib/libc.so.6"})
      host.write(file, FakeLibrary{{}}.bytes());
    host.write("/opt/torch/version.py", "from typing import Optional\n__version__ = '2.11.0+cpu'\ndebug = False\n");
    host.commands[std::string(kProgram) + " --parse-only"] = says(std::string(kLoader) + "error while loading shared libraries: x", 127);
  }

  void ends(CommandResult::End end, int status, const std::string& output) {
    host.commands[std::string(kProgram) + " --parse-only"] = {end, status, output};
  }

  Finding finding() const {
    const auto found = check_program_start(host.view(), kProgram, "2.13.0");
    REQUIRE(found);
    CHECK((found->area == "system" && found->name == "libtorch" && found->verdict == Verdict::Fail));
    return *found;
  }
};

}  // namespace

TEST_CASE("a program that starts has no finding, whatever its exit status says about its arguments") {
  Installed m;
  m.ends(CommandResult::End::Exited, 0, "");
  CHECK(!check_program_start(m.host.view(), kProgram, "2.13.0"));
  m.ends(CommandResult::End::Exited, 2, "an error of usage");
  CHECK(!check_program_start(m.host.view(), kProgram, "2.13.0"));
  m.ends(CommandResult::End::TimedOut, 0, "");  // a slow disk
  CHECK(!check_program_start(m.host.view(), kProgram, "2.13.0"));
  CHECK(finds_its_libraries(m.host.view(), kProgram));
}

TEST_CASE("a libtorch that is not there: its libraries, the places, the version and what to install") {
  Installed m;
  m.host.remove("/opt/torch");
  m.host.environment["LD_LIBRARY_PATH"] = "/usr/local/Ascend/lib64";
  const auto f = m.finding();
  CHECK(f.finding == "npu_tool_torch cannot start: libtorch_cpu.so, libc10.so not found");
  for (const char* part : {"/usr/local/Ascend/lib64", "/opt/npu/lib", "/opt/torch/lib", "libtorch 2.13.0"}) CHECK(has(f.evidence, part));
  for (const char* part : {"install libtorch 2.13.0", "pip install torch==2.13.0", "LD_LIBRARY_PATH=", "scripts/setup"})
    CHECK(has(f.fix, part));
  CHECK(!finds_its_libraries(m.host.view(), kProgram));
  // libraries in a folder of LD_LIBRARY_PATH are found
  m.host.write("/usr/local/Ascend/lib64/libtorch_cpu.so", FakeLibrary{{}}.bytes());
  CHECK(m.finding().finding == "npu_tool_torch cannot start: libc10.so not found");
}

TEST_CASE("another library that is not there is not libtorch's fault") {
  Installed m;
  m.host.remove("/usr/lib/libyaml-cpp.so.0.7");
  const auto f = m.finding();
  CHECK(has(f.finding, "libyaml-cpp.so.0.7 not found"));
  CHECK(has(f.fix, "install the packages"));
  CHECK(!has(f.fix, "install libtorch"));
}

TEST_CASE("a truncated library is named with its sizes") {
  Installed m;
  const auto whole = m.host.text("/opt/torch/lib/libtorch_cpu.so");
  m.host.write("/opt/torch/lib/libtorch_cpu.so", whole.substr(0, whole.size() - 1));
  m.ends(CommandResult::End::Signalled, SIGBUS, "");
  const auto f = m.finding();
  CHECK(has(f.finding, "/opt/torch/lib/libtorch_cpu.so is damaged"));
  CHECK(has(f.evidence, "truncated: " + std::to_string(whole.size() - 1) + " bytes"));
  CHECK(has(f.fix, "install libtorch 2.13.0"));
}

TEST_CASE("a libtorch of another version is named by the symbol that it lacks, with both versions") {
  Installed m;
  m.ends(CommandResult::End::Exited, 127, std::string(kLoader) + "symbol lookup error: undefined symbol: _ZN3c105ErrorC1Ev\n");
  auto f = m.finding();
  CHECK(has(f.finding, "not the version with which it was built"));
  for (const char* part : {"libtorch 2.11.0+cpu was found in /opt/torch/lib", "built with libtorch 2.13.0", "_ZN3c105ErrorC1Ev"})
    CHECK(has(f.evidence, part));
  CHECK(has(f.fix, "install libtorch 2.13.0"));
  m.host.remove("/opt/torch/version.py");
  m.host.write("/opt/torch/build-version", "2.9.1+cu130\n");  // libtorch without Python
  CHECK(has(m.finding().evidence, "libtorch 2.9.1+cu130 was found"));
}

TEST_CASE("a system that is older than the program, and an end by a signal") {
  Installed m;
  m.ends(CommandResult::End::Exited, 1, std::string(kLoader) + "/lib/libc.so.6: version `GLIBC_2.38' not found (required by x)\n");
  CHECK(!check_program_start(m.host.view(), kProgram, "2.13.0"));  // the loader's exit status is 127, not 1
  m.ends(CommandResult::End::Exited, 127, std::string(kLoader) + "/lib/libc.so.6: version `GLIBC_2.38' not found (required by x)\n");
  CHECK(has(m.finding().finding, "GLIBC_2.38"));
  CHECK(has(m.finding().fix, "build npu_train on this machine"));
  m.ends(CommandResult::End::Signalled, SIGILL, "");
  CHECK(has(m.finding().finding, "signal " + std::to_string(SIGILL) + " (Illegal instruction)"));
  CHECK(has(m.finding().fix, "another processor"));
}

TEST_CASE("the program itself is missing or damaged") {
  Installed m;
  m.host.write(kProgram, m.host.text(kProgram).substr(0, 200));
  m.ends(CommandResult::End::Exited, 2, "sh: syntax error");  // a shell received the file
  CHECK(has(m.finding().finding, std::string(kProgram) + " is damaged"));
  CHECK(!finds_its_libraries(m.host.view(), kProgram));
  m.host.remove(kProgram);
  m.ends(CommandResult::End::NotFound, 127, "");
  CHECK(has(m.finding().finding, "there is no " + std::string(kProgram)));
  CHECK(has(m.finding().fix, "cmake --install"));
}
