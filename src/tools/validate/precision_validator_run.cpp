#include "precision_validator_run.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/tools/align/dumper.hpp"
#include "npu_train/train/loop.hpp"

namespace npu_train::detail {
namespace {

constexpr const char* kFusedNorm = "batch_norm_act";  // an operator whose output includes the shortcut and the ReLU

// Low-precision products are summed in fp32, so each operand is rounded once. In fp32, a sum of n terms itself has an error of about
// sqrt(n) roundings; 16 are assumed.
double shake_of(at::ScalarType dtype) { return dtype == at::kFloat ? 16 * epsilon_of(dtype) : epsilon_of(dtype); }

const char* torch_name(at::ScalarType dtype) {
  return dtype == at::kBFloat16 ? "torch.bfloat16" : dtype == at::kHalf ? "torch.float16" : "torch.float32";
}

double relative(const Verdict& v) { return v.max_diff == 0 ? 0 : v.max_diff / v.reference_max; }

}  // namespace

ValidationSide::Wanted wanted_layers(const PrecisionValidatorOptions& options) {
  return [&options](const std::string& path, const std::string& type) {
    const auto& names = options.layer_names;
    if (!names.empty()) return std::any_of(names.begin(), names.end(), [&](const auto& name) { return name_matches(path, name); });
    return std::find(options.layer_types.begin(), options.layer_types.end(), type) != options.layer_types.end();
  };
}

void ValidationRun::Worst::add(const Verdict& v, const std::string& of) {
  if (count++ == 0 || v.excess() > verdict.excess()) verdict = v, name = of;
  mean_diffs += v.mean_diff;
  failed += v.passed() ? 0 : 1;
}

ValidationCheck ValidationRun::Worst::row(const std::string& check) const {
  ValidationCheck out{.name = check,
                      .max_diff = verdict.max_diff,
                      .mean_diff = verdict.mean_diff,
                      .relative = relative(verdict),
                      .allowed = verdict.allowed,
                      .passed = failed == 0,
                      .worst = name};
  if (failed > 0) out.note = str_cat(failed, " of ", count, " differ");
  if (verdict.nonfinite_mismatch > verdict.nonfinite_allowed)
    out.note += str_cat(out.note.empty() ? "" : "; ", verdict.nonfinite_mismatch, " elements are not finite on one side only");
  return out;
}

ValidationRun::ValidationRun(const PrecisionValidatorOptions& options, const RunConfig& judged, const RunConfig& reference,
                             const Parts& parts)
    : options_(options), reference_(reference, parts), judged_(judged, parts) {
  const auto weights = reference_.trainer().state();
  const auto averages = [](ValidationSide& side) { return side.trainer().loop().parts().average != nullptr; };
  check(averages(judged_) == averages(reference_), ErrorKind::Usage, "PrecisionValidator",
        "only one side keeps a moving average of the weights; hint: set average.enabled equally on both sides");
  judged_.take_weights(weights);
  if (options_.noise > 0) {
    shaken_ = std::make_unique<ValidationSide>(reference, parts);
    shake_ = options_.noise * shake_of(coarser(judged_.dtype(), reference_.dtype()));
    shaken_->shake(weights, shake_);
  }
  report_.judged = judged_.facts();
  report_.reference = reference_.facts();
  report_.noise = options_.noise;
  report_.notes = {"random masks of both sides are drawn on the host (rng: portable)"};
  choose_tolerance();
}

void ValidationRun::choose_tolerance() {
  tolerance_ = {.atol = options_.atol, .rtol = options_.rtol};
  report_.tolerance_source = "from the options";
  const auto dtype = coarser(judged_.dtype(), reference_.dtype());
  if (options_.tolerance_by_dtype && dtype != at::kFloat) {
    tolerance_ = default_tolerance(torch_name(judged_.dtype()), torch_name(reference_.dtype()));
    report_.tolerance_source = std::string("for ") + (dtype == at::kHalf ? "fp16" : "bf16");
  }
  report_.atol = tolerance_.atol;
  report_.rtol = tolerance_.rtol;
}

Loader& ValidationRun::evaluation_loader() {
  const auto& parts = reference_.trainer().loop().parts();
  return parts.val_loader != nullptr ? *parts.val_loader : *parts.train_loader;
}

ValidationRun::Three ValidationRun::predict(const at::Tensor& input) {
  Three out{.judged = judged_.predict(input), .reference = reference_.predict(input), .shaken = {}};
  if (shaken_ != nullptr) out.shaken = shaken_->predict(input);
  check(out.judged.sizes() == out.reference.sizes(), ErrorKind::Usage, "PrecisionValidator", "the outputs have the shapes ",
        out.judged.sizes(), " and ", out.reference.sizes(), "; both sides must run the same model");
  return out;
}

Verdict ValidationRun::judge(const Three& values) const {
  return detail::judge(values.judged, values.reference, values.shaken, tolerance_);
}

ValidationReport ValidationRun::run() {
  outputs();
  judge_layers();
  input_kinds();
  first_step();
  training();
  report_.all_passed = std::all_of(report_.checks.begin(), report_.checks.end(), [](const ValidationCheck& c) { return c.passed; });
  return std::move(report_);
}

// Judges all samples of a batch by the tolerance of the complete tensor.
void ValidationRun::outputs() {
  auto& loader = evaluation_loader();
  loader.begin_epoch(0);
  Worst worst;
  while (report_.samples < options_.samples) {
    const auto given = loader.next();
    if (!given) break;
    const auto batch = given->finished();  // on the host, so that all sides get the same batch
    if (!first_) first_ = batch;
    const auto three = predict(batch.input());
    const auto whole = judge(three);
    for (int64_t row = 0; row < batch.size && report_.samples < options_.samples; ++row) {
      const auto number = report_.samples++;
      auto verdict = detail::judge(three.judged.narrow(0, row, 1), three.reference.narrow(0, row, 1), {}, tolerance_);
      verdict.allowed = whole.allowed;
      verdict.reference_max = whole.reference_max;
      if (whole.nonfinite_mismatch <= whole.nonfinite_allowed) verdict.nonfinite_mismatch = 0;
      worst.add(verdict, str_cat("sample ", number));
      report_.avg_max_diff += verdict.max_diff;
      report_.avg_mean_diff += verdict.mean_diff;
      report_.max_max_diff = std::max(report_.max_max_diff, verdict.max_diff);
      if (options_.layers_every > 0 && number % options_.layers_every == 0) layers(batch.input().narrow(0, row, 1));
    }
  }
  check(report_.samples > 0, ErrorKind::Data, "PrecisionValidator", "the data set provided no batch");
  const auto n = static_cast<double>(report_.samples);
  report_.avg_max_diff /= n;
  report_.avg_mean_diff /= n;
  report_.pass_rate = 1 - static_cast<double>(worst.failed) / n;
  report_.checks.push_back(worst.row("outputs"));
}

ValidatedTensor& ValidationRun::layer_row(const SeenOutput& seen) {
  auto& rows = report_.layers;
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const ValidatedTensor& r) { return r.name == seen.layer; });
  if (row != rows.end()) return *row;
  rows.push_back({.name = seen.layer, .type = seen.type, .shape = seen.value.sizes().vec()});
  return rows.back();
}

