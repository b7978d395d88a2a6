#include "npu_train/tools/validate/precision_validator.hpp"

#include <cmath>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/engine/model_precision.hpp"
#include "npu_train/precision/policy.hpp"
#include "npu_train/tools/runs/proof_runs.hpp"
#include "precision_validator_run.hpp"

namespace npu_train {
namespace {

constexpr const char* kValidator = "PrecisionValidator";

/// Returns the configuration of a side: it writes no files, draws masks on the host, and has `auto` resolved so that equal sides are
/// recognised.
RunConfig side_of(RunConfig config) {
  config = detail::without_side_effects(std::move(config));
  config.rng = "portable";
  const auto device = run_device(config);
  config.precision = precision_policy(precision_options(config), device).mode;
  config.device = device.str();
  return config;
}

}  // namespace

PrecisionValidator::PrecisionValidator(PrecisionValidatorOptions options) : options_(std::move(options)) {
  const auto& o = options_;
  check(o.samples >= 1 && o.layers_every >= 0 && o.train_steps >= 0, ErrorKind::Usage, kValidator, "samples is ", o.samples,
        ", layers_every ", o.layers_every, " and train_steps ", o.train_steps, "; they must be at least 1, 0 and 0");
  for (const double value : {o.flag_above, o.rtol, o.atol, o.noise})
    check(value >= 0 && std::isfinite(value), ErrorKind::Usage, kValidator, "flag_above is ", o.flag_above, ", rtol ", o.rtol, ", atol ",
          o.atol, " and noise ", o.noise, "; they must be finite and not negative");
  const auto& f = o.forms;
  check(f.batch >= 1 && f.image >= 0 && f.pairs >= 1 && f.epochs >= 0 && f.batches >= 1 && f.limit >= 0 && f.lr > 0, ErrorKind::Usage,
        kValidator, "forms: batch is ", f.batch, ", image ", f.image, ", pairs ", f.pairs, ", epochs ", f.epochs, ", batches ", f.batches,
        ", limit ", f.limit, " and lr ", f.lr, "; they must be at least 1, 0, 1, 0, 1, 0 and above 0");
  check(o.large > 0 && std::isfinite(o.large), ErrorKind::Usage, kValidator, "large is ", o.large, "; it must be positive and finite");
}

ValidationReport PrecisionValidator::validate(const RunConfig& judged, const RunConfig& reference, const Parts& parts) const {
  return translated(kValidator, [&] {
    const auto a = side_of(judged), b = side_of(reference);
    check(to_yaml(resolved(a, parts)) != to_yaml(resolved(b, parts)), ErrorKind::Usage, kValidator, "both sides are ", a.device, " in ",
          a.precision, " with the same options; there is nothing to compare; hint: another device (--device, --against), precision",
          " (--precision, --against-precision) or option of one side (--b KEY=VALUE)");
    return detail::ValidationRun(options_, a, b, parts).run();
  });
}

}  // namespace npu_train
