#include "npu_train/tools/runs/verify_resume.hpp"

#include <algorithm>

#include "npu_train/base/state.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/hash.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/io/folder.hpp"
#include "npu_train/tools/runs/proof_runs.hpp"
#include "npu_train/train/loop.hpp"

namespace npu_train {

using namespace detail;

std::string VerifyResumeReport::str() const {
  if (passed)
    return str_cat("resume verified: ", steps, " + checkpoint + ", steps, " steps equal ", 2 * steps, " steps, bit for bit (weights ",
                   digest, ")");
  std::string out = "resume FAILED:";
  if (!not_restored.empty()) out += "\n  not restored from the checkpoint: " + join(not_restored);
  if (!drifted.empty()) out += str_cat("\n  different ", steps, " steps after the resume: ", join(drifted));
  return out;
}

VerifyResumeReport verify_resume(RunConfig config, const Parts& parts, const VerifyResumeOptions& options) {
  check(options.steps >= 1, ErrorKind::Usage, "verify_resume", "steps is ", options.steps, "; it must be at least 1");
  config = without_side_effects(std::move(config));
  for (const auto& part : options.leave_out) {
    static const std::vector<std::string> known{"ema", "loader", "loop", "model", "optimizer", "rng", "scaler"};
    check(std::find(known.begin(), known.end(), part) != known.end(), ErrorKind::Usage, "verify_resume", "there is no part '", part,
          "'; allowed: ", join(known));
  }
  const ScratchFolder scratch("verify_resume");
  const auto path = (scratch.path / "checkpoint").string();

  VerifyResumeReport report;
  report.steps = options.steps;
  RunState whole, half;
  {
    auto trainer = trained_until(config, parts, 2 * options.steps, "verify_resume");
    whole = snapshot(trainer);
  }
  {
    auto trainer = trained_until(config, parts, options.steps, "verify_resume");
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
