// Checks on other inputs and on training.
#include <algorithm>
#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros_like.h>

#include "npu_train/core/error.hpp"
#include "npu_train/train/loop.hpp"
#include "precision_validator_run.hpp"

namespace npu_train::detail {
namespace {

constexpr double kMostOfLoss = 0.5;

const at::Tensor& find_in(const HostTensors& tensors, const std::string& name) {
  static const at::Tensor none;
  const auto found = tensors.find(name);
  return found == tensors.end() ? none : found->second;
}

Batch narrowed(const Batch& batch, int64_t n) {
  auto out = batch.map([n](const at::Tensor& t) { return t.narrow(0, 0, n); });
  out.size = std::min(batch.size, n);
  out.weight = static_cast<double>(out.size);
  return out;
}

bool all_finite(const at::Tensor& t) { return t.isfinite().all().item<bool>(); }

std::string skipped_note(const char* side, const TakenStep& step) {
  if (step.skipped == 0) return "";
  return str_cat(side, " skipped ", step.skipped, " steps until its loss scale was ", step.loss_scale);
}

std::string joined(const std::string& a, const std::string& b) { return a.empty() || b.empty() ? a + b : a + "; " + b; }

}  // namespace

void ValidationRun::one_input(const std::string& name, const at::Tensor& input, const std::string& note) {
  Worst worst;
  worst.add(judge(predict(input)), "");
  report_.checks.push_back(worst.row(name));
  auto& row = report_.checks.back();
  row.note = joined(note, row.note);
}

void ValidationRun::input_kinds() {
  std::string note;
  const auto partial = partial_batch(note);
  one_input("batch of 1", first_->input().narrow(0, 0, 1), "");
  one_input("last partial batch", partial.input(), note);
  one_input("zeros", at::zeros_like(first_->input()), "");
  if (first_->input().is_floating_point()) large_inputs();
}

/// Returns the last batch of the data if it is not full, otherwise a full batch without its last sample.
Batch ValidationRun::partial_batch(std::string& note) {
  auto& loader = evaluation_loader();
  if (const auto n = loader.batches_per_epoch(); n && *n > 1) {
    loader.begin_epoch(0, *n - 1);
    const auto last = loader.next();
    if (last && last->input().size(0) < loader.options().batch_size) {
      note = str_cat(last->input().size(0), " samples of ", loader.options().batch_size);
      return last->finished();
    }
  }
  const int64_t full = first_->input().size(0), n = std::max<int64_t>(1, full - 1);
  note = str_cat(n, " samples of ", full, ", taken from a full batch");
  return narrowed(*first_, n);
}

// Checks large inputs. An overflow of fp16 is not a fault, but if both sides compute in fp16, both must overflow.
void ValidationRun::large_inputs() {
  const auto three = predict(first_->input() * options_.large);
  const bool judged_flag = judged_.overflowed(), reference_flag = reference_.overflowed();
  const bool judged_overflows = judged_flag || !all_finite(three.judged);
  const bool reference_overflows = reference_flag || !all_finite(three.reference);
  const bool same_dtype = judged_.dtype() == reference_.dtype();
  Worst worst;
  worst.add(judge(three), "");
  auto row = worst.row("large values");
  const auto overflow = [&](const std::string& side, bool flag, at::ScalarType dtype) {
    return side + " overflows" + (flag ? " and sets its status flag" : "") + (dtype == at::kHalf ? ", which fp16 may" : "");
  };
  if (judged_flag || reference_flag || (!same_dtype && (judged_overflows || reference_overflows))) {
    std::string note;
    if (judged_overflows) note = overflow("the judged side", judged_flag, judged_.dtype());
    if (reference_overflows) note = joined(note, overflow("the reference", reference_flag, reference_.dtype()));
    const bool explained = (!judged_overflows || judged_.dtype() == at::kHalf) && (!reference_overflows || reference_.dtype() == at::kHalf);
    row = {.name = "large values", .passed = explained, .note = note + "; values were not compared"};
  } else if (judged_overflows || reference_overflows) {
    row.note = joined("both overflow", row.note);
  }
  row.note = joined(str_cat("times ", options_.large), row.note);
  report_.checks.push_back(std::move(row));
}

Batch ValidationRun::next_training_batch() {
  auto& loader = *reference_.trainer().loop().parts().train_loader;
  if (!epoch_open_) loader.begin_epoch(epoch_);
  epoch_open_ = true;
  auto batch = loader.next();
  if (!batch) {
    loader.begin_epoch(++epoch_);
    batch = loader.next();
  }
  check(batch.has_value(), ErrorKind::Data, "PrecisionValidator", "the training data provided no batch");
  return batch->finished();
}

/// Takes a step on all sides with the same batch. `share`: the judged side's optimizer gets the reference's gradients.
bool ValidationRun::take_step(bool share) {
  const auto batch = next_training_batch();
  const auto dtype = share ? coarser(judged_.updated_dtype(), reference_.updated_dtype()) : at::kFloat;
  reference_step_ = reference_.step(batch, dtype);
  judged_step_ = judged_.step(batch, dtype, share ? &reference_step_.gradients : nullptr);
  if (shaken_ != nullptr) shaken_losses_.push_back((shaken_step_ = shaken_->step(batch)).loss);
  report_.judged_losses.push_back(judged_step_.loss);
  report_.reference_losses.push_back(reference_step_.loss);
  return judged_step_.taken && reference_step_.taken;
}

void ValidationRun::first_step() {
  const auto before = reference_.weights();
  stepped_ = take_step(/*share=*/true);
  const auto after = reference_.weights();
  gradients();
  weights_after(before, after);
  statistics_after(after);
}

/// Compares the gradients. A gradient that is 0 except for rounding, such as that of a bias before a normalisation, is judged relative to
/// the largest gradient. If the input of a ReLU is nearly 0, or two elements are nearly equal maxima, rounding may change single elements
/// considerably; a gradient therefore also passes if the norm of the difference is within its limit.
void ValidationRun::gradients() {
  double scale = 0;
  for (const auto& [name, b] : reference_step_.gradients) scale = std::max(scale, largest(b));
  Worst worst;
  int64_t unsteady = 0, jumps = 0;
  for (const auto& p : *reference_.trainer().loop().parts().parameters) {
    const auto& b = find_in(reference_step_.gradients, p.name);
    if (!b.defined()) continue;
    const auto& a = find_in(judged_step_.gradients, p.name);
    ValidatedTensor row{.name = p.name, .shape = b.sizes().vec()};
    if (a.defined()) {
      const auto verdict =
          detail::judge(a, b, find_in(shaken_step_.gradients, p.name), tolerance_, JudgeBy::ElementsOrNorm, std::min(1.0, scale));
      worst.add(verdict, p.name);
      unsteady += verdict.allowed > std::max(verdict.reference_max, tolerance_.atol) ? 1 : 0;
      jumps += verdict.passed() && verdict.max_diff > verdict.allowed ? 1 : 0;
      row.max_diff = verdict.max_diff, row.mean_diff = verdict.mean_diff, row.reference_max = verdict.reference_max;
      row.allowed = verdict.allowed, row.flagged = !verdict.passed();
    } else {
      row.flagged = true, row.note = "no gradient on the judged side";
    }
    report_.gradients.push_back(std::move(row));
  }
  auto row = worst.row("gradients");
  for (const auto& gradient : report_.gradients)
    if (!gradient.note.empty()) row.passed = false, row.note = joined(row.note, gradient.name + ": " + gradient.note);
  if (jumps > 0)
    row.note = joined(row.note, str_cat(jumps, " of ", worst.count, " exceed the tolerance in single elements, but not as tensors"));
  if (unsteady > 0)
    row.note =
        joined(row.note, str_cat(unsteady, " of ", worst.count, " are inconclusive: rounding may change them by their own magnitude"));
  row.note = joined(row.note, joined(skipped_note("the judged side", judged_step_), skipped_note("the reference", reference_step_)));
  report_.checks.push_back(std::move(row));
}

/// Compares the weights. Both optimizers got the same gradients, so their updates differ only by rounding. With different gradients, Adam
/// would amplify tiny differences.
void ValidationRun::weights_after(const HostTensors& before, const HostTensors& after) {
  const auto judged = judged_.weights();
  const auto dtype = coarser(judged_.updated_dtype(), reference_.updated_dtype());
  Worst worst;
  double moved = 0;
  for (const auto& p : judged_.trainer().loop().parts().optimizer->parameters()) {
    const auto &start = find_in(before, p.name), &b = find_in(after, p.name), &a = find_in(judged, p.name);
    if (!b.defined() || !a.defined()) continue;
    const double update = largest(b - start);
    moved = std::max(moved, update);
    auto verdict = detail::judge(a, b, {}, {});
    verdict.allowed = options_.atol + options_.rtol * update + 4 * epsilon_of(dtype) * verdict.reference_max;
    worst.add(verdict, p.name);
  }
  auto row = worst.row("optimizer step");
  row.passed &= stepped_;
  if (!stepped_) row.note = joined(row.note, "no step was taken: the loss scale is at its smallest");
  if (stepped_ && moved == 0) row.note = joined(row.note, "the step has no effect; check whether the first learning rate is 0");
  report_.checks.push_back(std::move(row));
}

/// Compares the running statistics. A mean near 0 may be an average of large values, so all statistics are judged relative to the largest
/// one.
void ValidationRun::statistics_after(const HostTensors& after) {
  const auto judged = judged_.weights();
  const auto shaken = shaken_ != nullptr ? shaken_->weights() : HostTensors();
  Worst worst;
  double scale = 0;
  const auto buffers = reference_.trainer().task().buffers();
  for (const auto& [name, buffer] : buffers)
    if (buffer.is_floating_point()) scale = std::max(scale, largest(find_in(after, name)));
  for (const auto& [name, buffer] : buffers) {
    const auto &a = find_in(judged, name), &b = find_in(after, name);
    if (!a.defined()) continue;
    auto verdict = b.is_floating_point() ? judge({a, b, find_in(shaken, name)}) : detail::judge(a, b, {}, {0, 0});
    if (b.is_floating_point()) verdict.allowed = std::max(verdict.allowed, tolerance_.atol + tolerance_.rtol * scale);
    worst.add(verdict, name);
  }
  if (worst.count > 0) report_.checks.push_back(worst.row("running statistics"));
}

/// Trains both sides, then evaluates the weights of the judged side on both. The weights of the two sides differ too much after the
/// training for a comparison of their evaluations.
void ValidationRun::training() {
  for (int64_t i = 0; i < options_.train_steps; ++i) stepped_ &= take_step(/*share=*/false);
  if (options_.train_steps > 0) losses();
  const auto trained = judged_.trainer().state();
  reference_.take_weights(trained);
  if (shaken_ != nullptr) shaken_->shake(trained, shake_);
  one_input("evaluation after training", first_->input(),
            str_cat("weights of the judged side after ", report_.judged_losses.size(), " steps"));
}

/// Compares the losses. Since differences grow, the limit of a step is the tolerance times the number of steps so far, or the largest
/// difference that the perturbed reference has reached, whichever is larger. The limit does not grow beyond half of the loss, since a run
/// that differs by more has learned something else.
void ValidationRun::losses() {
  Worst worst;
  double moved = 0;
  for (size_t i = 0; i < report_.judged_losses.size(); ++i) {
    const double a = report_.judged_losses[i], b = report_.reference_losses[i];
    auto verdict = detail::judge(at::tensor({a}), at::tensor({b}), {}, tolerance_);
    if (shaken_ != nullptr && std::isfinite(shaken_losses_[i])) moved = std::max(moved, std::fabs(shaken_losses_[i] - b));
    const double grown = std::max(static_cast<double>(i + 1) * verdict.allowed, moved);
    verdict.allowed = std::max(verdict.allowed, std::min(grown, kMostOfLoss * std::fabs(b)));
    worst.add(verdict, str_cat("step ", i));
  }
  auto row = worst.row("short training run");
  row.passed &= stepped_;
  row.note = joined(str_cat("losses of ", report_.judged_losses.size(), " steps"), row.note);
  report_.checks.push_back(std::move(row));
}

}  // namespace npu_train::detail
