#include "device/npu/python_environment.hpp"

#include "testing.hpp"

#include <algorithm>
#include <fstream>

#include "device/npu/torch_npu.hpp"
#include "device/npu/torch_npu_errors.hpp"
#include "environment_variable.hpp"
#include "npu_train/device/backend.hpp"

using namespace npu_train;
using namespace npu_train::testing;
using npu_train::detail::PythonEnvironment;
namespace fs = std::filesystem;

namespace {

// Writes a program in place of an interpreter, which prints `text` and ends with `code`.
std::string interpreter(const fs::path& path, const std::string& text, int code = 0) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << "#!/bin/sh\ncat << 'END'\n" << text << "\nEND\nexit " << code << "\n";
  fs::permissions(path, fs::perms::owner_all);
  return path.string();
}

std::string why_not(const std::string& python) {
  PythonEnvironment none;
  return npu_train::detail::describe_python(python, none);
}

std::string refusal_with(const std::string& python) {
  const EnvironmentVariable named("NPU_TRAIN_PYTHON", python);
  const auto e = error_of([] { resolve_device("npu"); });
  CHECK((e.kind() == ErrorKind::Device));
  return e.what();
}

}  // namespace

TEST_CASE("an interpreter describes its environment between the lines that others print") {
  TempDir dir;
  PythonEnvironment found;
  const auto python = interpreter(dir / "python",
                                  "hello\nnpu_train:version=3.11.7\nnpu_train:libpython=/a/libpython3.11.so\n"
                                  "npu_train:torch=/a=b/torch\nnpu_train:torch_version=2.13.0+cpu\nversion=2.7\n"
                                  "npu_train:torch_npu=/c d/torch_npu\nnpu_train:torch_npu_version=2.13.0");
  REQUIRE(npu_train::detail::describe_python(python, found).empty());
  CHECK(found.python == python);
  CHECK(found.version == "3.11.7");
  CHECK(found.libpython == "/a/libpython3.11.so");
  CHECK(found.torch == "/a=b/torch");
  CHECK(found.torch_version == "2.13.0+cpu");
  CHECK(found.torch_npu == "/c d/torch_npu");
  CHECK(found.torch_npu_version == "2.13.0");
}

TEST_CASE("a program that is no interpreter: each cause has its sentence") {
  TempDir dir;
  CHECK(why_not(dir / "nothing") == "there is no such program");
  CHECK(has(why_not("true"), "it is no Python"));
  CHECK(has(why_not(interpreter(dir / "old", "Traceback\nImportError: no module importlib.metadata", 1)),
            "exit code 1, ImportError: no module importlib.metadata"));
}

TEST_CASE("interpreters are tried in this order: active environment, that of libtorch, PATH") {
  TempDir dir;
  const auto active = interpreter(dir / "active/bin/python3", ""), ours = interpreter(dir / "ours/bin/python3", "");
  const EnvironmentVariable environment("VIRTUAL_ENV", dir / "active");
  const auto libraries = dir / "ours/lib/python3.11/site-packages/torch/lib";
  CHECK(npu_train::detail::usual_pythons(libraries) == std::vector<std::string>{active, ours, "python3"});
  CHECK(npu_train::detail::usual_pythons(dir / "libtorch/lib") == std::vector<std::string>{active, "python3"});
}

TEST_CASE("an environment whose torch_npu does not fit is refused before anything of it is loaded") {
  TempDir dir;
  const auto minor = npu_train::detail::torch_minor();
  const auto with = [&](const std::string& answers) {
    return refusal_with(interpreter(dir / "python", "npu_train:version=3.11.7\n" + answers));
  };
  CHECK(has(refusal_with(dir / "nothing"), "there is no such program"));
  CHECK(has(with("npu_train:torch=/t/torch"), "has no torch_npu"));
  const auto old = with("npu_train:torch_npu=/t/torch_npu\nnpu_train:torch_npu_version=2.5.1.post1");
  CHECK(has(old, "torch_npu 2.5.1.post1, which does not fit libtorch " + minor));
  const auto fitting = "npu_train:torch_npu=/t/torch_npu\nnpu_train:torch_npu_version=" + minor + ".0\n";
  CHECK(has(with(fitting), "has torch_npu but no torch"));
  const auto other = with(fitting + "npu_train:torch=/t/torch\nnpu_train:torch_version=2.9.0");
  CHECK(has(other, "(2.9.0) is /t/torch/lib/libtorch_cpu.so"));
  CHECK(has(other, "this process uses /"));
  const EnvironmentVariable both("NPU_TRAIN_TORCH_NPU", "/t");
  CHECK(has(with(fitting), "are both set"));
}

TEST_CASE("the loader's words become what to install: another CANN is no other libtorch") {
  const auto text = [](const std::string& error) {
    return std::string(error_of([&] { npu_train::detail::explain_loading("/t/libtorch_npu.so", error); }).what());
  };
  CHECK(has(text("libhccl.so: cannot open shared object file: No such file or directory"), "needs libhccl.so, which is not found"));
  CHECK(has(text("/t/libtorch_npu.so: undefined symbol: aclrtNew"), "does not fit the CANN that is loaded"));
  CHECK(has(text("/t/libtorch_npu.so: undefined symbol: _ZN3c104goneEv"), "does not fit libtorch"));
}

TEST_CASE("launchers count NPUs only if an environment has torch_npu") {
  TempDir dir;
  const EnvironmentVariable visible("ASCEND_RT_VISIBLE_DEVICES", "0,1,2");
  const EnvironmentVariable without("NPU_TRAIN_PYTHON", interpreter(dir / "without", "npu_train:version=3.11.7"));
  CHECK(npu_train::detail::count_visible_npus() == 0);
  const EnvironmentVariable with("NPU_TRAIN_PYTHON",
                                 interpreter(dir / "with", "npu_train:version=3.11.7\nnpu_train:torch_npu=/t/torch_npu"));
  CHECK(npu_train::detail::count_visible_npus() == 3);
}
