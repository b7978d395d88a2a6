#include "npu_train/align/compare.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <mutex>

#include "align/compare_parts.hpp"
#include "align/match_calls.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train {
namespace {

using detail::CallPairs;
using Kind = ItemComparison::Kind;

std::string one_sided_cause(const DumpCall& call, const DumpStep& here, const DumpStep& other, const char* absent_in) {
  const std::string where = std::string("missing in ") + absent_in + ": ";
  if (!other.complete) return where + "that dump was cut short";
  if (call.direction == "backward") return where + "no gradient came back there (frozen, detached, or dumped without backward)";
  if (call.direction == "parameters_grad") return where + "no gradient of these parameters there (frozen, or another data_mode)";
  if (here.level != other.level) return where + "level " + here.level + " here, " + other.level + " there";
  if (call.type == "Layer") return where + "a declared layer, which the other program does not declare";
  return where + "another network, another list, scope or sample of the dump, or a fused operator; hint: --mapping FILE pairs other names";
}

// Everything of one step that is compared, in one list, so that threads share it evenly.
struct Job {
  ItemComparison* item;
  const CallComparison* call;
  const DumpItem* reference = nullptr;
};

// What one side has of layers and gradients.
class Gradients {
 public:
  explicit Gradients(const DumpStep& step) : complete_(step.complete) {
    for (const auto& call : step.calls) {
      if (call.direction == "forward" && call.is_module) layers_.insert(call.layer);
      directions_.insert(call.direction);
    }
  }
  // It has the layer and other gradients, but not those of `call`, which the other side has.
  bool lost(const DumpCall& call) const {
    return complete_ && call.is_module && call.direction != "forward" && layers_.count(call.layer) != 0 &&
           directions_.count(call.direction) != 0;
  }

 private:
  bool complete_;
  std::set<std::string> layers_, directions_;
};

class StepComparer {
 public:
  StepComparer(const DumpStep& a, const DumpStep& b, const DumpStep* reference, const CompareOptions& options)
      : a_(a), b_(b), reference_(reference), options_(options), judge_(a, b, options), in_a_(a), in_b_(b) {
    if (reference_ != nullptr) {
      to_reference_a_.emplace(a, *reference, options);
      to_reference_b_.emplace(b, *reference, options);
      for (const auto& [i, r] : detail::match_calls(a, *reference, options))
        if (i >= 0 && r >= 0) references_[static_cast<size_t>(i)] = &reference->calls[static_cast<size_t>(r)];
    }
  }

  int64_t tensors() const { return tensors_; }

  StepComparison run(int64_t& bytes) {
    out_.step = a_.step;
    out_.rank = a_.rank;
    out_.complete_a = a_.complete;
    out_.complete_b = b_.complete;
    auto match = detail::match_and_tell(a_, b_, options_);
    out_.notes = std::move(match.notes);
    for (const auto& [i, j] : match.pairs) pair_call(i, j);
    std::vector<Job> jobs;
    for (size_t c = 0; c < out_.calls.size(); ++c)
      for (auto& item : out_.calls[c].items)
        if (item.kind != Kind::OneSided) jobs.push_back({&item, &out_.calls[c], reference_of(c, item)});
    bytes += compare_all(jobs);
    for (auto& call : out_.calls) finish(call);
    return std::move(out_);
  }

 private:
  void pair_call(int64_t i, int64_t j) {
    const auto* a = i >= 0 ? &a_.calls[static_cast<size_t>(i)] : nullptr;
    const auto* b = j >= 0 ? &b_.calls[static_cast<size_t>(j)] : nullptr;
    const auto& any = a != nullptr ? *a : *b;
    const auto& step = a != nullptr ? a_ : b_;
    if (!detail::is_chosen(any, step, static_cast<size_t>(a != nullptr ? i : j), options_)) {
      ++out_.skipped;
      return;
    }
    CallComparison call{.a = a != nullptr ? a->name : "",
                        .b = b != nullptr ? b->name : "",
                        .layer = any.layer,
                        .type = any.type,
                        .direction = any.direction};
    if (a == nullptr || b == nullptr) {
      ++out_.one_sided;
      ItemComparison item{.a = call.a, .b = call.b, .side = ""};
      item.kind = Kind::OneSided;
      item.message = a == nullptr ? one_sided_cause(*b, b_, a_, "A") : one_sided_cause(*a, a_, b_, "B");
      item.failed = a == nullptr ? in_a_.lost(any) : in_b_.lost(any);
      call.items.push_back(std::move(item));
      out_.calls.push_back(std::move(call));
      from_a_.push_back(kNone);
      return;
    }
    for (const auto& [x, y] : detail::match_items(*a, *b)) {
      ItemComparison item;
      if (x >= 0) item.item_a = a->items[static_cast<size_t>(x)];
      if (y >= 0) item.item_b = b->items[static_cast<size_t>(y)];
      item.a = item.item_a.name;
      item.b = item.item_b.name;
      item.side = x >= 0 ? item.item_a.side : item.item_b.side;
      if (x < 0 || y < 0) {
        item.kind = Kind::OneSided;
        item.message = std::string("missing in ") + (x < 0 ? "A" : "B") + ": the call takes or gives other values there";
      }
      call.items.push_back(std::move(item));
    }
    out_.calls.push_back(std::move(call));
    from_a_.push_back(static_cast<size_t>(i));
  }

