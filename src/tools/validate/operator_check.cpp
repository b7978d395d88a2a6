#include "npu_train/tools/validate/operator_check.hpp"

#include <ATen/TensorOperators.h>
#include <ATen/ops/isfinite.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "npu_train/core/error.hpp"
#include "npu_train/core/host.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/device/backend.hpp"
#include "npu_train/engine/model_precision.hpp"
#include "npu_train/engine/trainer.hpp"
#include "npu_train/precision/policy.hpp"
#include "npu_train/tools/report/report.hpp"
#include "npu_train/tools/runs/proof_runs.hpp"
#include "npu_train/trace/operator_values.hpp"
#include "npu_train/train/loop.hpp"
#include "operator_calls.hpp"
#include "precision_validator_side.hpp"

namespace npu_train {
namespace {

using detail::AloneResult;
using detail::OperatorCall;
using Verdict = CheckedOperator::Verdict;

constexpr const char* kWhere = "validate --operators";
constexpr double kRoundings = 8, kFp32Rounding = 0x1p-24, kInfinite = std::numeric_limits<double>::infinity();

// Relative errors of all elements together (`norm`) and of the worst element.
struct Errors {
  double norm = 0, worst = 0;
};

Errors errors_of(const at::Tensor& value, const at::Tensor& judge, const at::Tensor& counted) {
  const at::Tensor exact = judge.to(at::kDouble).masked_select(counted);
  const at::Tensor difference = (value.to(at::kDouble).masked_select(counted) - exact).abs();
  if (exact.numel() == 0) return {};
  const double size = exact.norm().item<double>(), rms = size / std::sqrt(static_cast<double>(exact.numel()));
  if (size == 0) return difference.max().item<double>() == 0 ? Errors{} : Errors{kInfinite, kInfinite};
  return {difference.norm().item<double>() / size, (difference / exact.abs().clamp_min(rms)).max().item<double>()};
}

// Whether elements that are not finite on the CPU have the same values on the device. On a device that saturates, they may also be finite.
bool agree_where_not_finite(const at::Tensor& device, const at::Tensor& cpu, bool saturates) {
  const at::Tensor elsewhere = at::isfinite(cpu).logical_not();
  const at::Tensor a = device.masked_select(elsewhere).to(at::kDouble), b = cpu.masked_select(elsewhere).to(at::kDouble);
  at::Tensor agree = (a == b).logical_or(a.isnan().logical_and(b.isnan()));
  if (saturates) agree = agree.logical_or(at::isfinite(a));
  return agree.all().item<bool>();
}

// A result on the device, on the CPU, in fp64, and in fp64 with inputs that were changed by a rounding. The last two are undefined if the
// operator has no fp64 kernel.
struct FourValues {
  at::Tensor device, cpu, exact, changed;
};

// Returns the errors that a rounding of the inputs causes or, without fp64, those of a rounding of the result.
Errors rounding_of(const FourValues& values, const at::Tensor& counted) {
  if (values.changed.defined()) return errors_of(values.changed, values.exact, counted);
  const double one = detail::epsilon_of(values.cpu.scalar_type());
  return {one, one};
}

// Stores the errors of this result in `out` if they are nearer to their limit, or farther beyond it, than the errors in `out`.
void judge(const std::string& name, const FourValues& values, bool saturates, CheckedOperator& out) {
  const auto& [device, cpu, exact, changed] = values;
  const auto take = [&](double error, double cpu_error, double allowed) {
    if (!out.result.empty() && !(error / allowed > out.error / out.allowed)) return;
    out.result = name, out.error = error, out.cpu_error = cpu_error, out.allowed = allowed;
    out.verdict = error <= allowed ? Verdict::Agrees : Verdict::Wrong;
  };
  // The device's autocast may compute an operator in fp32 that the CPU's autocast leaves in bf16.
  const bool fits = device.scalar_type() == cpu.scalar_type() || (device.scalar_type() == at::kFloat && cpu.is_floating_point());
  if (device.sizes() != cpu.sizes() || !fits) {
    out.note = str_cat(name, " is ", c10::toString(device.scalar_type()), " ", device.sizes(), ", on the CPU ",
                       c10::toString(cpu.scalar_type()), " ", cpu.sizes());
    return take(kInfinite, 0, kFp32Rounding);
  }
  if (!device.is_floating_point()) {
    if (!device.equal(cpu)) out.note = str_cat(name, " has other values than on the CPU");
    return take(device.equal(cpu) ? 0 : kInfinite, 0, kFp32Rounding);
  }
  if (!agree_where_not_finite(device, cpu, saturates)) {
    out.note = "values that are not finite on the CPU are others on the device";
    return take(kInfinite, 0, kFp32Rounding);
  }
  const at::Tensor judged = exact.defined() ? exact : cpu;
  const at::Tensor counted = at::isfinite(cpu).logical_and(at::isfinite(judged));
  if (!at::isfinite(device).logical_or(counted.logical_not()).all().item<bool>()) {
    out.note = "values are not finite on the device only";
    return take(kInfinite, 0, kFp32Rounding);
  }
  const auto theirs = errors_of(cpu, judged, counted), ours = errors_of(device, judged, counted), rounding = rounding_of(values, counted);
  take(ours.norm, theirs.norm, std::max(4 * theirs.norm, kRoundings * rounding.norm) + 64 * kFp32Rounding);
  take(ours.worst, theirs.worst, std::max(8 * theirs.worst, kRoundings * rounding.worst) + 256 * kFp32Rounding);
}

const at::Tensor* find(const std::vector<detail::NamedResult>& results, const std::string& name) {
  const auto found = std::find_if(results.begin(), results.end(), [&](const auto& r) { return r.name == name; });
  return found == results.end() ? nullptr : &found->value;
}

using Results = std::vector<detail::NamedResult>;

void judge_all(const Results& device, const Results& cpu, const Results& exact, const Results& changed, bool saturates,
               CheckedOperator& out) {
  for (const auto& [name, value] : cpu) {
    const auto *ours = find(device, name), *judged = find(exact, name), *shaken = find(changed, name);
    if (ours == nullptr) {
      out.verdict = Verdict::Wrong, out.result = name, out.error = kInfinite, out.allowed = kFp32Rounding;
      out.note = "the device gives no " + name;
      return;
    }
    const bool has_fp64 = judged != nullptr && shaken != nullptr;
    judge(name, {*ours, value, has_fp64 ? *judged : at::Tensor(), has_fp64 ? *shaken : at::Tensor()}, saturates, out);
  }
}

// Returns the arguments into which the operator has written on the CPU.
Results written(const OperatorCall& call, const AloneResult& result) {
  Results out;
  const auto& arguments = call.op.schema().arguments();
  for (const auto& [name, value] : result.arguments)
    for (size_t i = 0; i < call.inputs.size(); ++i)
      if (name == arguments[i].name() + " afterwards" && call.inputs[i].isTensor() && !call.inputs[i].toTensor().equal(value))
        out.push_back({name, value});
  return out;
}

class OperatorChecks {
 public:
  OperatorChecks(const RunConfig& config, const Device& device, const std::string& mode)
      : device_(device), saturates_(backend_of(device).capabilities(device).saturating_overflow) {
    auto options = precision_options(config);
    options.mode = mode;
    on_device_ = make_precision(options, device);
    on_cpu_ = make_precision(options, Device{});
  }

