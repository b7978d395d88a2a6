#include "npu_train/dist/process_group.hpp"

#include <ATen/core/Tensor.h>

#include <cstring>

#include "npu_train/core/error.hpp"

namespace npu_train {

std::vector<std::vector<double>> ProcessGroup::gather(const std::string& call, const std::vector<double>& own) {
  std::string bytes(own.size() * sizeof(double), '\0');
  std::memcpy(bytes.data(), own.data(), bytes.size());
  std::vector<std::vector<double>> out;
  for (const auto& given : gather(call, bytes)) {
    check(given.size() == bytes.size(), ErrorKind::Peer, call.c_str(), "rank ", out.size(), " gave ", given.size() / sizeof(double),
          " numbers and rank ", rank(), " gave ", own.size());
    std::vector<double> numbers(own.size());
    std::memcpy(numbers.data(), given.data(), given.size());
    out.push_back(std::move(numbers));
  }
  return out;
}

std::shared_ptr<ProcessGroup> ProcessGroup::subgroup(const std::vector<int>& ranks) {
  throw Error(ErrorKind::Usage, "ProcessGroup", str_cat("this group has no group of ", ranks.size(), " of its ", size(), " ranks"),
              "override subgroup(), or leave dist.shard_size at the number of ranks and dist.group_size at none");
}

std::unique_ptr<Collective> ProcessGroup::reduce(const at::Tensor& /*tensor*/) {
  throw Error(ErrorKind::Usage, "ProcessGroup", "this group has no reduce()", "override it, or leave dist.group_size at none");
}

std::unique_ptr<Collective> ProcessGroup::distribute(const at::Tensor& /*tensor*/) {
  throw Error(ErrorKind::Usage, "ProcessGroup", "this group has no distribute()", "override it, or leave dist.group_size at none");
}

namespace {

struct Finished final : Collective {
  bool done() override { return true; }
  void wait() override {}
};

// One process: every collective returns its input.
class GroupOfOne final : public ProcessGroup {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::unique_ptr<Collective> all_to_all(const at::Tensor& out, const at::Tensor& in) override { return copy(out, in); }
  std::unique_ptr<Collective> all_reduce(const at::Tensor& /*tensor*/) override { return std::make_unique<Finished>(); }
  std::unique_ptr<Collective> reduce(const at::Tensor& /*tensor*/) override { return std::make_unique<Finished>(); }
  std::unique_ptr<Collective> distribute(const at::Tensor& /*tensor*/) override { return std::make_unique<Finished>(); }
  std::unique_ptr<Collective> all_gather(const at::Tensor& out, const at::Tensor& in) override { return copy(out, in); }
  std::vector<std::string> gather(const std::string& /*call*/, const std::string& own) override { return {own}; }
  using ProcessGroup::gather;
  void broadcast(const at::Tensor& /*tensor*/) override {}
  void main_first(const std::function<void()>& work) override { work(); }
  void abandon() noexcept override {}

 private:
  static std::unique_ptr<Collective> copy(const at::Tensor& out, const at::Tensor& in) {
    out.copy_(in);
    return std::make_unique<Finished>();
  }
};

}  // namespace

std::shared_ptr<ProcessGroup> ProcessGroup::from_environment(const DistOptions& options) {
  const auto launch = launch_of_environment();
  if (launch.world_size == 1) return std::make_shared<GroupOfOne>();
  return make_process_group(launch, options);
}

}  // namespace npu_train