  const DumpItem* reference_of(size_t call, const ItemComparison& item) const {
    const auto found = references_.find(from_a_[call]);
    if (found == references_.end()) return nullptr;
    const auto rest = item.a.substr(std::min(item.a.size(), a_.calls[from_a_[call]].name.size()));
    for (const auto& r : found->second->items)
      if (r.name.substr(std::min(r.name.size(), found->second->name.size())) == rest) return &r;
    return nullptr;
  }

  int64_t compare_one(const Job& job) const {
    auto bytes = judge_.compare(*job.item, job.call->direction);
    if (job.reference == nullptr || (job.item->kind != Kind::Tensor && job.item->kind != Kind::Statistics)) return bytes;
    ItemComparison a{.a = job.item->a, .b = job.reference->name, .side = job.item->side};
    a.item_a = job.item->item_a;
    a.item_b = *job.reference;
    auto b = a;
    b.item_a = job.item->item_b;
    bytes += to_reference_a_->compare(a, job.call->direction) + to_reference_b_->compare(b, job.call->direction);
    if (std::isfinite(a.error) && std::isfinite(b.error)) {
      job.item->reference_error_a = a.error;
      job.item->reference_error_b = b.error;
    }
    return bytes;
  }

  int64_t compare_all(const std::vector<Job>& jobs) const {
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

  void finish(CallComparison& call) {
    call.noise = judge_.noise();
    for (auto& item : call.items) {
      judge_.judge(item, call);
      out_.failed += item.failed;
      call.failed |= item.failed;
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
      // running statistics were moved by this call: they are what it gives
      const bool moved = item.a.ends_with(".running_mean") || item.a.ends_with(".running_var");
      auto& error = item.side == "input"                  ? call.input_error
                    : item.side == "parameters" && !moved ? call.parameter_error
                                                          : call.output_error;
      error = std::max(error, item.error);
    }
    call.amplification = std::max(call.output_error, call.noise) / std::max(call.input_error, call.noise);
    if (std::isnan(call.amplification)) call.amplification = 1;  // inf over inf
  }

  static constexpr size_t kNone = static_cast<size_t>(-1);
  const DumpStep &a_, &b_;
  const DumpStep* reference_;
  const CompareOptions& options_;
  detail::ItemJudge judge_;
  Gradients in_a_, in_b_;
  std::optional<detail::ItemJudge> to_reference_a_, to_reference_b_;
  std::map<size_t, const DumpCall*> references_;  // by the index in A
  std::vector<size_t> from_a_;                    // by call of out_
  StepComparison out_;
  int64_t tensors_ = 0;  // that were compared
};

bool same_environment(const DumpStep& a, const DumpStep& b) {
  for (const char* fact : {"version", "libtorch", "device", "precision", "threads", "cpu"}) {
    const auto x = a.facts.find(fact), y = b.facts.find(fact);
    if (x == a.facts.end() || y == b.facts.end() || x->second != y->second) return false;
  }
  return true;
}

// What was asked for is taken at its word.
bool given_tolerance(const CompareOptions& options) { return options.atol || options.rtol || !options.layer_tolerance.empty(); }

bool is_sample(const DumpStep& step) {
  const auto part = [&](const char* fact) {
    const auto found = step.facts.find(fact);
    return found != step.facts.end() && std::atof(found->second.c_str()) < 1;
  };
  return part("sample") || part("sample_elements");
}

using Places = std::map<std::pair<int64_t, std::string>, const Dump::Place*>;

Places places_of(const Dump& dump) {
  Places out;
  for (const auto& p : dump.places()) out.emplace(std::pair(p.step, p.rank), &p);
  return out;
}

const Dump::Place* find_place(const Places& places, const Dump::Place& like) {
  const auto found = places.find({like.step, like.rank});
  return found == places.end() ? nullptr : found->second;
}

bool wanted(const Dump::Place& place, const CompareOptions& options) {
  if (!options.rank.empty() && place.rank != options.rank) return false;
  return options.steps.empty() || std::find(options.steps.begin(), options.steps.end(), place.step) != options.steps.end();
}

void note_missing(const Dump& here, const Dump& there, const char* side, const CompareOptions& options, DumpComparison& out) {
  std::vector<std::string> missing;
  const auto others = places_of(there);
  for (const auto& p : here.places())
    if (wanted(p, options) && find_place(others, p) == nullptr)
      missing.push_back(std::to_string(p.step) + (p.rank == "rank0" ? "" : "/" + p.rank));
  if (!missing.empty())
    out.notes.push_back("only " + std::string(side) + " has step " + join(missing) +
                        ": the other run was shorter, was killed, or dumped other steps");
}

void note_facts(const DumpStep& a, const DumpStep& b, DumpComparison& out) {
  for (const auto& [key, value] : a.facts) {
    const auto other = b.facts.find(key);
    if (key == "step" || key == "loss_scale" || other == b.facts.end() || other->second == value) continue;
    out.notes.push_back(key + ": " + value + " and " + other->second);
  }
}

}  // namespace

DumpComparison compare_dumps(const std::filesystem::path& path_a, const std::filesystem::path& path_b, const CompareOptions& options) {
  check(options.sample > 0 && options.sample <= 1, ErrorKind::Usage, "compare", "a sample of ", options.sample,
        "; allowed: above 0, up to 1");
  const auto a = Dump::open(path_a), b = Dump::open(path_b);
  std::optional<Dump> reference;
  if (!options.reference.empty()) reference = Dump::open(options.reference);
  DumpComparison out;
  out.a = path_a.string();
  out.b = path_b.string();
  out.reference = options.reference.string();
  out.sampled = options.sample < 1 || !options.layers.empty();
  note_missing(a, b, "A", options, out);
  note_missing(b, a, "B", options, out);
  for (const auto* dump : {&a, &b})
    for (const auto& place : dump->places()) out.sampled |= !wanted(place, options);  // --steps or --rank chose a part
  out.complete = out.notes.empty();
  int64_t compared = 0, without_form = 0;
  bool first = true;
  const auto in_b = places_of(b), in_reference = reference ? places_of(*reference) : Places();
  for (const auto& place : a.places()) {
    const auto* other = find_place(in_b, place);
    if (other == nullptr || !wanted(place, options)) continue;
    const auto step_a = read_dump_step(place), step_b = read_dump_step(*other);
    std::optional<DumpStep> step_r;
    if (reference) {
      const auto* r = find_place(in_reference, place);
      if (r != nullptr)
        step_r = read_dump_step(*r);
      else
        out.notes.push_back("step " + std::to_string(place.step) + ": not in the reference; compared without it");
    }
    if (first) {
      out.facts_a = step_a.facts;
      out.facts_b = step_b.facts;
      note_facts(step_a, step_b, out);
      first = false;
    }
    StepComparer comparer(step_a, step_b, step_r ? &*step_r : nullptr, options);
    auto step = comparer.run(out.bytes);
    const bool equal_environments = same_environment(step_a, step_b);
    if (!equal_environments && !reference && !options.exact && !given_tolerance(options)) detail::forgive_rounding(step, step_a);
    compared += comparer.tensors();
    without_form += step.not_compared;
    out.complete &= step.one_sided == 0 && step.not_compared == 0 && step_a.complete && step_b.complete;
    out.sampled |= is_sample(step_a) || is_sample(step_b);
    for (const auto* s : {&step_a, &step_b})
      if (!s->complete) step.notes.push_back((s->folder / "dump.json").string() + ": cut short; compared up to its last whole call");
    out.agrees &= step.failed == 0;
    if (!out.first.found) out.first = detail::first_divergence(step, step_a, step_b, equal_environments);
    out.steps.push_back(std::move(step));
  }
  check(!out.steps.empty(), ErrorKind::Data, "compare", out.a, " and ", out.b, ": no step",
        options.steps.empty() ? "" : " of those asked for", " is in both; ", out.notes.empty() ? "" : out.notes.front());
  check(compared > 0, ErrorKind::Data, "compare", out.a, " and ", out.b, ": no value of one could be compared with one of the other",
        !options.layers.empty() ? " among those that --layers chose"
        : without_form > 0      ? ": they have no common form (values, statistics or checksum)"
                                : "; are they of the same network? hint: --mapping FILE pairs other names");
  return out;
}

}  // namespace npu_train