  CheckedOperator check(const OperatorCall& call) const {
    CheckedOperator out{.name = call.name, .layer = call.layer, .inputs = call.inputs_text, .calls = call.count};
    AloneResult cpu, exact, changed, device;
    std::string why = call.why_not;
    if (why.empty()) why = attempt([&] { cpu = run_alone(call, at::kCPU, *on_cpu_); }, "alone on the CPU it fails: ");
    if (!why.empty()) {
      out.verdict = Verdict::NotCompared, out.note = why;
      return out;
    }
    const auto no_fp64 = attempt([&] { exact = run_in_fp64(call, 0), changed = run_in_fp64(call, rounding_in(call, cpu.results)); }, "");
    out.note = attempt([&] { device = run_alone(call, device_.c10(), *on_device_); }, "");
    if (!out.note.empty()) {
      out.verdict = Verdict::Fails;
      return out;
    }
    if (!no_fp64.empty()) out.note = "compared with the CPU, which has no fp64 kernel";
    judge_all(device.results, cpu.results, exact.results, changed.results, saturates_, out);
    judge_all(device.arguments, written(call, cpu), exact.arguments, changed.arguments, saturates_, out);
    if (out.result.empty()) out.verdict = Verdict::NotCompared, out.note = "it has no result on the CPU";
    return out;
  }

 private:
  // Returns half a unit in the last place of the coarsest dtype among the inputs and results, in which the call computes.
  static double rounding_in(const OperatorCall& call, const Results& results) {
    auto dtype = at::kFloat;
    const auto add = [&](const at::Tensor& t) {
      if (t.is_floating_point()) dtype = detail::coarser(dtype, t.scalar_type());
    };
    for (const auto& t : detail::tensors_of(call.inputs)) add(t);
    for (const auto& result : results) add(result.value);
    return detail::epsilon_of(dtype) / 2;
  }
  template <class Run>
  static std::string attempt(const Run& run, const std::string& what) {
    try {
      run();
      return "";
    } catch (const std::exception& e) {
      const std::string text = e.what();
      return what + text.substr(0, text.find('\n'));
    }
  }

