#include "train/callbacks/window_source.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"

namespace npu_train::detail {

void WindowSource::begin_epoch(int64_t epoch, int64_t position) {
  held_.reset();
  whole_ = position == 0;
  taken_ = 0;
  if (overfit_.enabled())
    overfit_.fill(*run_.loader);
  else
    run_.loader->begin_epoch(epoch, position);
}

// Returns the number of micro-batches in an epoch; for a stream with a limit, the maximum.
std::optional<int64_t> WindowSource::length() const {
  if (run_.loader == nullptr) return std::nullopt;
  const auto data = run_.loader->micro_batches_per_epoch();
  const auto rounds = limited_rounds(run_.options, std::nullopt);
  if (!rounds) return data;
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 2;
  const auto limit = std::min(*rounds, kMost / ranks()) * ranks();
  return std::min(data.value_or(limit), limit);
}

// Returns whether every rank knows when the epoch ends. A stream, and data that a program divides among its ranks, may end at any point.
bool WindowSource::length_is_agreed() const { return ranks() == run_.ranks.size() && run_.loader->micro_batches_per_epoch().has_value(); }

// Returns the next batch of this rank in [begin, end).
std::optional<Batch> WindowSource::next_batch(int64_t begin, int64_t end) {
  if (overfit_.enabled()) {
    auto batch = overfit_.first_from(begin);
    return batch && batch->index < end ? batch : std::nullopt;
  }
  if (!held_ && run_.loader->cursor() < end) held_ = run_.loader->next();
  return held_ && held_->index < end ? std::exchange(held_, std::nullopt) : std::nullopt;
}

std::vector<Batch> WindowSource::take(int64_t& position, double& data_wait) {
  const auto full = position + micro_batches_per_window(), end = std::min(full, std::max(position, length().value_or(full)));
  std::vector<Batch> window;
  for (int64_t k = 0; k < run_.options.accumulate_grad_batches; ++k) {
    const auto start = run_.clock.now();
    const auto begin = window.empty() ? position : window.back().index + 1;
    auto batch = run_.observers.run(Phase::DataWait, run_.step.attempts(), static_cast<int>(k), [&] { return next_batch(begin, end); });
    data_wait += run_.clock.now() - start;
    if (!batch) break;
    window.push_back(std::move(*batch));
    ++taken_;
    run_.memory.copy_newest(window, run_.options.accumulate_grad_batches);
  }
  position = end;
  return window;
}

std::optional<std::vector<Batch>> WindowSource::next(int64_t& position, double& data_wait) {
  for (;;) {
    const bool agreed = length_is_agreed();
    if (agreed && finished(position)) {
      // makes the loader report, at its end, the samples that it omitted
      if (!overfit_.enabled() && position >= *run_.loader->micro_batches_per_epoch()) run_.loader->next();
      return std::nullopt;
    }
    auto window = take(position, data_wait);
    if (agreed && !run_.loader->options().skip_bad_samples) return window;  // at least one rank has a batch
    if (run_.ranks.any(!window.empty())) return window;
    if (!agreed && !run_.ranks.any(held_.has_value())) {
      if (whole_) report_unequal_parts();
      return std::nullopt;
    }
  }
}

// Warns if the ranks have unequal parts of the data. A stream may deal out complete files, which need not have equal numbers of samples; a
// difference of one batch is usual. Not called in a resumed epoch, whose remaining batches give no information about the parts. All ranks
// resume at the same position, so either all or none of them call this function.
void WindowSource::report_unequal_parts() const {
  std::vector<double> batches(static_cast<size_t>(run_.ranks.size()));
  batches[static_cast<size_t>(run_.ranks.rank())] = static_cast<double>(taken_);
  batches = run_.ranks.sums(std::move(batches));
  const auto [fewest, most] = std::minmax_element(batches.begin(), batches.end());
  if (!run_.ranks.is_main() || *most - *fewest <= 1) return;
  log_warning("the ranks have unequal parts of the training data: in this epoch, rank ", fewest - batches.begin(),
              " had the fewest batches (", static_cast<int64_t>(*fewest), ") and rank ", most - batches.begin(), " the most (",
              static_cast<int64_t>(*most), "); at the end of an epoch, ranks without a batch are idle");
}

std::optional<int64_t> WindowSource::windows_per_epoch() const {
  const auto micro_batches = length();
  if (!micro_batches) return std::nullopt;
  return (*micro_batches + micro_batches_per_window() - 1) / micro_batches_per_window();
}

// Subtracts the remaining windows from the windows of the epoch, because windows before a resume with another number of ranks were larger
// or smaller.
int64_t WindowSource::windows_done(int64_t position) const {
  const auto windows = [&](int64_t micro_batches) { return (micro_batches + micro_batches_per_window() - 1) / micro_batches_per_window(); };
  const auto all = length();
  return all ? windows(*all) - windows(std::max<int64_t>(0, *all - position)) : windows(position);
}

std::optional<int64_t> WindowSource::windows_between_validations() const {
  const auto interval = parse_val_check_interval(run_.options.val_check_interval);
  if (interval.steps > 0 || interval.fraction == 1) return interval.steps;
  const auto all = length_is_agreed() ? windows_per_epoch() : std::nullopt;
  if (!all) return std::nullopt;
  return std::max<int64_t>(1, static_cast<int64_t>(interval.fraction * static_cast<double>(*all)));
}

bool WindowSource::validation_is_due(int64_t position) const {
  const auto every = windows_between_validations().value_or(0);
  if (every == 0 || position == 0 || run_.options.fast_dev_run) return false;
  if (!length_is_agreed()) return (position / micro_batches_per_window()) % every == 0;  // only the position is equal on every rank
  return !finished(position) && windows_done(position) % every == 0;
}

void WindowSource::check_validations() const {
  constexpr const char* kKey = "trainer.val_check_interval";
  const auto& given = run_.options.val_check_interval;
  if (run_.loader == nullptr) return;
  const auto every = windows_between_validations();
  check(every.has_value(), ErrorKind::Usage, kKey, given,
        " is a share of an epoch, whose length is not known for this data; allowed: a number of "
        "steps");
  const auto all = length_is_agreed() ? windows_per_epoch() : std::nullopt;
  check(!all || *every <= *all || run_.options.fast_dev_run, ErrorKind::Usage, kKey, given, " steps, and an epoch has ", all.value_or(0),
        "; allowed: at most as many; hint: a fraction such as 0.5, or trainer.check_val_every_n_epoch for several epochs");
}

}  // namespace npu_train::detail
