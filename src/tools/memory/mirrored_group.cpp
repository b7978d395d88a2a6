#include "mirrored_group.hpp"

#include <utility>
#include <vector>

#include "npu_train/dist/rings.hpp"

namespace npu_train::detail {
namespace {

struct Finished final : Collective {
  bool done() override { return true; }
  void wait() override {}
};

class MirroredGroup final : public ProcessGroup, public SimulatedRanks {
 public:
  MirroredGroup(int size, bool through_host) : size_(size), through_host_(through_host) {}
  int rank() const override { return 0; }
  int size() const override { return size_; }
  std::shared_ptr<ProcessGroup> subgroup(const std::vector<int>& ranks) override {
    return std::make_shared<MirroredGroup>(static_cast<int>(ranks.size()), through_host_);
  }
  std::string transport(const c10::Device& device) override {
    return through_host_ || device.is_cpu() ? kHostTransport : "its own transport";
  }

  // All ranks have the same tensors, so this rank receives from each rank the part that it sends to itself.
  std::unique_ptr<Collective> all_to_all(const at::Tensor& out, const at::Tensor& in) override {
    return all_gather(out, in.narrow(0, 0, in.numel() / size_));
  }
  std::unique_ptr<Collective> all_reduce(const at::Tensor& tensor) override {
    at::Tensor(tensor).mul_(size_);
    return std::make_unique<Finished>();
  }
  std::unique_ptr<Collective> reduce(const at::Tensor& tensor) override { return all_reduce(tensor); }
  std::unique_ptr<Collective> distribute(const at::Tensor& /*tensor*/) override { return std::make_unique<Finished>(); }
  std::unique_ptr<Collective> all_gather(const at::Tensor& out, const at::Tensor& in) override {
    for (int r = 0; r < size_; ++r) out.narrow(0, r * in.numel(), in.numel()).copy_(in);
    return std::make_unique<Finished>();
  }
  std::vector<std::string> gather(const std::string& /*call*/, const std::string& own) override {
    return std::vector<std::string>(static_cast<size_t>(size_), own);
  }
  void broadcast(const at::Tensor& /*tensor*/) override {}
  void main_first(const std::function<void()>& work) override { work(); }
  void abandon() noexcept override {}

 private:
  int size_;
  bool through_host_;
};

}  // namespace

std::shared_ptr<ProcessGroup> mirrored_group(int size, const DistOptions& options) {
  return std::make_shared<MirroredGroup>(size, options.backend == "gloo");
}

}  // namespace npu_train::detail
