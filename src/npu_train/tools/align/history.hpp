/// Compares the loss curves of two runs of any program: whether they agree, from which step on they differ, and the likely cause.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace npu_train {

/// The columns of a log. "" selects a common name in any letter case: step, global_step, iter, iteration, it, _step, batch, epoch ...;
/// loss, train_loss, train/loss, training_loss, loss/train ...; lr, learning_rate, lr-SGD, train/lr ...
struct HistoryColumns {
  std::string step{}, loss{}, lr{};
};

/// Parses "step=iter,loss=train_loss". Error(Usage) for other texts.
HistoryColumns parse_history_columns(const std::string& text);

/// The rows to read from a log that has both kinds, such as our metrics.csv.
enum class HistoryRows { Steps, Epochs };

/// The training steps of one run that have a loss.
struct History {
  std::string source;
  HistoryColumns columns;                             ///< the names that were found; "" if there is none
  std::vector<int64_t> step;                          ///< ascending and unique
  std::vector<double> loss;                           ///< one per step; NaN and infinities as in the log
  std::vector<double> lr;                             ///< one per step, NaN if not logged; empty without such a column
  std::map<std::string, std::vector<double>> others;  ///< all other numeric columns; one value per step, NaN if not logged
  bool of_epochs = false;                             ///< the losses are means over complete epochs
  bool of_end = false;             ///< the only loss is the validation loss at the end of the run, which ended in its first epoch
  std::vector<int64_t> skipped;    ///< for each skipped attempt in our metrics.csv: the number of steps taken before it
  std::vector<std::string> notes;  ///< notes on rows that were omitted, sorted or truncated
};

/// Reads a log. Its content determines the format:
///
///   CSV             with a header, separated by commas, semicolons (with decimal points or commas) or tabs; blank cells were not measured
///   JSON            an array of objects; an object of arrays; an object with such a list as log_history (trainer_state.json of Hugging
///                   Face), history (Keras), epochs (our history.json) or logs; nested objects become names with a slash ("train/loss")
///   JSON lines      one object per line
///   a run's folder  its metrics.csv, history.json or trainer_state.json
///
/// If a column `phase`, `mode` or `split` contains "train" in some rows, the other rows are omitted. HistoryRows::Epochs selects the rows
/// with "epoch" instead; these rows are also used if no row has "train". Our history.json of a run that ended in its first epoch contains
/// only the validation loss at the end of the run. If a step has several rows, they are merged, and the last value counts; rows out of
/// order are sorted. Steps that restart in each epoch are numbered consecutively. A truncated file is read up to its last complete row.
/// `notes` records all of this. Error(Data) if there is no such file, no column of steps or losses (the message lists the existing columns)
/// or no row, and if steps are not integers.
History read_history(const std::filesystem::path& path, const HistoryColumns& columns = {}, HistoryRows rows = HistoryRows::Steps);

/// The condition under which two curves agree.
///
/// Differences are relative to B: |a - b| / max(|b|, 0.01 * level), where `level` is the larger of B's first and median |loss|, so that the
/// noise of losses near 0 does not decide. The usual rule for accepting a port of a training to other hardware is that the mean difference
/// over all steps is at most 2 %. Here, this limit must also hold for the last quarter alone, where errors have accumulated.
struct HistoryOptions {
  double mean_rtol = 0.02;  ///< limit of the mean over all common steps, and of the mean over the last quarter; both decide
  double step_rtol = 0.05;  ///< limit for one step; only shows where curves diverge, since single batches scatter once weights differ
  double lr_rtol = 1e-6;    ///< limit for each step, relative to the larger rate; decides, since rates do not scatter
  int64_t shift = 0;        ///< added to the steps of B: 1 if B counts from 0 and A from 1
};

struct HistoryRow {
  int64_t step = 0;
  double loss_a = 0, loss_b = 0;
  double absolute = 0;        ///< |a - b|; 0 for two equal infinities or two NaN, inf if only one side is finite
  double relative = 0;        ///< see HistoryOptions
  double lr_a = 0, lr_b = 0;  ///< NaN if not logged
};

/// Two curves, aligned by step.
struct HistoryComparison {
  std::string a, b;
  std::vector<HistoryRow> rows;             ///< steps that both have
  std::vector<int64_t> only_a, only_b;      ///< steps of one side only
  double mean_relative = 0;                 ///< mean of HistoryRow::relative over the rows that are finite on both sides; NaN without any
  double last_quarter_relative = 0;         ///< like `mean_relative`, but only over the last quarter of `rows`
  double max_relative = 0;                  ///< inf if only one side is finite at a step
  int64_t max_step = 0;                     ///< step of the maximum
  double last_mean_a = 0, last_mean_b = 0;  ///< mean losses over the same rows as `last_quarter_relative`
  std::optional<int64_t> first_unequal;     ///< first step whose losses are not exactly equal
  std::optional<int64_t> first_beyond;      ///< first step beyond `step_rtol`
  std::optional<int64_t> diverged;          ///< first step from which on at least 9 in 10 steps, up to the end, are beyond `step_rtol`
  std::optional<int64_t> first_not_finite;  ///< first step where only one side is not finite
  std::optional<int64_t> first_unproven;    ///< first step where neither side is finite
  std::optional<int64_t> first_lr;          ///< first step whose learning rates differ
  bool lr_compared = false;                 ///< whether both sides log learning rates
  /// Both means are within `mean_rtol`, all losses are finite on both sides (NaN on both sides proves nothing), and all learning rates that
  /// both sides log are equal.
  bool agrees = true;
  bool complete = true;                     ///< both sides have the same steps; if not, agreement applies to `rows` only
  std::vector<std::string> sentences;       ///< observations, the most important first
  std::vector<std::string> likely, advice;  ///< causes, and a remedy for each
  std::vector<std::string> notes;           ///< notes on reading the logs, and on steps of one side only
};

/// Compares two curves. Error(Usage) for options that are not positive; Error(Data) if there is no common step.
HistoryComparison compare_histories(const History& a, const History& b, const HistoryOptions& options = {});

}  // namespace npu_train
