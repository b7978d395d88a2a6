#include "npu_train/dist/process_group.hpp"

#include "npu_train/core/error.hpp"

namespace npu_train {
namespace {

class SingleProcess final : public ProcessGroup {
 public:
  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  void all_reduce_sum(at::Tensor&) override {}
  void all_reduce_max(at::Tensor&) override {}
  double all_reduce_sum(double value) override { return value; }
  void broadcast(at::Tensor&, int root) override {
    check(root == 0, ErrorKind::Usage, "ProcessGroup", "broadcast from rank ", root, " in a group of one");
  }
  void barrier() override {}
};

}  // namespace

std::shared_ptr<ProcessGroup> single_process() { return std::make_shared<SingleProcess>(); }

}  // namespace npu_train
