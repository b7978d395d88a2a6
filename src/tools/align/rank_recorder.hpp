// Writes rank.json for each dumped step and each rank; compare --ranks reads it.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/base/step_observer.hpp"
#include "npu_train/tools/align/dumper.hpp"
#include "tools/align/rank_notes.hpp"

namespace npu_train {
class Optimizer;
class Precision;
class Ranks;
}  // namespace npu_train

namespace npu_train::detail {

// Observes a run of several ranks. Every rank has a recorder, even if it writes no dump, because the recorder takes part in a sum of known
// values over ranks.
class RankRecorder final : public StepObserver {
 public:
  // `options.dir` must be set; all other arguments are borrowed. `parameters`: the parameters of the model.
  RankRecorder(DumpOptions options, Ranks& ranks, const ParameterSet& parameters, const Optimizer& optimizer, const Precision* precision);
  ~RankRecorder() override { remove_hooks(); }
  RankRecorder(const RankRecorder&) = delete;
  RankRecorder& operator=(const RankRecorder&) = delete;

  void on_loss(const at::Tensor& loss, int64_t attempt, int micro_batch) override;
  void on_batch(const Batch& batch, int64_t attempt, int micro_batch) override;
  void phase_begin(Phase phase, int64_t attempt, int micro_batch) override;
  void phase_end(Phase phase, int64_t attempt, int micro_batch) override;
  void phase_error(Phase phase, int64_t attempt, int micro_batch, std::exception_ptr error) override;

 private:
  void begin(int64_t attempt);
  void remove_earlier(int64_t attempt) const;
  void watch_gradients();
  void remove_hooks();
  void reduced();
  void clipped();
  void end();
  RankParameter* parameter(const std::string& name);

  DumpOptions options_;
  StepRanges steps_;
  Ranks& ranks_;
  const ParameterSet& parameters_;
  const Optimizer& optimizer_;
  const Precision* precision_;
  bool begun_ = false, open_ = false;  // begun_: the first recorded step has begun; open_: a step is in progress
  RankNotes notes_;
  std::map<std::string, size_t> index_;                 // index into notes_.parameters, by name
  std::vector<std::pair<at::Tensor, unsigned>> hooks_;  // hooks of the parameters
  std::mutex mutex_;                                    // hooks run in autograd's threads
};

}  // namespace npu_train::detail
