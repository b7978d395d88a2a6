// A program with the tools: its runs have the section `dump`, and two dumps can be compared.
#include <cstdio>
#include <filesystem>

#include <npu_train/tools/align/compare.hpp>
#include <npu_train/tools/commands/main.hpp>
#include <npu_train/trainer.hpp>

int main() try {
  const auto parts = npu_train::tool_parts();
  for (const char* dir : {"dump_a", "dump_b"}) {
    npu_train::RunConfig config{.device = "cpu", .precision = "32-true"};
    config.model = {.name = "vit_tiny_cifar10", .options = {{"depth", 1}, {"dim", 32}, {"heads", 2}, {"patch_size", 8}}};
    config.data = {.name = "generated", .options = {{"train_size", 16}, {"val_size", 8}, {"batch_size", 8}, {"num_workers", "0"}}};
    config.trainer = {.max_steps = 1, .threads = 1};
    config.output.dir = "";
    config.sections["dump"] = {{"dir", dir}};
    npu_train::Trainer(config, parts).fit();
  }
  const auto result = npu_train::compare_dumps("dump_a", "dump_b");
  std::printf("two runs of one seed %s\n", result.agrees ? "agree" : "differ");
  return result.agrees ? 0 : 1;
} catch (const npu_train::Error& e) {
  std::fprintf(stderr, "error: %s\n", e.what());
  return e.exit_code();
}
