#include "tools/align/step_comparer.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <mutex>

#include "npu_train/core/text.hpp"
#include "tools/align/match_structure.hpp"

namespace npu_train::detail {
namespace {

using Kind = ItemComparison::Kind;

// Maps msprobe's name of a level to the name in dump.level.
std::string level_word(const std::string& level) { return level == "L0" ? "module" : level == "L1" ? "op" : level; }

std::string one_sided_cause(const DumpCall& call, const DumpStep& here, const DumpStep& other, const char* absent_in) {
  const std::string where = std::string("missing in ") + absent_in + ": ";
  if (!other.complete) return where + "that dump is truncated";
  if (call.direction == "backward")
    return where + "it has no gradient there (frozen, detached, dumped without backward, or its output was changed in place)";
  if (call.direction == "parameters_grad") return where + "no gradient of these parameters there (frozen, or a different data_mode)";
  if (here.level != other.level)
    return where + "level " + level_word(here.level) + " on this side, " + level_word(other.level) + " on the other";
  if (!fact_of(other, "part").empty()) return where + "that dump contains only a part (" + fact_of(other, "part") + ")";
  if (call.type == "Layer") return where + "a declared layer, which the other program does not declare";
  return where +
         "a different network, a different list, scope or sample of the dump, or a fused operator; hint: --mapping FILE pairs different "
         "names";
}

std::string layer_and_number(const DumpCall& call) { return call.layer + "|" + std::to_string(call.number); }

std::vector<const DumpItem*> tensors_of(const DumpCall& call, const std::string& side) {
  std::vector<const DumpItem*> out;
  for (const auto& item : call.items)
    if (item.side == side && item.is_tensor()) out.push_back(&item);
  return out;
}

bool has_parameters(const DumpCall& call) {
  return call.direction == "parameters_grad" ||
         std::any_of(call.items.begin(), call.items.end(), [](const DumpItem& i) { return i.side == "parameters"; });
}

}  // namespace

bool has_gaps(const DumpStep& step) {
  const auto sample = fact_of(step, "sample");
  return !fact_of(step, "part").empty() || (!sample.empty() && decimal_number(sample).value_or(0) < 1);
}

bool is_part(const DumpStep& step) { return !step.complete || has_gaps(step); }

bool fuses_kernels(const DumpStep& step) {
  const auto fact = fact_of(step, "fused_kernels");
  return !fact.empty() && fact != "false";
}

StepContent::StepContent(const DumpStep& step) : step_(step), layers_(layers_of(step)) {
  for (const auto& call : step.calls) {
    directions_.insert(call.direction);
    if (call.direction == "parameters_grad") graded_.insert(call.layer);
    if (call.direction == "forward" && call.is_module) forwards_.emplace(layer_and_number(call), &call);
    if (call.direction == "forward" && call.is_module && !call.layer.starts_with("optimizer"))
      for (const auto& item : call.items)
        if (item.is_tensor()) sides_.insert(item.side);
  }
}

bool StepContent::lost_side(const DumpCall& own, const DumpCall& other, const std::string& side) const {
  if (own.direction != "forward" || !own.is_module || !other.is_module || own.layer.starts_with("optimizer") || is_part(step_))
    return false;
  return sides_.count(side) != 0 && !tensors_of(other, side).empty() && tensors_of(own, side).empty();
}

bool StepContent::shows_shares(const DumpCall& backward) const {
  const auto forward = forwards_.find(layer_and_number(backward));
  if (forward == forwards_.end() || backward.direction != "backward" || !backward.is_module) return false;
  const auto given = tensors_of(*forward->second, "input");
  const auto equal = [&](const DumpItem* i) {
    return i->shape == given[0]->shape && i->max == given[0]->max && i->min == given[0]->min && i->norm == given[0]->norm &&
           i->crc == given[0]->crc;
  };
  return given.size() > 1 && std::all_of(given.begin(), given.end(), equal) && tensors_of(backward, "output").size() > 1;
}

bool StepContent::lost_gradients(const DumpCall& call) const {
  if (!step_.complete || !call.is_module || call.direction == "forward" || layers_.count(call.layer) == 0) return false;
  // If a program changes the output in place, hooks do not receive the gradient. Then the gradients of the parameters show that there was a
  // gradient.
  const bool hidden = call.direction == "backward" && graded_.count(call.layer) != 0;
  return directions_.count(call.direction) != 0 && !hidden;
}

// Considers only layers with parameters. Operators and other layers may be fused or have other names, and their effects are visible in
// later layers.
bool StepContent::lost_layer(const DumpCall& call, const DumpStep& other) const {
  if (!call.is_module || call.direction != "forward" || !has_parameters(call) || call.layer.starts_with("optimizer")) return false;
  return directions_.count("forward") != 0 && !is_cut_otherwise(call, layers_) && !is_part(step_) && step_.level == other.level;
}

StepComparer::StepComparer(const DumpStep& a, const DumpStep& b, const DumpStep* reference, const CompareOptions& options,
                           NoiseSteps* noise)
    : a_(a),
      b_(b),
      options_(options),
      noise_(noise),
      judge_(a, b, options),
      in_a_(a),
      in_b_(b),
      chosen_a_(a, options, fuses_kernels(a) != fuses_kernels(b)),
      chosen_b_(b, options, fuses_kernels(a) != fuses_kernels(b)) {
  if (reference == nullptr) return;
  to_reference_a_.emplace(a, *reference, options);
  to_reference_b_.emplace(b, *reference, options);
  for (const auto& [i, r] : match_calls(a, *reference, options).pairs)
    if (i >= 0 && r >= 0) references_[static_cast<size_t>(i)] = &reference->calls[static_cast<size_t>(r)];
}

StepComparison StepComparer::run(int64_t& bytes, double earlier_error) {
  out_.earlier_error = earlier_error;
  out_.step = a_.step;
  out_.rank = a_.rank;
  out_.complete_a = a_.complete;
  out_.complete_b = b_.complete;
  auto match = match_calls(a_, b_, options_);
  out_.notes = std::move(match.notes);
  unknown_ = std::move(match.unknown);
  layers_ = std::move(match.layers);
  by_size_ = std::move(match.by_size);
  note_parameters(match.pairs);
  out_.regrouped = regrouped_modules(a_, b_, match.pairs);
  if (!out_.regrouped.empty())
    out_.notes.push_back("the parameters of " + join(out_.regrouped) +
                         " have equal numbers on both sides, in layers that are divided differently; their outputs are compared");
  for (const auto& [i, j] : match.pairs) pair_call(i, j);
  std::vector<Job> jobs;
  for (size_t c = 0; c < out_.calls.size(); ++c)
    for (auto& item : out_.calls[c].items)
      if (item.kind != Kind::OneSided && item.kind != Kind::NotCompared) jobs.push_back({&item, &out_.calls[c], reference_of(c, item)});
  bytes += compare_all(jobs);
  if (to_reference_b_)
    for (const auto& job : jobs) note_reference(job);
  if (noise_ != nullptr) noise_->set_aside(out_, a_, b_, judge_.noise());
  if (to_reference_b_) judge_.learn_costs(out_);
  for (auto& call : out_.calls) finish(call);
  return std::move(out_);
}

void StepComparer::note_parameters(const CallPairs& pairs) {
  for (const auto& [i, j] : pairs) {
    if (i < 0 || j < 0) continue;
    const auto &a = a_.calls[static_cast<size_t>(i)], &b = b_.calls[static_cast<size_t>(j)];
    for (const auto& [call, names] : {std::pair(&a, &paired_a_), std::pair(&b, &paired_b_)})
      for (const auto& item : call->items)
        if (call->direction == "forward" && item.side == "parameters") names->insert(parameter_name(*call, item));
  }
}

// Whether paired calls contain all parameters of the call, too, so that they are compared even if the call itself is unpaired.
bool StepComparer::shares_parameters(const DumpCall& call, bool in_a) const {
  const auto& paired = in_a ? paired_a_ : paired_b_;
  const auto is_elsewhere = [&](const DumpItem& item) {
    return item.side != "parameters" || paired.count(parameter_name(call, item)) != 0;
  };
  return has_parameters(call) && std::all_of(call.items.begin(), call.items.end(), is_elsewhere);
}

void StepComparer::pair_call(int64_t i, int64_t j) {
  const auto* a = i >= 0 ? &a_.calls[static_cast<size_t>(i)] : nullptr;
  const auto* b = j >= 0 ? &b_.calls[static_cast<size_t>(j)] : nullptr;
  const auto& any = a != nullptr ? *a : *b;
  if (!(a != nullptr ? chosen_a_.has(static_cast<size_t>(i)) : chosen_b_.has(static_cast<size_t>(j)))) {
    ++out_.skipped;
    return;
  }
  CallComparison call{
      .a = a != nullptr ? a->name : "", .b = b != nullptr ? b->name : "", .layer = any.layer, .type = any.type, .direction = any.direction};
  if (a == nullptr || b == nullptr) return add_one_sided(std::move(call), any, a != nullptr);
  if (a->layer != b->layer) call.layer_b = b->layer;
  const bool shares = in_a_.shows_shares(*a) != in_b_.shows_shares(*b);
  for (const auto& [x, y] : match_items(*a, *b, layers_)) {
    if (!(x >= 0 ? chosen_a_.has_item(*a, a->items[static_cast<size_t>(x)]) : chosen_b_.has_item(*b, b->items[static_cast<size_t>(y)])))
      continue;
    ItemComparison item;
    if (x >= 0) item.item_a = a->items[static_cast<size_t>(x)];
    if (y >= 0) item.item_b = b->items[static_cast<size_t>(y)];
    item.a = item.item_a.name;
    item.b = item.item_b.name;
    item.side = x >= 0 ? item.item_a.side : item.item_b.side;
    if (x < 0 || y < 0) {
      item.kind = Kind::OneSided;
      const bool gradient = any.direction == "parameters_grad";
      item.message =
          std::string("missing in ") + (x < 0 ? "A" : "B") +
          (gradient ? ": no gradient of this parameter there (frozen or detached)" : ": the call has different arguments or results there");
      item.failed = gradient && (x < 0 ? a_ : b_).complete;
      const bool elsewhere = item.side == "parameters" && is_regrouped(out_, any.layer);
      if (elsewhere) item.message = std::string("missing in ") + (x < 0 ? "A" : "B") + ": part of another layer there";
      if ((item.side == "output" || item.side == "parameters") && !elsewhere)
        item.failed |= x < 0 ? in_a_.lost_side(*a, *b, item.side) : in_b_.lost_side(*b, *a, item.side);
    }
    const bool both = x >= 0 && y >= 0 && item.item_a.is_tensor() && item.item_b.is_tensor();
    const bool weight = item.side == "parameters" || item.side == "parameters_grad";
    item.transposed = both && weight && item.item_a.shape.size() == 2 && keeps_transposed(*a, *b);
    if (both && !weight && by_size_.count(i) != 0 && item.item_a.shape != item.item_b.shape) {
      item.kind = Kind::NotCompared;
      item.message = "the sides divide the network differently here: values with different shapes";
    }
    if (shares && item.side == "output") {
      item.kind = Kind::NotCompared;
      item.message = "one tensor that the call received several times: one side shows its gradient, the other the share of each argument";
    }
    call.items.push_back(std::move(item));
  }
  out_.calls.push_back(std::move(call));
  from_a_.push_back(static_cast<size_t>(i));
}

void StepComparer::add_one_sided(CallComparison call, const DumpCall& any, bool in_a) {
  ++out_.one_sided;
  ItemComparison item{.a = call.a, .b = call.b, .side = ""};
  item.kind = Kind::OneSided;
  const auto& absent = in_a ? in_b_ : in_a_;
  item.message = in_a ? one_sided_cause(any, a_, b_, "B") : one_sided_cause(any, b_, a_, "A");
  const bool regrouped = is_regrouped(out_, any.layer);
  if (regrouped) item.message = std::string("missing in ") + (in_a ? "B" : "A") + ": its parameters are part of another layer there";
  const bool elsewhere = any.direction == "forward" && shares_parameters(any, in_a);
  if (elsewhere) item.message = std::string("missing in ") + (in_a ? "B" : "A") + ": its parameters are compared in other calls";
  item.failed = !regrouped && !elsewhere && (absent.lost_gradients(any) || absent.lost_layer(any, in_a ? a_ : b_));
  call.items.push_back(std::move(item));
  out_.calls.push_back(std::move(call));
  from_a_.push_back(kNone);
}

const DumpItem* StepComparer::reference_of(size_t call, const ItemComparison& item) const {
  const auto found = references_.find(from_a_[call]);
  if (found == references_.end()) return nullptr;
  const auto rest = item.a.substr(std::min(item.a.size(), a_.calls[from_a_[call]].name.size()));
  for (const auto& r : found->second->items)
    if (r.name.substr(std::min(r.name.size(), found->second->name.size())) == rest) return &r;
  return nullptr;
}

int64_t StepComparer::compare_one(const Job& job) const {
  const auto dumped = *job.item;  // the item before its values are divided by the loss scale
  auto bytes = judge_.compare(*job.item, job.call->direction);
  if (job.reference == nullptr || (job.item->kind != Kind::Tensor && job.item->kind != Kind::Statistics)) return bytes;
  ItemComparison a{.a = dumped.a, .b = job.reference->name, .side = dumped.side};
  a.item_a = dumped.item_a;
  a.item_b = *job.reference;
  auto b = a;
  b.item_a = dumped.item_b;
  bytes += to_reference_a_->compare(a, job.call->direction) + to_reference_b_->compare(b, job.call->direction);
  const auto measured = [](const ItemComparison& i) {
    return (i.kind == Kind::Tensor || i.kind == Kind::Statistics) && !i.unreadable && std::isfinite(i.error);
  };
  if (measured(a) && measured(b)) {
    job.item->reference_error_a = a.error;
    job.item->reference_error_b = b.error;
  }
  return bytes;
}

// Counts values that the reference lacks, and values that are finite in both runs, but not in the reference.
void StepComparer::note_reference(const Job& job) {
  const auto& item = *job.item;
  if ((item.kind != Kind::Tensor && item.kind != Kind::Statistics) || item.unreadable) return;
  ++reference_use_.values;
  if (item.reference_error_a >= 0) return;
  const auto finite = [](const std::optional<double>& v) { return !v || std::isfinite(*v); };
  const auto* r = job.reference;
  if (r == nullptr || r->shape != item.item_b.shape) {
    ++reference_use_.missing;
  } else if (!(finite(r->max) && finite(r->min) && finite(r->mean) && finite(r->norm)) && is_finite(item, true) && is_finite(item, false)) {
    if (reference_use_.not_finite++ == 0) reference_use_.first_not_finite = r->name;
  }
}

int64_t StepComparer::compare_all(const std::vector<Job>& jobs) const {
  std::atomic<size_t> next = 0;
  std::atomic<int64_t> bytes = 0;
  std::mutex mutex;
  std::exception_ptr error;
  const auto threads = static_cast<int64_t>(std::min<size_t>(static_cast<size_t>(at::get_num_threads()), jobs.size()));
  at::parallel_for(0, threads, 1, [&](int64_t, int64_t) {
    try {
      for (size_t i = next++; i < jobs.size(); i = next++) bytes += compare_one(jobs[i]);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (error == nullptr) error = std::current_exception();
      next = jobs.size();
    }
  });
  if (error != nullptr) std::rethrow_exception(error);
  return bytes;
}

void StepComparer::add_error(const ItemComparison& item, CallComparison& call) const {
  if (is_moved(item)) {
    call.moved_error = std::max(call.moved_error, moved_error_of(item, call));
    return;
  }
  auto& error = item.side == "input" ? call.input_error : item.side == "parameters" ? call.parameter_error : call.output_error;
  error = std::max(error, item.error);
}

void StepComparer::finish(CallComparison& call) {
  call.noise = judge_.noise();
  for (auto& item : call.items) {
    judge_.judge(item, call);
    out_.failed += item.failed;
    out_.unreadable += item.failed && item.unreadable;
    call.failed |= item.failed;
    (item.side == "parameters"     ? out_.noise_weights
     : call.direction == "forward" ? out_.noise_state
                                   : out_.noise_gradients) += item.noise_elements;
    if (item.kind == Kind::OneSided) {
      if (!call.a.empty() && !call.b.empty()) ++out_.one_sided;
      continue;
    }
    if (item.kind == Kind::NotCompared) {
      ++out_.not_compared;
      continue;
    }
    tensors_ += item.item_a.is_tensor();
    ++out_.compared;
    add_error(item, call);
  }
  call.amplification = std::max(call.output_error, call.noise) / std::max(call.input_error, call.noise);
  if (std::isnan(call.amplification)) call.amplification = 1;  // inf / inf
}

}  // namespace npu_train::detail
