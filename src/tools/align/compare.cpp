#include "npu_train/tools/align/compare.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/tools/align/dumper.hpp"
#include "tools/align/dump_places.hpp"
#include "tools/align/step_comparer.hpp"
#include "tools/align/update_check.hpp"

namespace npu_train {
namespace {

// Whether two steps have the same facts. Facts of the first list must also be known, since older dumps and those of msprobe may lack them.
// Facts of the second list may be missing on both sides, since most programs have no such options.
bool same_environment(const DumpStep& a, const DumpStep& b) {
  for (const char* fact : {"version", "libtorch", "device", "precision", "threads", "cpu"})
    if (detail::fact_of(a, fact).empty() || detail::fact_of(a, fact) != detail::fact_of(b, fact)) return false;
  for (const char* fact : {"fused_kernels", "memory_format", "cpu_low_precision", "mkldnn", "deterministic"})
    if (detail::fact_of(a, fact) != detail::fact_of(b, fact)) return false;
  return true;
}

// Whether the caller has set a tolerance, which is then applied literally.
bool given_tolerance(const CompareOptions& options) { return options.atol || options.rtol || !options.layer_tolerance.empty(); }

bool is_sample(const DumpStep& step) {
  const auto part = [&](const char* fact) {
    const auto share = detail::fact_of(step, fact);
    return !share.empty() && decimal_number(share).value_or(0) < 1;
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
  out.lone_steps += static_cast<int64_t>(missing.size());
  if (!missing.empty())
    out.notes.push_back("only " + std::string(side) + " has step " + join(missing) +
                        ": the other run was shorter, was killed, or dumped different steps");
}

void note_facts(const DumpStep& a, const DumpStep& b, DumpComparison& out) {
  for (const auto& [key, value] : a.facts) {
    const auto other = b.facts.find(key);
    if (key == "step" || key == "loss_scale" || other == b.facts.end() || other->second == value) continue;
    out.notes.push_back(key + ": " + value + " and " + other->second);
  }
}

// Lists steps by rank, "0, 1 of rank0"; abbreviated if there are many.
std::string places_text(const Dump& dump) {
  constexpr size_t kMost = 10;
  std::map<std::string, std::vector<std::string>> by_rank;
  for (const auto& p : dump.places()) by_rank[p.rank].push_back(std::to_string(p.step));
  std::vector<std::string> out;
  for (auto& [rank, steps] : by_rank) {
    if (out.size() == kMost) {
      out.emplace_back("...");
      break;
    }
    if (steps.size() > kMost) steps = {steps[0], steps[1], steps[2], "...", steps.back()};
    out.push_back(join(steps) + " of " + rank);
  }
  return join(out, "; ");
}

// Results of one step that the next step needs.
struct Judged {
  Judged() = default;
  explicit Judged(const StepComparison& compared) : step(compared.step) {
    for (const auto& call : compared.calls)
      if (call.layer.starts_with("optimizer")) weight_error = std::max({weight_error, call.parameter_error, compared.earlier_error});
  }
  // Returns the error of the weights before step `next`; kUnknownDrift if `next` does not follow this step or the weights were not
  // compared.
  double drift(int64_t next) const { return next == step + 1 && weight_error >= 0 ? weight_error : kUnknownDrift; }

  int64_t step = 0;
  double weight_error = -1;

 private:
  static constexpr double kUnknownDrift = 0.1;
};

class DumpComparer {
 public:
  DumpComparer(const std::filesystem::path& a, const std::filesystem::path& b, const CompareOptions& options)
      : options_(options), whole_(options), a_(Dump::open(a)), b_(Dump::open(b)) {
    whole_.sample_elements = 1;
    if (!options.reference.empty()) reference_ = Dump::open(options.reference);
    out_.a = a.string();
    out_.b = b.string();
    out_.reference = options.reference.string();
    out_.sampled = options.sample < 1 || options.sample_elements < 1 || !options.layers.empty();
  }

  DumpComparison run() {
    note_missing(a_, b_, "A", options_, out_);
    note_missing(b_, a_, "B", options_, out_);
    for (const auto* dump : {&a_, &b_})
      for (const auto& place : dump->places()) out_.sampled |= !wanted(place, options_);  // --steps or --rank selects a part
    out_.complete = out_.notes.empty();
    const auto in_b = places_of(b_), in_reference = reference_ ? places_of(*reference_) : Places();
    for (const auto& place : a_.places()) {
      const auto* other = find_place(in_b, place);
      if (other == nullptr || !wanted(place, options_)) continue;
      std::optional<DumpStep> reference;
      if (const auto* r = find_place(in_reference, place); r != nullptr) reference = read_dump_step(*r);
      if (reference_ && !reference)
        out_.notes.push_back("step " + std::to_string(place.step) + ": not in the reference; compared without it");
      compare(read_dump_step(place), read_dump_step(*other), reference ? &*reference : nullptr);
    }
    check_compared();
    check_reference();
    detail::tell_unknown(unknown_, options_, out_);
    detail::tell_unused_tolerances(options_, out_);
    out_.agrees &= out_.judged() > 0;
    out_.first.within_tolerance &= out_.agrees;  // a difference within the tolerance in one step may exceed it in the next
    if (out_.first.within_tolerance) out_.first.likely.clear(), out_.first.advice.clear();  // the runs agree
    return std::move(out_);
  }

 private:
  void compare(const DumpStep& a, const DumpStep& b, const DumpStep* reference) {
    if (out_.steps.empty()) {
      out_.facts_a = a.facts;
      out_.facts_b = b.facts;
      note_facts(a, b, out_);
    }
    const bool equal_environments = same_environment(a, b);
    const bool forgiving = !equal_environments && !reference_ && !options_.exact && !given_tolerance(options_);
    const auto compared_with = [&](const CompareOptions& options) {
      return std::make_unique<detail::StepComparer>(a, b, reference, options, forgiving ? &noise_ : nullptr);
    };
    // The state to restore if the step is compared again below, which happens only with a sample of the elements.
    using Followed = std::pair<decltype(noise_), decltype(updates_)>;
    const auto before = options_.sample_elements < 1 ? std::optional<Followed>({noise_, updates_}) : std::nullopt;
    auto comparer = compared_with(options_);
    auto step = judged(*comparer, a, b, equal_environments, forgiving);
    // The sample of one value may miss a few large differences, as at a kink of a ReLU, although the sample of the next value contains
    // them. So a failure in samples counts only if all elements confirm it.
    if (before && step.failed > 0) {
      std::tie(noise_, updates_) = *before;
      comparer = compared_with(whole_);
      step = judged(*comparer, a, b, equal_environments, forgiving);
    }
    detail::tell_unproven(step);
    compared_ += comparer->tensors();
    no_calls_ |= a.calls.empty() || b.calls.empty();
    without_form_ += step.not_compared;
    out_.complete &= step.one_sided == 0 && step.not_compared == 0 && a.complete && b.complete;
    out_.sampled |= is_sample(a) || is_sample(b);
    for (const auto* s : {&a, &b})
      if (!s->complete && s->calls.empty()) cut_ = detail::description_in(s->folder).string();
    for (const auto* s : {&a, &b})
      if (!s->complete)
        step.notes.push_back(detail::description_in(s->folder).string() + ": truncated; compared up to its last complete call");
    detail::fail_unproven(step, a, b);
    out_.agrees &= step.failed == 0;
    const bool unread = out_.first.found && out_.first.cause == Divergence::Cause::Unreadable;
    const bool nothing_yet = !out_.first.found || (out_.first.within_tolerance && step.unproven + step.unreadable > 0) ||
                             (unread && step.failed > step.unreadable);
    if (nothing_yet) out_.first = detail::first_divergence(step, a, b, {equal_environments, reference_.has_value()});
    if (out_.steps.empty())
      unknown_ = comparer->unknown_names();
    else
      std::erase_if(unknown_, [&](const auto& name) { return comparer->unknown_names().count(name) == 0; });
    const auto& use = comparer->reference_use();
    use_.values += use.values, use_.missing += use.missing, use_.not_finite += use.not_finite;
    if (use_.first_not_finite.empty()) use_.first_not_finite = use.first_not_finite;
    judged_[step.rank] = Judged(step);
    out_.steps.push_back(std::move(step));
  }

  // Compares and judges the values of a step.
  StepComparison judged(detail::StepComparer& comparer, const DumpStep& a, const DumpStep& b, bool equal_environments, bool forgiving) {
    const auto before = judged_.find(a.rank);
    auto step = comparer.run(out_.bytes, before == judged_.end() ? 0 : before->second.drift(a.step));
    if (const auto drift = forgiving ? updates_[a.rank].judge(step) : std::nullopt) step.earlier_error = *drift;
    // differences in steps after a fault are consequences of the fault, not rounding
    const bool unread = out_.first.found && out_.first.cause == Divergence::Cause::Unreadable;
    const bool faulty = out_.first.found && !unread && out_.first.step < step.step;
    // a reference cannot show that the output of a fused kernel is the value at another place of the network
    if ((forgiving || (reference_ && !equal_environments)) && !faulty)
      detail::forgive_rounding(step, a, b, {.later = before != judged_.end(), .places_only = !forgiving, .strict = options_.strict});
    return step;
  }

  void check_compared() const {
    check(!out_.steps.empty(), ErrorKind::Data, "compare", out_.a, " and ", out_.b, ": no step",
          options_.steps.empty() && options_.rank.empty() ? "" : " among those requested", " is in both; A has ", places_text(a_),
          ", B has ", places_text(b_));
    check(compared_ > 0, ErrorKind::Data, "compare", out_.a, " and ", out_.b, ": no pair of values could be compared",
          !options_.layers.empty() ? detail::chosen_layers_text(options_)
          : !cut_.empty()          ? "; " + cut_ + " is truncated before the end of its first call"
          : no_calls_              ? ": one of them contains no call; its run was killed before the first, or dumped nothing"
          : without_form_ > 0      ? ": they have no common kind of data (values, statistics or checksums)"
                                   : "; hint: they must be of the same network; --mapping FILE pairs different names");
  }

  // Rejects a reference run of another network; a few values without a counterpart are accepted.
  void check_reference() {
    if (!reference_) return;
    check(use_.missing * 4 <= use_.values, ErrorKind::Usage, "compare", "--reference ", out_.reference, ": ", with_commas(use_.missing),
          " of ", with_commas(use_.values),
          " values have no counterpart of the same shape in it; allowed: a run of the same network and batch");
    check(use_.not_finite == 0, ErrorKind::Usage, "compare", "--reference ", out_.reference, ": ", with_commas(use_.not_finite),
          " of its values are not finite although those of both runs are, the first ", use_.first_not_finite,
          "; allowed: a run in fp32 that did not overflow");
    if (use_.missing > 0)
      out_.notes.push_back(with_commas(use_.missing) + " of " + with_commas(use_.values) +
                           " values have no counterpart in the reference; compared without it");
  }

  const CompareOptions& options_;
  CompareOptions whole_;  // the same options, but for all elements
  Dump a_, b_;
  std::optional<Dump> reference_;
  DumpComparison out_;
  detail::NoiseSteps noise_;
  std::string cut_;                           // path of a truncated dump.json that contains no complete call
  detail::StepComparer::ReferenceUse use_{};  // counts over all steps
  std::set<std::string> unknown_;             // names of the mapping that no step so far contains
  std::map<std::string, Judged> judged_;      // by rank: the previous step
  std::map<std::string, detail::UpdateCheck> updates_;
  int64_t compared_ = 0, without_form_ = 0;
  bool no_calls_ = false;
};

}  // namespace

std::string detail::chosen_layers_text(const CompareOptions& options) {
  return " among those that --layers " + options.layers +
         " selects; allowed: last, sensitive, a part of a call's name (conv1), or a pattern (layer1.*)";
}

void detail::tell_unknown(const std::set<std::string>& unknown, const CompareOptions& options, DumpComparison& out) {
  if (unknown.empty()) return;
  check(unknown.size() < 2 * options.mapping.size(), ErrorKind::Usage, "compare",
        "--mapping: A and B have none of its names: ", join({unknown.begin(), unknown.end()}, "; "),
        "; allowed: layers (layer1.0.conv1), complete calls of dumps, tensors of checkpoints");
  for (const auto& name : unknown) {
    log_warning("compare: --mapping names ", name);
    out.notes.push_back("--mapping names " + name);
  }
}

void detail::tell_unproven(StepComparison& step) {
  const auto tell = [&](const std::string& what) {
    const auto text = "not proven in this part: " + what;
    log_warning("compare: step ", step.step, ": ", text);
    step.notes.push_back(text);
  };
  if (!step.unproven_places.empty())
    tell(join({step.unproven_places.begin(), step.unproven_places.end()}) +
         " differ like a norm that one side fuses with the shortcut and ReLU after it, and no later layer is compared that would prove it; "
         "nothing else differs. Its values are not judged; with --strict they count as differences. Also compare the layers after it, or "
         "run "
         "both with model.fused_kernels: false");
  if (step.unproven_update)
    tell(
        "the optimizer's step differs by more than the compared gradients, and other gradients are not compared; nothing else differs. "
        "Values beyond their tolerance are not judged. Also compare the other gradients");
}

void detail::tell_unused_tolerances(const CompareOptions& options, DumpComparison& out) {
  for (const auto& [pattern, tolerance] : options.layer_tolerance) {
    const auto fits = [&, &name = pattern](const CallComparison& call) { return call_matches(call.a, name); };
    if (std::any_of(out.steps.begin(), out.steps.end(),
                    [&](const auto& step) { return std::any_of(step.calls.begin(), step.calls.end(), fits); }))
      continue;
    const auto text = "--tolerance " + pattern + " matches no compared layer or call";
    log_warning("compare: ", text);
    out.notes.push_back(text);
  }
}

void detail::check_options(const CompareOptions& options) {
  for (const auto& [share, of] : {std::pair(options.sample, "layers"), std::pair(options.sample_elements, "elements")})
    check(share > 0 && share <= 1, ErrorKind::Usage, "compare", "the sample of ", of, " is ", share,
          "; allowed: more than 0 and at most 1");
  check(options.proportion > 0 && std::isfinite(options.proportion), ErrorKind::Usage, "compare", "the proportion is ", options.proportion,
        "; allowed: more than 0; 1 requires an error no larger than that of the other run");
  const auto tolerance = [](double value, const std::string& name) {
    check(value >= 0 && std::isfinite(value), ErrorKind::Usage, "compare", name, " ", value, "; allowed: a number of 0 or more");
  };
  tolerance(options.atol.value_or(0), "atol");
  tolerance(options.rtol.value_or(0), "rtol");
  for (const auto& [pattern, t] : options.layer_tolerance) tolerance(t.atol, "atol of " + pattern), tolerance(t.rtol, "rtol of " + pattern);
}

double DumpComparison::judged() const {
  int64_t compared = 0, open = 0;
  for (const auto& step : steps) compared += step.compared, open += step.not_judged;
  return compared > 0 ? 1 - static_cast<double>(open) / static_cast<double>(compared) : 1;
}

DumpComparison compare_dumps(const std::filesystem::path& a, const std::filesystem::path& b, const CompareOptions& options) {
  detail::check_options(options);
  return DumpComparer(a, b, options).run();
}

}  // namespace npu_train
