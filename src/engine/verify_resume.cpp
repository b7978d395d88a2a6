#include "npu_train/engine/verify_resume.hpp"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "npu_train/base/digest.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/hash.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/train/loop.hpp"

namespace npu_train {
namespace {

namespace fs = std::filesystem;

/// Wall times are part of the state of an epoch, but never repeat.
State without_times(State state) {
  state.values.erase("epoch/seconds");
  state.values.erase("epoch/data_wait");
  return state;
}

/// Owns its tensors: the live state goes on changing.
RunState snapshot(Trainer& trainer) {
  auto state = trainer.state();
  for (auto& [part, content] : state)
    for (auto& [name, tensor] : content.tensors) tensor = tensor.detach().to(at::kCPU).clone();
  return state;
}

std::vector<std::string> differing_parts(const RunState& a, const RunState& b) {
  std::vector<std::string> out;
  for (const auto& [part, content] : a) {
    const auto other = b.find(part);
    if (other == b.end() || digest(without_times(content)) != digest(without_times(other->second))) out.push_back(part);
  }
  return out;
}

/// A temporary folder, removed at the end.
struct Scratch {
  Scratch() {
    auto pattern = (fs::temp_directory_path() / "npu_train_verify_XXXXXX").string();
    check(::mkdtemp(pattern.data()) != nullptr, ErrorKind::Checkpoint, "verify_resume", pattern, ": cannot be made");
    path = pattern;
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  fs::path path;
};

Trainer trained_until(const RunConfig& config, const Parts& parts, int64_t steps) {
  Trainer trainer(config, parts);
  trainer.loop().set_max_steps(steps);  // not in the configuration: the schedule must have the length of the real run
  trainer.fit();
  return trainer;
}

}  // namespace

std::string VerifyResumeReport::str() const {
  if (passed)
    return c10::str("resume verified: ", steps, " + checkpoint + ", steps, " steps equal ", 2 * steps, " steps, bit for bit (weights ",
                    digest, ")");
  std::string out = "resume FAILED:";
  if (!not_restored.empty()) out += "\n  not restored from the checkpoint: " + join(not_restored);
  if (!drifted.empty()) out += c10::str("\n  different ", steps, " steps after the resume: ", join(drifted));
  return out;
}

VerifyResumeReport verify_resume(RunConfig config, const Parts& parts, const VerifyResumeOptions& options) {
  check(options.steps >= 1, ErrorKind::Usage, "verify_resume", "steps is ", options.steps, "; it must be at least 1");
  config.output.dir = "";
  config.trainer.max_time = -1;
  config.trainer.num_sanity_val_steps = 0;
  config.trainer.check_val_every_n_epoch = 0;
  config.trainer.fast_dev_run = false;
  config.early_stopping.enabled = false;
  for (const auto& part : options.leave_out) {
    static const std::vector<std::string> known{"ema", "loader", "loop", "model", "optimizer", "rng", "scaler"};
    check(std::find(known.begin(), known.end(), part) != known.end(), ErrorKind::Usage, "verify_resume", "there is no part '", part,
          "'; there are: ", join(known));
  }
  const Scratch scratch;
  const auto path = (scratch.path / "checkpoint").string();

  VerifyResumeReport report;
  report.steps = options.steps;
  RunState whole, half;
  {
    auto trainer = trained_until(config, parts, 2 * options.steps);
    whole = snapshot(trainer);
    check(trainer.loop().global_step() == 2 * options.steps, ErrorKind::Usage, "verify_resume", "the run ends after ",
          trainer.loop().global_step(), " steps, ", 2 * options.steps,
          " are needed; hint: more trainer.max_epochs or fewer --verify-steps");
  }
  {
    auto trainer = trained_until(config, parts, options.steps);
    half = snapshot(trainer);
    save_checkpoint(path, half, {}, ConfigNode::map());
  }
  Trainer resumed(config, parts);
  resumed.loop().set_max_steps(2 * options.steps);
  resumed.load_state(load_checkpoint(path), options.leave_out);
  report.not_restored = differing_parts(half, snapshot(resumed));
  resumed.fit();
  report.drifted = differing_parts(whole, snapshot(resumed));
  report.passed = report.not_restored.empty() && report.drifted.empty();
  report.digest = hex64(digest(whole.at("model")));
  return report;
}

}  // namespace npu_train