void ValidationRun::layers(const at::Tensor& sample) {
  if (options_.layer_types.empty() && options_.layer_names.empty()) return;
  const auto wanted = wanted_layers(options_);
  const auto a = judged_.layers(sample, wanted), b = reference_.layers(sample, wanted);
  const auto c = shaken_ != nullptr ? shaken_->layers(sample, wanted) : std::vector<SeenOutput>();
  const auto same = [](const SeenOutput& seen) { return [&seen](const SeenOutput& other) { return other.layer == seen.layer; }; };
  ++layer_samples_;
  for (const auto& reference : b) {
    auto& row = layer_row(reference);
    const auto judged = std::find_if(a.begin(), a.end(), same(reference));
    const auto shaken = std::find_if(c.begin(), c.end(), same(reference));
    if (judged == a.end()) {
      row.note = "missing on the judged side";
    } else if (judged->value.sizes() != reference.value.sizes() || (judged->op == kFusedNorm) != (reference.op == kFusedNorm)) {
      row.note = str_cat("not compared: ", judged->op, " ", judged->value.sizes(), " and ", reference.op, " ", reference.value.sizes());
    }
    if (!row.note.empty()) continue;
    const auto verdict = judge({judged->value, reference.value, shaken == c.end() ? at::Tensor() : shaken->value});
    // atol and rtol apply to outputs; a layer has a separate limit, which only the expected effect of rounding can raise
    const bool low = judged_.dtype() != at::kFloat || reference_.dtype() != at::kFloat;
    const auto noise = verdict.allowed > tolerance_.atol + tolerance_.rtol * verdict.reference_max ? verdict.allowed : 0;
    const double allowed = std::max({options_.flag_above, noise, low ? verdict.allowed : 0});
    const bool differs = verdict.max_diff > allowed || verdict.nonfinite_mismatch > verdict.nonfinite_allowed;
    if (row.allowed == 0 || verdict.max_diff * row.allowed > row.max_diff * allowed) row.allowed = allowed;
    row.max_diff = std::max(row.max_diff, verdict.max_diff);
    row.mean_diff += verdict.mean_diff;
    row.reference_max = std::max(row.reference_max, verdict.reference_max);
    row.flagged |= differs;
  }
}

void ValidationRun::judge_layers() {
  if (options_.layers_every == 0 || (options_.layer_types.empty() && options_.layer_names.empty())) return;
  check(!report_.layers.empty() || options_.layer_names.empty(), ErrorKind::Usage, "PrecisionValidator", "no layer of the model matches",
        " the names ", join(options_.layer_names), "; hint: npu_tool summary CONFIG --layers lists them");
  std::vector<std::string> classes;
  for (const auto& [path, type] : reference_.trainer().task().module_types())
    if (!type.empty() && std::find(classes.begin(), classes.end(), type) == classes.end()) classes.push_back(type);
  check(!report_.layers.empty() || classes.empty(), ErrorKind::Usage, "PrecisionValidator", "the model has no layers of the types ",
        join(options_.layer_types), "; it has: ", join(classes), "; hint: layer_types (--layer-types), or layers_every = 0");
  ValidationCheck row{.name = "layers"};
  double worst = -1;
  int64_t flagged = 0, compared = 0;
  for (auto& layer : report_.layers) {
    layer.mean_diff /= static_cast<double>(layer_samples_);
    if (!layer.note.empty()) continue;
    ++compared;
    flagged += layer.flagged ? 1 : 0;
    const double near = layer.flagged ? std::numeric_limits<double>::infinity() : layer.max_diff / layer.allowed;
    if (near <= worst) continue;  // the first of several flagged layers counts
    worst = near;
    row.max_diff = layer.max_diff, row.mean_diff = layer.mean_diff, row.allowed = layer.allowed, row.worst = layer.name;
    row.relative = layer.max_diff == 0 ? 0 : layer.max_diff / layer.reference_max;
  }
  row.passed = flagged == 0;
  row.note = classes.empty() ? "the task does not name the classes of its layers"
             : flagged > 0   ? str_cat(flagged, " of ", compared, " flagged; the first is shown")
                             : str_cat(compared, " layers, samples: ", layer_samples_);
  report_.checks.push_back(std::move(row));
}

}  // namespace npu_train::detail
