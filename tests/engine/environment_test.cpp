#include "testing.hpp"

#include "npu_train/engine/environment.hpp"

#include <ATen/Context.h>
#include <ATen/Parallel.h>

#include "environment_variable.hpp"
#include "npu_train/io/file.hpp"

using namespace npu_train;
using npu_train::testing::EnvironmentVariable;
using npu_train::testing::error_of;
using npu_train::testing::has;
using npu_train::testing::TempDir;

TEST_CASE("environment: facts of this process are there and not empty") {
  const auto facts = environment();
  for (const char* name :
       {"npu_train", "libtorch", "compiler", "machine", "openmp", "mkl", "mkldnn.version", "cpu", "cpu_capability", "threads", "mkldnn",
        "deterministic", "flush_denormal", "float32.all", "float32.cuda.matmul", "cudnn.benchmark"}) {
    CAPTURE(name);
    REQUIRE(facts.count(name) == 1);
    CHECK_FALSE(facts.at(name).empty());
    CHECK_FALSE(has(facts.at(name), "\n"));
  }
  CHECK(facts.at("threads") == std::to_string(at::get_num_threads()));
  CHECK(facts.at("deterministic") == "off");
  CHECK(facts.at("flush_denormal") == "off");
}

TEST_CASE("environment: a switch that moves is seen") {
  const auto before = environment();
  at::globalContext().setDeterministicAlgorithms(true, true);
  at::globalContext().setUserEnabledMkldnn(false);
  const bool flushed = at::globalContext().setFlushDenormal(true);
  const auto after = environment();
  at::globalContext().setDeterministicAlgorithms(false, false);
  at::globalContext().setUserEnabledMkldnn(true);
  at::globalContext().setFlushDenormal(false);
  CHECK(after.at("deterministic") == "warn");
  CHECK(after.at("mkldnn") == "off");
  CHECK(after.at("flush_denormal") == (flushed ? "on" : "off"));
  std::vector<std::string> names;
  for (const auto& [name, value] : after)
    if (before.at(name) != value) names.push_back(name);
  CHECK((names == (flushed ? std::vector<std::string>{"deterministic", "flush_denormal", "mkldnn"}
                           : std::vector<std::string>{"deterministic", "mkldnn"})));
}

TEST_CASE("environment: variables on the list are reported, others never") {
  const EnvironmentVariable listed("ASCEND_LAUNCH_BLOCKING", "1"), exact("NVIDIA_TF32_OVERRIDE", "0"), other("MY_SETTING", "x"),
      secret("NPU_CLOUD_TOKEN", "sesame"), password("HCCL_PASSWORD", "sesame"), near("NVIDIA_TF32_OVERRIDE_2", "x"),
      with_equals("MKL_CBWR", "AVX2,STRICT=1");
  const auto facts = environment();
  CHECK(facts.at("env.ASCEND_LAUNCH_BLOCKING") == "1");
  CHECK(facts.at("env.NVIDIA_TF32_OVERRIDE") == "0");
  CHECK(facts.at("env.MKL_CBWR") == "AVX2,STRICT=1");
  for (const char* name : {"env.MY_SETTING", "env.NPU_CLOUD_TOKEN", "env.HCCL_PASSWORD", "env.NVIDIA_TF32_OVERRIDE_2", "env.PATH"})
    CHECK(facts.count(name) == 0);
  for (const auto& [name, value] : facts) CHECK_FALSE(has(value, "sesame"));
}

TEST_CASE("environment: a file comes back") {
  const TempDir dir;
  const EnvironmentVariable odd("NPU_TRAIN_ODD", "quote \" and \\ and \xc3\xa9");
  write_environment(dir / "environment.json");
  CHECK((read_environment(dir / "environment.json") == environment()));
}

TEST_CASE("environment: what is no environment is refused") {
  const TempDir dir;
  CHECK(error_of([&] { read_environment(dir / "none.json"); }).kind() == ErrorKind::Data);
  for (const char* text : {"", "[]", "{\"threads\": 4}", "{\"threads\": \"4\"", "threads: 4"}) {
    CAPTURE(text);
    write_file_atomic(dir / "e.json", text);
    CHECK(error_of([&] { read_environment(dir / "e.json"); }).kind() == ErrorKind::Data);
  }
}