  Device device_;
  bool saturates_;
  std::unique_ptr<Precision> on_device_, on_cpu_;
};

}  // namespace

int64_t OperatorCheck::count(CheckedOperator::Verdict verdict) const {
  return std::count_if(operators.begin(), operators.end(), [&](const CheckedOperator& o) { return o.verdict == verdict; });
}

OperatorCheck check_operators(const RunConfig& config, const Parts& parts) {
  return translated(kWhere, [&] {
    const auto device = run_device(config);
    check(!device.is_cpu(), ErrorKind::Usage, kWhere, "the device is the CPU, which is the reference; hint: --device npu, cuda or sim_npu");
    auto run = detail::without_side_effects(config);
    run.rng = "portable";
    run.device = "cpu";
    run.precision = precision_policy(precision_options(config), device).mode;
    run.trainer.gradient_checkpointing = "none";
    detail::ValidationSide side(run, parts);
    auto& loop = side.trainer().loop().parts();
    constexpr int64_t kShare = 4;  // kept inputs may use 1/4 of the memory; running one operator needs as much as its inputs
    detail::OperatorRecorder recorder(*loop.parameters, free_host_bytes() / kShare);
    side.trainer().add_observer(&recorder);
    loop.train_loader->begin_epoch(0);
    const auto batch = loop.train_loader->next();
    check(batch.has_value(), ErrorKind::Data, kWhere, "the training data provided no batch");
    side.step(batch->finished());
    OperatorCheck out{.device = device.str(), .precision = run.precision};
    const OperatorChecks checks(run, device, run.precision);
    for (const auto& call : recorder.calls()) out.operators.push_back(checks.check(call));
    check(!out.operators.empty(), ErrorKind::Usage, kWhere, "the forward pass calls no operator of libtorch");
    return out;
  });
}

namespace {

constexpr const char* word_of(Verdict verdict) {
  constexpr const char* words[] = {"agrees", "WRONG", "FAILS", "not compared"};
  return words[static_cast<int>(verdict)];
}

bool is_fault(const CheckedOperator& o) { return o.verdict == Verdict::Wrong || o.verdict == Verdict::Fails; }

std::vector<ReportField> row_of(const CheckedOperator& o) {
  const bool judged = !o.result.empty();
  const auto number = [&](double value) { return judged ? ReportValue(value) : ReportValue(Json(), "-"); };
  const auto tone = is_fault(o) ? Tone::Bad : o.verdict == Verdict::Agrees ? Tone::Good : Tone::Plain;
  return {both("name", "operator", o.name),
          both("verdict", {word_of(o.verdict), word_of(o.verdict), tone}),
          both("result", o.result),
          both("error", number(o.error)),
          both("cpu_error", "CPU's error", number(o.cpu_error)),
          both("allowed", number(o.allowed)),
          both("layer", o.layer),
          both("calls", o.calls),
          both("inputs", o.inputs),
          both("note", o.note)};
}

// Returns the fields that describe a faulty operator, with its place.
std::vector<ReportField> sentence_of(const CheckedOperator& o) {
  const auto errors = str_cat(o.result, " has the error ", short_number(o.error), ", on the CPU ", short_number(o.cpu_error),
                              "; allowed: ", short_number(o.allowed));
  std::vector<ReportField> out{shown("verdict", {word_of(o.verdict), word_of(o.verdict), Tone::Bad}), shown("operator", o.name),
                               shown("fault", o.verdict == Verdict::Fails || std::isinf(o.error) ? o.note : errors)};
  if (!o.layer.empty()) out.push_back(shown("layer", o.layer));
  out.push_back(shown("inputs", o.inputs));
  return out;
}

}  // namespace

Report report_of(const OperatorCheck& check) {
  const auto wrong = check.count(Verdict::Wrong), failed = check.count(Verdict::Fails), agree = check.count(Verdict::Agrees),
             others = check.count(Verdict::NotCompared);
  Report out("Operators of " + check.device, Json::object({{"passed", check.passed()},
                                                           {"device", check.device},
                                                           {"precision", check.precision},
                                                           {"agree", agree},
                                                           {"wrong", wrong},
                                                           {"fail", failed},
                                                           {"not_compared", others}}));
  out.say(str_cat("operators of a step, each alone on ", check.device, " in ", check.precision, ": ", agree, " agree, ", wrong,
                  " are wrong, ", failed, " fail, ", others, " were not compared"),
          check.passed() ? Tone::Good : Tone::Bad);
  ReportTable faults{.layout = ReportTable::Layout::List, .text_rows = 20}, all;
  for (const auto& o : check.operators)
    if (is_fault(o)) faults.add(sentence_of(o)), all.add(row_of(o));
  for (const auto& o : check.operators)
    if (!is_fault(o)) all.add(row_of(o));
  out.table("", std::move(faults), ReportIn::Text);
  out.table("operators", std::move(all), ReportIn::Page);
  if (others > 0) out.say("--json and --html list why operators were not compared", Tone::Plain, ReportIn::Text);
  return out;
}

}  // namespace npu_train
