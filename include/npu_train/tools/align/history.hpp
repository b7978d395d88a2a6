/// Loss curves of two runs, whoever wrote them: do they agree, from which step on do they not, and what may be behind it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace npu_train {

/// Which columns of a log are meant. "" looks for the names that programs use, in any case: step, global_step, iter, iteration, it,
/// _step, batch, epoch ...; loss, train_loss, train/loss, training_loss, loss/train ...; lr, learning_rate, lr-SGD, train/lr ...
struct HistoryColumns {
  std::string step{}, loss{}, lr{};
};

/// Reads "step=iter,loss=train_loss". Error(Usage) for anything else.
HistoryColumns parse_history_columns(const std::string& text);

/// What is read of a log that has both: our metrics.csv.
enum class HistoryRows { Steps, Epochs };

/// The training steps of one run that have a loss.
struct History {
  std::string source;
  HistoryColumns columns;                             ///< the names that were found; "" where there is none
  std::vector<int64_t> step;                          ///< rising, each once
  std::vector<double> loss;                           ///< as many; NaN and infinities as they were logged
  std::vector<double> lr;                             ///< as many, NaN where not logged; empty without such a column
  std::map<std::string, std::vector<double>> others;  ///< every other column of numbers; as many, NaN where not logged
  bool of_epochs = false;                             ///< the losses are means of whole epochs
  bool of_end = false;             ///< the one loss is that of the validation at the run's end, which ended in its first epoch
  std::vector<int64_t> skipped;    ///< our metrics.csv: steps taken before each attempt that was skipped
  std::vector<std::string> notes;  ///< what was left out, put in order or cut short
};

/// Reads a log, known by its content:
///
///   CSV             with a header, separated by commas, semicolons (with decimal points or commas) or tabs; blank cells were not measured
///   JSON            an array of objects; an object of arrays; an object with such a list as log_history (trainer_state.json of Hugging
///                   Face), history (Keras), epochs (our history.json) or logs; nested objects become names with a slash ("train/loss")
///   JSON lines      one object a line
///   a run's folder  its metrics.csv, history.json or trainer_state.json
///
/// Where a column phase, mode or split says "train" in some rows, the others are left out; `rows` asks for those of "epoch" instead, which
/// are taken too where there is no other. Our history.json of a run that ended in its first epoch has the loss of the validation at its
/// end. Values of one step in several rows are put together, the last counts; rows out of order are sorted. Steps that begin anew with each
/// epoch are made to go on. A file that was cut short is read up to its last whole row. All of this is noted. Error(Data): no such file; no
/// column of steps or losses (the message names those that are there); steps that are no integers; no row.
History read_history(const std::filesystem::path& path, const HistoryColumns& columns = {}, HistoryRows rows = HistoryRows::Steps);

/// When two curves count as the same.
///
/// Differences are relative to B: |a - b| / max(|b|, 0.01 * level), `level` being the larger of B's first and median |loss|, so that the
/// noise of losses that are nearly 0 does not decide. The rule of the field, used to accept a port of a training to other hardware: the
/// mean of these over all steps is at most 2 %. It is asked of the last quarter alone too, where errors have added up.
struct HistoryOptions {
  double mean_rtol = 0.02;  ///< of the mean over all common steps, and of that over the last quarter; these two decide
  double step_rtol = 0.05;  ///< of one step; tells where curves part, decides nothing: single batches scatter once weights differ
  double lr_rtol = 1e-6;    ///< of a learning rate to the larger of the two; they are computed and do not scatter, so each one decides
  int64_t shift = 0;        ///< added to the steps of B: 1 where B counts from 0 and A from 1
};

struct HistoryRow {
  int64_t step = 0;
  double loss_a = 0, loss_b = 0;
  double absolute = 0;        ///< |a - b|; 0 for the same infinity or two NaN, inf where one side is not finite
  double relative = 0;        ///< see HistoryOptions
  double lr_a = 0, lr_b = 0;  ///< NaN where not logged
};

/// Two curves, aligned by step.
struct HistoryComparison {
  std::string a, b;
  std::vector<HistoryRow> rows;             ///< steps of both
  std::vector<int64_t> only_a, only_b;      ///< steps of one side only
  double mean_relative = 0;                 ///< over the rows that are finite on both sides; NaN without one
  double last_quarter_relative = 0;         ///< the same over the last quarter of all rows
  double max_relative = 0;                  ///< inf where one side is not finite
  int64_t max_step = 0;                     ///< where
  double last_mean_a = 0, last_mean_b = 0;  ///< mean losses of the last quarter
  std::optional<int64_t> first_unequal;     ///< first step that is not equal in all digits
  std::optional<int64_t> first_beyond;      ///< first step beyond step_rtol
  std::optional<int64_t> diverged;          ///< the step from which on at least nine in ten are beyond step_rtol, up to the last
  std::optional<int64_t> first_not_finite;  ///< first step where one side alone is not finite
  std::optional<int64_t> first_unproven;    ///< first step where neither side is finite
  std::optional<int64_t> first_lr;          ///< first step whose learning rates differ
  bool lr_compared = false;                 ///< both log it
  /// Both means are within mean_rtol, every loss is finite on both sides (what is NaN in both proves nothing) and every learning rate that
  /// both log is the same.
  bool agrees = true;
  bool complete = true;                     ///< both have the same steps; else agreement is that of `rows`
  std::vector<std::string> sentences;       ///< what was seen, the most important first
  std::vector<std::string> likely, advice;  ///< causes, and for each what to try
  std::vector<std::string> notes;           ///< of reading, and of steps that one side has alone
};

/// Error(Usage) for options that are not positive; Error(Data) when no step is in both.
HistoryComparison compare_histories(const History& a, const History& b, const HistoryOptions& options = {});

}  // namespace npu_train
