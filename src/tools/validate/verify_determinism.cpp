#include "npu_train/tools/validate/verify_determinism.hpp"

#include <string>

#include "npu_train/base/state.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/hash.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/tools/runs/proof_runs.hpp"

namespace npu_train {
namespace {

RunState state_after(const RunConfig& config, const Parts& parts, int64_t steps) {
  auto trainer = detail::trained_until(config, parts, steps, "verify_determinism");
  return detail::snapshot(trainer);
}

}  // namespace

std::string VerifyDeterminismReport::str() const {
  if (passed)
    return str_cat("determinism verified: two runs of ", steps,
                   " steps and one with different loader workers are equal, bit for bit (weights ", digest, ")");
  std::string out = "determinism FAILED:";
  if (!repeat.empty())
    out += str_cat(
        "\n  different after ", steps, " steps of a second run: ", join(repeat),
        "\n  hint: deterministic: true reports operators without a deterministic implementation; a model of your own may use a random "
        "generator other than libtorch's");
  if (!workers.empty())
    out += "\n  different with a different number of loader workers: " + join(workers) +
           "\n  hint: a data set of your own must return the same sample for the same index, independent of earlier requests";
  return out;
}

VerifyDeterminismReport verify_determinism(const RunConfig& config, const Parts& parts, const VerifyDeterminismOptions& options) {
  check(options.steps >= 1 && options.other_workers >= 0, ErrorKind::Usage, "verify_determinism", "steps is ", options.steps,
        " and other_workers ", options.other_workers, "; they must be at least 1 and 0");
  const auto plain = detail::without_side_effects(config);
  auto others = plain;
  others.data.options.set("num_workers", ConfigNode(std::to_string(options.other_workers)));

  VerifyDeterminismReport report;
  report.steps = options.steps;
  const auto first = state_after(plain, parts, options.steps);
  report.repeat = detail::differing_parts(first, state_after(plain, parts, options.steps));
  report.workers = detail::differing_parts(first, state_after(others, parts, options.steps));
  report.passed = report.repeat.empty() && report.workers.empty();
  report.digest = hex64(digest(first.at("model")));
  return report;
}

}  // namespace npu_train
