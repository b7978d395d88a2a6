#include "train/callbacks/rollback.hpp"

#include "npu_train/core/log.hpp"

namespace npu_train::detail {

std::string Rollback::target(const CheckpointStore* store) const {
  if (!enabled_ || done_ >= kMost) return "";
  return ranks_.from_main(store != nullptr && ranks_.is_main() ? store->newest_valid() : "");
}

void Rollback::diverged(const Divergence::Finding& found, const CheckpointStore* store, const std::function<std::string()>& keep) const {
  const auto where = target(store).empty() ? ranks_.from_main(keep()) : "";
  throw Error(ErrorKind::Diverged, "Trainer",
              "training diverged: " + found.cause + (where.empty() ? "" : "; the broken state is in " + where), found.remedy);
}

bool Rollback::run(const Error& cause, const CheckpointStore* store, LearningRate& rate,
                   const std::function<void(const std::string& path)>& load) {
  const auto path = target(store);
  if (path.empty()) return false;
  const auto done = done_ + 1;
  const auto factor = rate.factor() * 0.1;
  if (ranks_.is_main()) log_warning(cause.what(), "; rolling back to ", path, " with the learning rate times ", factor);
  load(path);
  done_ = done;
  rate.set_factor(factor);
  return true;
}

}  // namespace npu_train::detail
