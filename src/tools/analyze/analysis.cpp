#include "npu_train/tools/analyze/analysis.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "npu_train/core/error.hpp"
#include "npu_train/core/facts_table.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/device/device.hpp"
#include "npu_train/device/transfer.hpp"
#include "npu_train/train/passes.hpp"
#include "tools/analyze/facts/advice.hpp"

namespace npu_train {
namespace {

constexpr size_t kManyCustom = 5;
constexpr int64_t kBlock = 16;  // edge of a block of the matrix units

struct Advice {
  std::string severity, done_by, text;
  double hours = 0;
};

const std::map<std::string, Advice>& advice_table() {
  static const auto table = [] {
    std::map<std::string, Advice> out;
    for (const auto& row : detail::facts_texts(facts::advice, "advice.tsv", 5))
      out[row[0]] = {row[1], row[3], row[4], decimal_number(row[2]).value()};
    return out;
  }();
  return table;
}

int rank_of(const std::string& severity) { return severity == "blocks" ? 0 : severity == "change" ? 1 : severity == "check" ? 2 : 3; }

bool has_dtype(const std::vector<std::string>& list, const std::string& dtype) {
  return list.empty() || dtype.empty() || std::find(list.begin(), list.end(), dtype) != list.end();
}

std::string place_of(const OperatorUse& use) { return use.phase + (use.layers.empty() ? "" : " in " + join(use.layers)); }

// Collects findings, one for each kind and subject.
class Findings {
 public:
  explicit Findings(Analysis& out) : out_(out) {}

  MigrationFinding& add(const std::string& kind, const std::string& subject, const std::string& detail) {
    const auto [at, added] = seen_.emplace(kind + "\n" + subject, out_.findings.size());
    const auto& advice = advice_table().at(kind);
    if (added) out_.findings.push_back({kind, advice.severity, subject, detail, advice.text, advice.done_by, 0, {}, advice.hours});
    return out_.findings[at->second];
  }

  // Adds a finding about an operator; if it was added before, adds the calls and the place of `use` to it.
  void add(const std::string& kind, const std::string& subject, const OperatorUse& use, const std::string& detail) {
    auto& finding = add(kind, subject, detail);
    finding.calls += use.calls;
    if (const auto place = place_of(use); std::find(finding.places.begin(), finding.places.end(), place) == finding.places.end())
      finding.places.push_back(place);
  }

  void finish() {
    std::stable_sort(out_.findings.begin(), out_.findings.end(),
                     [](const MigrationFinding& a, const MigrationFinding& b) { return rank_of(a.severity) < rank_of(b.severity); });
  }

