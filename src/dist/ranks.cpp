#include "npu_train/dist/ranks.hpp"

#include <utility>

#include "npu_train/dist/process_group.hpp"

namespace npu_train {
namespace {

class GroupRanks final : public Ranks {
 public:
  explicit GroupRanks(std::shared_ptr<ProcessGroup> group) : group_(std::move(group)) {}

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  std::vector<double> sums(std::vector<double> own) override {
    std::vector<double> out(own.size());
    for (const auto& of_rank : group_->gather("sums", own))
      for (size_t i = 0; i < out.size(); ++i) out[i] += of_rank[i];
    return out;
  }
  std::string from_main(std::string own) override { return group_->gather("from_main", is_main() ? own : std::string())[0]; }
  std::vector<std::string> gather(const std::string& own) override { return group_->gather("gather", own); }
  at::Tensor gather(const at::Tensor& own) override { return group_->gather("gather", own); }
  void main_first(const std::function<void()>& work) override { group_->main_first(work); }
  void barrier() override { group_->barrier("barrier"); }
  void abandon() noexcept override { group_->abandon(); }

 private:
  std::shared_ptr<ProcessGroup> group_;
};

}  // namespace

std::unique_ptr<Ranks> make_ranks(std::shared_ptr<ProcessGroup> group) { return std::make_unique<GroupRanks>(std::move(group)); }

}  // namespace npu_train
