#include "train/callbacks/shared_save.hpp"

#include <chrono>
#include <exception>
#include <filesystem>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "train/host_copy.hpp"

namespace npu_train::detail {
namespace {

// First character of the message with which a rank reports its result.
constexpr char kWritten = '+', kFailed = '-';

}  // namespace

void SharedSave::begin(std::unique_ptr<CheckpointFolder> folder, const RunState& state, const StateSlices& slices, const ConfigNode& config,
                       bool async) {
  folder_ = std::move(folder);
  const auto place = ranks_.from_main(folder_ != nullptr ? std::filesystem::absolute(folder_->temporary()).string() : "");
  copied_ = async;
  if (async) {
    copy_to_host(state, state_);
    copy_to_host(slices, slices_);
  } else {
    state_ = state;
    slices_ = slices;
  }
  part_ = std::async(async ? std::launch::async : std::launch::deferred, [this, place, config, run = log_run()] {
    const ScopedLogRun scope(run);
    if (folder_ != nullptr) folder_->write(state_, config);
    return write_slices(place, ranks_.rank(), slices_);
  });
}

bool SharedSave::is_writing() const { return part_.valid() && part_.wait_for(std::chrono::seconds(0)) == std::future_status::timeout; }

std::unique_ptr<CheckpointFolder> SharedSave::finish() {
  std::string told;
  std::exception_ptr failure;
  try {
    told = kWritten + part_.get();
  } catch (const std::exception& e) {
    failure = std::current_exception();
    told = kFailed + std::string(e.what());
  }
  if (!copied_) {  // without a copy, these are the run's own tensors
    state_.clear();
    slices_.clear();
  }
  auto folder = std::move(folder_);
  const auto of_ranks = ranks_.gather(told);
  if (failure != nullptr) std::rethrow_exception(failure);
  for (size_t r = 0; r < of_ranks.size(); ++r)
    if (of_ranks[r].starts_with(kFailed))
      throw Error(ErrorKind::Checkpoint, "Checkpoint",
                  str_cat("rank ", r, " could not write its part of a checkpoint: ", of_ranks[r].substr(1)),
                  "no part of this checkpoint is kept");
  if (folder != nullptr)
    for (const auto& index : of_ranks) folder->add_slices(index.substr(1));
  return folder;
}

}  // namespace npu_train::detail