 private:
  Analysis& out_;
  std::map<std::string, size_t> seen_;  // by kind and subject: positions in the list of findings
};

std::string where(const OperatorUse& use) {
  return use.phase + ", " + std::to_string(use.calls) + (use.calls == 1 ? " call" : " calls") +
         (use.layers.empty() ? "" : ", in " + use.layers.front() + (use.layers.size() > 1 ? " and others" : ""));
}

void judge_support(const Analysis::Operator& op, Findings& findings) {
  const auto& use = op.use;
  const auto name = use.full_name();
  switch (op.facts.support) {
    case OperatorSupport::Unsupported:
    case OperatorSupport::Custom:
    case OperatorSupport::CpuFallback:
    case OperatorSupport::Unknown:
      findings.add(support_name(op.facts.support), name, use, where(use));
      break;
    case OperatorSupport::Limited:  // views and casts need no check
      if (use.works) findings.add("limited", name, use, where(use) + (op.facts.limits.empty() ? "" : ": " + op.facts.limits));
      break;
    case OperatorSupport::Native:
    case OperatorSupport::Composite:
      break;
  }
}

// Whether the operator may add several values to one element of memory, because of its indices or of overlapping windows.
bool adds_with_atomics(const std::string& name) {
  static const std::set<std::string> names = {"index_add",      "index_add_",      "scatter_add",
                                              "scatter_add_",   "index_put_",      "_index_put_impl_",
                                              "scatter_reduce", "scatter_reduce_", "index_reduce_",
                                              "put_",           "bincount",        "embedding_dense_backward",
                                              "segment_reduce", "col2im",          "grid_sampler_2d_backward"};
  return names.count(name) != 0 || (name.starts_with("upsample_") && name.ends_with("_backward"));
}

void judge_sums(const OperatorUse& use, const std::string& dtype, Findings& findings) {
  const bool floats = dtype == "fp16" || dtype == "bf16" || dtype == "fp32";
  const bool atomics = adds_with_atomics(use.name);
  if (atomics && floats) findings.add("atomics", use.full_name(), use, where(use));
  // Reductions such as mean and norm accumulate in fp32, but each atomic addition to an element of memory rounds to fp16.
  if (atomics && dtype == "fp16") findings.add("fp16_accumulation", use.full_name(), use, where(use));
}

void judge_operator(const Analysis::Operator& op, Findings& findings) {
  const auto& use = op.use;
  const auto name = use.full_name();
  judge_support(op, findings);
  // After the backward pass, only this library's own code runs, which reads no more than one flag per step.
  const bool of_the_model = use.phase == phase_name(Phase::Forward) || use.phase == phase_name(Phase::Backward);
  if (use.dynamic_shape && of_the_model) findings.add("dynamic_shape", name, use, where(use));
  if (use.host_read && of_the_model) findings.add("host_read", name, use, where(use));
  if (!use.works) return;
  const auto dtype = use.computed_in();
  if (dtype == "fp64") {
    findings.add("fp64", name, use, where(use));
  } else if (!has_dtype(op.facts.dtypes, dtype)) {
    findings.add("dtype", name, use, dtype + " is not among the listed dtypes: " + join(op.facts.dtypes));
  }
  static const std::set<std::string> arithmetic = {"add", "add_",      "sub",          "sub_",    "mul",    "mul_",
                                                   "div", "div_",      "sort",         "argsort", "cumsum", "topk",
                                                   "sum", "remainder", "floor_divide", "pow",     "mm",     "matmul"};
  if (dtype == "int64" && arithmetic.count(use.name) != 0) findings.add("int64", name, use, where(use));
  if (of_the_model) judge_sums(use, dtype, findings);
}

using PartsByOperator = std::map<std::string, std::set<std::string>>;  // type of OperatorInventory::parts

// Splits "mkldnn::_linear_pointwise" into "mkldnn" and "_linear_pointwise"; a name without a library is ATen's.
std::pair<std::string, std::string> split_name(const std::string& full_name) {
  const auto colons = full_name.find("::");
  if (colons == std::string::npos) return {"aten", full_name};
  return {full_name.substr(0, colons), full_name.substr(colons + 2)};
}

OperatorFacts facts_of(const AscendOperators& table, const std::string& full_name) {
  const auto [library, name] = split_name(full_name);
  const auto dot = name.find('.');
  return table.find(library, name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1));
}

// Whether the operator exists only on the host, so that the chip uses another kernel. This applies to operators of this library, and to
// operators of libtorch that exist only for CPUs.
bool is_of_the_host(const std::string& full_name) {
  const auto [library, name] = split_name(full_name);
  return library == "npu_train" || is_of_the_cpu(library, name);
}

// Collects the operators of which `name` is finally composed: operators that have a kernel of their own or whose parts are unknown.
void find_leaves(const std::string& name, const PartsByOperator& parts, const AscendOperators& table, std::set<std::string>& seen,
                 std::set<std::string>& leaves) {
  if (!seen.insert(name).second) return;
  const auto made_of = parts.find(name);
  if (!facts_of(table, name).composite || made_of == parts.end()) {
    leaves.insert(name);
    return;
  }
  for (const auto& part : made_of->second) find_leaves(part, parts, table, seen, leaves);
}

// Judges operators without a kernel of their own by the operators that they called in this run, recursively.
void judge_composites(const Analysis& analysis, const PartsByOperator& parts, const AscendOperators& table, Findings& findings) {
  std::set<std::string> names, known, open;
  for (const auto& op : analysis.operators) {
    const auto name = op.use.full_name();
    if (!op.facts.composite || !op.use.works || is_of_the_cpu(op.use.library, op.use.name)) continue;
    names.insert(name);
    std::set<std::string> seen, leaves;
    find_leaves(name, parts, table, seen, leaves);
    // the chip does not call the host's kernels; if an operator is composed only of them, its parts on the chip are unknown
    if (std::all_of(leaves.begin(), leaves.end(), is_of_the_host)) open.insert(name);
    for (const auto& leaf : leaves) {
      const auto facts = facts_of(table, leaf);
      if (is_of_the_host(leaf)) {
        continue;
      } else if (leaf == name) {
        open.insert(leaf);
      } else if (facts.composite) {
        continue;  // the leaf called no operator, but returned its argument
      } else if (facts.support == OperatorSupport::Native || facts.support == OperatorSupport::Limited) {
        known.insert(leaf);
      } else {
        findings.add(support_name(facts.support), leaf, op.use, "called by " + name + ", " + where(op.use));
      }
    }
  }
  if (names.empty()) return;
  const auto listed = [](const std::set<std::string>& set) { return join(std::vector<std::string>(set.begin(), set.end())); };
  findings.add("composite", std::to_string(names.size()) + (names.size() == 1 ? " kind" : " kinds"),
               listed(names) + (known.empty() ? "" : ": composed of " + listed(known) + ", which are in the tables") +
                   (open.empty() ? "" : "; the chip's support for " + listed(open) + " is unknown"));
}

void judge_parameters(const ParameterSet& parameters, const std::set<int64_t>& classes, Analysis& out, Findings& findings) {
  std::map<std::string, std::vector<std::string>> by_dtype;
  for (const auto& p : parameters) {
    by_dtype[listed_dtype(c10::toString(p.value.scalar_type()))].push_back(p.name);
    const auto& w = p.value;
    if (w.dim() < 2 || !p.name.ends_with("weight")) continue;
    // sizes that the data determine are no finding: the number of classes, and up to 4 channels of images
    const bool odd = (w.size(0) % kBlock != 0 && classes.count(w.size(0)) == 0) || (w.size(1) % kBlock != 0 && w.size(1) > 4);
    if (odd) findings.add("alignment", p.name, str_cat(w.sizes()) + ": not multiples of " + std::to_string(kBlock));
  }
  for (const auto& [dtype, names] : by_dtype) out.parameter_dtypes.emplace_back(dtype, static_cast<int64_t>(names.size()));
  std::sort(out.parameter_dtypes.begin(), out.parameter_dtypes.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  for (size_t i = 1; i < out.parameter_dtypes.size(); ++i) {
    const auto& names = by_dtype[out.parameter_dtypes[i].first];
    findings.add("parameter_dtypes", out.parameter_dtypes[i].first,
                 std::to_string(names.size()) + " of them, such as " + names.front() + ", in addition to " +
                     std::to_string(out.parameter_dtypes[0].second) + " of " + out.parameter_dtypes[0].first);
  }
}

void judge_memory(const AnalysisOptions& options, Findings& findings) {
  if (options.hbm == 0 || options.predicted_peak <= options.hbm) return;
  const auto peak = human_bytes(static_cast<double>(options.predicted_peak));
  const auto add = [&](const char* kind, const std::string& with) {
    findings.add(kind, peak,
                 "predicted for the step; the card has " + human_bytes(static_cast<double>(options.hbm)) +
                     (with.empty() ? "" : "; it fits with " + with));
  };
  if (!options.fits_with.empty()) add("memory_change", options.fits_with);
  if (!options.sharded_with.empty()) add("memory_sharding", options.sharded_with);
  if (options.fits_with.empty() && options.sharded_with.empty()) add("memory", "");
}

}  // namespace

double Analysis::hours() const {
  double out = 0;
  for (const auto& f : findings) out += f.hours;
  return out;
}

std::string Analysis::verdict() const {
  const auto any = [&](const char* severity) {
    return std::any_of(findings.begin(), findings.end(), [&](const MigrationFinding& f) { return f.severity == severity; });
  };
  return any("blocks") ? "blocked" : any("change") ? "feasible" : "ready";
}

Analysis analyze(const OperatorInventory& inventory, const ParameterSet& parameters, const AnalysisOptions& options) {
  const AscendOperators table(options.soc, options.torch);
  Analysis out;
  out.options = options;
  out.options.soc = table.soc();
  Findings findings(out);
  if (!table.assumed().empty()) findings.add("series", table.soc(), table.assumed());
  std::set<std::string> custom;
  bool bf16 = false;
  for (auto& use : inventory.uses()) {
    out.seconds += use.seconds;
    auto facts = table.find(use.library, use.name, use.overload);
    if (facts.support == OperatorSupport::Custom) custom.insert(use.full_name());
    bf16 |= use.works && use.computed_in() == "bf16";
    out.operators.push_back({std::move(use), std::move(facts)});
    judge_operator(out.operators.back(), findings);
  }
  if (custom.size() > kManyCustom)
    findings.add("many_custom", std::to_string(custom.size()) + " kinds", "more than " + std::to_string(kManyCustom) + " custom operators");
  if (bf16 && !table.bf16()) findings.add("bf16", table.soc(), "the step computes in bf16");
  judge_memory(options, findings);
  for (const auto& [heads, size] : inventory.heads())
    if (size % kBlock != 0)
      findings.add("alignment", std::to_string(heads) + " heads of " + std::to_string(size),
                   "attention; the head size is not a multiple of " + std::to_string(kBlock));
  judge_composites(out, inventory.parts(), table, findings);
  judge_parameters(parameters, inventory.classes(), out, findings);
  findings.finish();
  return out;
}

Analysis analyze(Task& task, const Batch& batch, const AnalysisOptions& options) {
  return translated("analyze", [&] {
    const auto parameters = task.parameters();
    check(!parameters.empty(), ErrorKind::Usage, "analyze", "the model has no parameters to train");
    OperatorInventory inventory(parameters);
    task.set_training(true);
    Precision fp32;
    Observers observers;
    observers.add(&inventory);
    detail::run_window(task, fp32, {to_device(batch, device_of(parameters[0].value.device()))}, observers);
    auto result = analyze(inventory, parameters, options);
    parameters.zero_grad();
    return result;
  });
}

}  // namespace npu_train
