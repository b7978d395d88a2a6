// Levenberg-Marquardt fit of the logarithms of step times. If the steps do not determine a rate, a weak prior keeps its start value.
#include <algorithm>
#include <array>
#include <cmath>

#include "npu_train/core/error.hpp"
#include "npu_train/nn/summary.hpp"
#include "npu_train/tools/plan/measured.hpp"

namespace npu_train {
namespace {

struct FittedRate {
  double StepRates::*rate;
  double spread;  // prior standard deviation of the logarithm
  double least;   // lower limit; also keeps the logarithm finite
  double most;
};

constexpr FittedRate kFitted[] = {{&StepRates::flops, 5, 1, 1e19},         {&StepRates::memory, 2, 1e6, 1e15},
                                  {&StepRates::link_share, 0.3, 0.01, 1},  {&StepRates::message, 2, 1e-7, 1},
                                  {&StepRates::contention, 1.5, 1e-3, 10}, {&StepRates::carrying, 2, 1e-12, 1e-6}};
constexpr size_t kRates = std::size(kFitted);
constexpr double kPrior = 0.02;  // residual, in log(seconds), of a rate that is one spread away from its start value
constexpr int kRounds = 60;
constexpr size_t kParts = 5;

using Vector = std::array<double, kRates>;

// A step with its work and collectives, which do not depend on the rates.
struct Prepared {
  const MeasuredStep* step;
  StepWork work;
  Placement placement;
  StepCalls calls;
  double predicted(const StepRates& rates) const { return step_time(work, placement, calls, step->cluster(), rates).seconds; }
};

StepRates rates_of(const Vector& logs) {
  StepRates out;
  for (size_t i = 0; i < kRates; ++i) out.*kFitted[i].rate = std::clamp(std::exp(logs[i]), kFitted[i].least, kFitted[i].most);
  return out;
}

std::vector<double> residuals(const std::vector<const Prepared*>& steps, const Vector& logs, const Vector& start) {
  std::vector<double> out;
  const auto rates = rates_of(logs);
  for (const auto* p : steps) out.push_back(std::log(p->predicted(rates) / p->step->seconds));
  for (size_t i = 0; i < kRates; ++i) out.push_back(kPrior * (logs[i] - start[i]) / kFitted[i].spread);
  return out;
}

double squares(const std::vector<double>& values) {
  double out = 0;
  for (const double v : values) out += v * v;
  return out;
}

// Gaussian elimination with pivoting; the matrix is positive definite.
Vector solved(std::array<Vector, kRates> a, Vector b) {
  for (size_t k = 0; k < kRates; ++k) {
    size_t pivot = k;
    for (size_t i = k + 1; i < kRates; ++i)
      if (std::abs(a[i][k]) > std::abs(a[pivot][k])) pivot = i;
    std::swap(a[k], a[pivot]);
    std::swap(b[k], b[pivot]);
    for (size_t i = k + 1; i < kRates; ++i) {
      const double factor = a[i][k] / a[k][k];
      for (size_t j = k; j < kRates; ++j) a[i][j] -= factor * a[k][j];
      b[i] -= factor * b[k];
    }
  }
  for (size_t k = kRates; k-- > 0;) {
    for (size_t j = k + 1; j < kRates; ++j) b[k] -= a[k][j] * b[j];
    b[k] /= a[k][k];
  }
  return b;
}

// One Levenberg-Marquardt step: solves the damped linear problem.
Vector improved(const std::vector<const Prepared*>& steps, const Vector& logs, const Vector& start, double damping) {
  constexpr double kDelta = 1e-4;
  const auto here = residuals(steps, logs, start);
  std::array<std::vector<double>, kRates> slopes;
  for (size_t i = 0; i < kRates; ++i) {
    auto moved = logs;
    moved[i] += kDelta;
    slopes[i] = residuals(steps, moved, start);
    for (size_t r = 0; r < here.size(); ++r) slopes[i][r] = (slopes[i][r] - here[r]) / kDelta;
  }
  std::array<Vector, kRates> normal{};
  Vector right{};
  for (size_t i = 0; i < kRates; ++i) {
    for (size_t r = 0; r < here.size(); ++r) right[i] -= slopes[i][r] * here[r];
    for (size_t j = 0; j < kRates; ++j)
      for (size_t r = 0; r < here.size(); ++r) normal[i][j] += slopes[i][r] * slopes[j][r];
    normal[i][i] *= 1 + damping;
  }
  auto out = solved(normal, right);
  for (size_t i = 0; i < kRates; ++i)
    out[i] = std::clamp(logs[i] + std::clamp(out[i], -1.0, 1.0), std::log(kFitted[i].least), std::log(kFitted[i].most));
  return out;
}

Vector solution_from(const std::vector<const Prepared*>& steps, Vector logs, const Vector& start) {
  constexpr double kWorthIt = 1e-7;  // least relative improvement of the sum of squares that is worth another round
  double damping = 1e-2, best = squares(residuals(steps, logs, start));
  for (int round = 0; round < kRounds && damping < 1e8; ++round) {
    const auto next = improved(steps, logs, start, damping);
    const double found = squares(residuals(steps, next, start));
    const bool is_better = found < best, ends = is_better && found > best * (1 - kWorthIt);
    if (is_better) logs = next, best = found;
    if (ends) break;
    damping *= is_better ? 0.3 : 4;
  }
  return logs;
}

// Fits the rates, starting from the speed of computation that the fastest step implies.
StepRates fitted(const std::vector<const Prepared*>& steps, const StepRates& given) {
  Vector start;
  for (size_t i = 0; i < kRates; ++i) start[i] = std::log(std::clamp(given.*kFitted[i].rate, kFitted[i].least, kFitted[i].most));
  double fastest = 0;
  for (const auto* p : steps)
    fastest =
        std::max(fastest, kStepPasses * p->work.flops * static_cast<double>(p->work.batch * p->work.micro_batches) / p->step->seconds);
  if (fastest > 0) start[0] = std::log(fastest);
  return rates_of(solution_from(steps, start, start));
}

double error_of_unfitted(const std::vector<CheckedStep>& steps, bool largest) {
  double sum = 0, most = 0;
  size_t count = 0;
  for (const auto& s : steps) {
    if (s.was_fitted) continue;
    sum += std::abs(s.error());
    most = std::max(most, std::abs(s.error()));
    ++count;
  }
  return largest ? most : count == 0 ? 0 : sum / static_cast<double>(count);
}

}  // namespace

double StepFit::mean_error() const { return error_of_unfitted(steps, false); }
double StepFit::largest_error() const { return error_of_unfitted(steps, true); }

StepFit fit_rates(const StepWork& base, const std::vector<MeasuredStep>& steps, const StepRates& start) {
  std::vector<Prepared> prepared;
  for (const auto& step : steps) {
    auto work = step.work_of(base);
    const auto placement = step.placement_of(base);
    auto calls = step_calls(work, placement);
    prepared.push_back({&step, std::move(work), placement, std::move(calls)});
  }
  const auto fit_without = [&](const auto& leaves_out) {
    std::vector<const Prepared*> used;
    for (size_t i = 0; i < prepared.size(); ++i)
      if (!leaves_out(i)) used.push_back(&prepared[i]);
    check(!used.empty(), ErrorKind::Data, "plan", "there is no measured step to fit");
    return fitted(used, start);
  };
  StepFit out;
  out.rates = fit_without([&](size_t i) { return steps[i].is_check; });
  const bool has_checks = std::any_of(steps.begin(), steps.end(), [](const auto& s) { return s.is_check; });
  out.by_parts = !has_checks && steps.size() > kParts;
  for (size_t i = 0; i < steps.size(); ++i)
    out.steps.push_back({.step = steps[i], .predicted = prepared[i].predicted(out.rates), .was_fitted = !steps[i].is_check});
  for (size_t part = 0; out.by_parts && part < kParts; ++part) {
    const auto rates = fit_without([&](size_t i) { return i % kParts == part; });
    for (size_t i = part; i < steps.size(); i += kParts) {
      out.steps[i].predicted = prepared[i].predicted(rates);
      out.steps[i].was_fitted = false;
    }
  }
  return out;
}

}  // namespace npu_train
