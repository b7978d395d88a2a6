#include "testing.hpp"

#include "npu_train/tools/commands/main.hpp"

#include <torch/nn.h>

#include "npu_train/engine/run_config.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/train/classifier.hpp"

using namespace npu_train;
using namespace npu_train::testing;
namespace fs = std::filesystem;

namespace {

using Main = int (*)(int, char**, const Parts&);

int run(Main main, std::vector<std::string> words, const Parts& parts) {
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  return main(static_cast<int>(words.size()), argv.data(), parts);
}

Parts with_own_model() {
  auto parts = tool_parts();
  parts.models.add<NoOptions>("my_net", "a network of the test", [](const NoOptions&) {
    torch::nn::Sequential net(torch::nn::Flatten(), torch::nn::Linear(3 * 8 * 8, 10));
    auto model = as_model(net);
    model.num_classes = 10;
    return model;
  });
  return parts;
}

}  // namespace

TEST_CASE("the tools give a run the dump, the profiler, the watch for leaks and the report of memory") {
  const auto parts = tool_parts();
  CHECK(parts.observers.has_section("dump"));
  for (const char* name : {"profiler", "leak_watch", "memory_report"}) CHECK(parts.observers.contains(name));
  CHECK_FALSE(builtin_parts().observers.contains("profiler"));
  CHECK(bind_config(parse_yaml("{dump: {level: op}, trainer: {profiler: simple}}", "a.yaml"), parts).sections.count("dump") == 1);
}

TEST_CASE("both programs know a model that the caller added") {
  TempDir dir;
  write_file_atomic(dir / "c.yaml", R"({device: cpu, model: my_net, data: {name: generated, image_size: 8, batch_size: 4, num_workers: 0},
    trainer: {max_steps: 2, threads: 1}, output: {dir: )" +
                                        (dir / "out").string() + "}}\n");
  const auto config = (dir / "c.yaml").string();
  const auto parts = with_own_model();
  CHECK(run(train_main, {"train", config, "dump.steps=[0]"}, parts) == 0);
  const auto runs = dir / "out/my_net_generated/version_0";
  CHECK(fs::exists(runs / "checkpoints/last"));
  CHECK(fs::exists(runs / "dump/step0"));
  CHECK(run(tool_main, {"tool", "eval", "--checkpoint", runs.string(), "--json"}, parts) == 0);
  CHECK(run(tool_main, {"tool", "summary", "--model", "my_net"}, parts) == static_cast<int>(ErrorKind::Usage));  // its input is unknown
}

TEST_CASE("errors end with the status of a usage error, also where the model is not added") {
  CHECK(run(tool_main, {"tool", "no_such_command"}, tool_parts()) == static_cast<int>(ErrorKind::Usage));
  CHECK(run(train_main, {"train", "no_such_file.yaml"}, tool_parts()) == static_cast<int>(ErrorKind::Usage));
  CHECK(run(tool_main, {"tool", "summary", "--model", "my_net"}, tool_parts()) == static_cast<int>(ErrorKind::Usage));
}
