#include "npu_train/dist/process_group.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include "npu_train/base/host_numbers.hpp"
#include "npu_train/base/number_bytes.hpp"
#include "npu_train/core/error.hpp"

namespace npu_train {

std::vector<std::vector<double>> ProcessGroup::gather(const std::string& call, const std::vector<double>& own) {
  std::vector<std::vector<double>> out;
  for (const auto& bytes : gather(call, to_bytes(own))) {
    out.push_back(numbers_of_bytes(call.c_str(), bytes));
    check(out.back().size() == own.size(), ErrorKind::Peer, call.c_str(), "rank ", out.size() - 1, " gave ", out.back().size(),
          " numbers and rank ", rank(), " gave ", own.size());
  }
  return out;
}

at::Tensor ProcessGroup::gather(const std::string& call, const at::Tensor& own) {
  if (!own.is_cpu() && transport(own.device()) != kHostTransport) {
    auto out = at::empty({size(), own.numel()}, own.options());
    all_gather(out.view({-1}), own.contiguous())->wait();
    return out;
  }
  std::vector<at::Tensor> rows;
  for (const auto& numbers : gather(call, host_numbers(own))) rows.push_back(at::tensor(numbers, at::kDouble));
  return at::stack(rows);
}

Error stopped_while_waiting(const std::string& who) {
  return {ErrorKind::Peer, "process group", who + " was stopped while it waited for the other ranks", "",
          std::make_exception_ptr(EarlyEnd())};
}

bool is_stopped_wait(const Error& error) {
  if (error.cause() == nullptr) return false;
  try {
    std::rethrow_exception(error.cause());
  } catch (const EarlyEnd&) {
    return true;
  } catch (...) {
    return false;
  }
}

std::shared_ptr<ProcessGroup> ProcessGroup::subgroup(const std::vector<int>& ranks) {
  throw Error(ErrorKind::Usage, "ProcessGroup", str_cat("this group has no group of ", ranks.size(), " of its ", size(), " ranks"),
              "override subgroup(), or leave dist.shard_size at the number of ranks and dist.group_size at none");
}

std::unique_ptr<Collective> ProcessGroup::reduce(const at::Tensor& /*tensor*/) {
  throw Error(ErrorKind::Usage, "ProcessGroup", "this group has no reduce()", "override it, or leave dist.group_size at none");
}

namespace {

// The part of an all-reduce that belongs to this rank.
class PartOfSum final : public Collective {
 public:
  PartOfSum(std::unique_ptr<Collective> sum, at::Tensor part, at::Tensor out)
      : sum_(std::move(sum)), part_(std::move(part)), out_(std::move(out)) {}
  bool done() override { return sum_->done(); }
  void wait() override {
    sum_->wait();
    out_.copy_(part_);
  }
  ReductionTimes::Span span() const override { return sum_->span(); }

 private:
  std::unique_ptr<Collective> sum_;
  at::Tensor part_, out_;
};

}  // namespace

std::unique_ptr<Collective> ProcessGroup::reduce_scatter(const at::Tensor& out, const at::Tensor& in) {
  const auto n = out.numel();
  check(in.numel() == n * size(), ErrorKind::Usage, "reduce_scatter", "out has ", n, " elements and in ", in.numel(), "; allowed: ", size(),
        " times as many, a part for each rank");
  return std::make_unique<PartOfSum>(all_reduce(in), in.narrow(0, rank() * n, n), out);
}

std::unique_ptr<Collective> ProcessGroup::distribute(const at::Tensor& /*tensor*/) {
  throw Error(ErrorKind::Usage, "ProcessGroup", "this group has no distribute()", "override it, or leave dist.group_size at none");
}

namespace {

struct Finished final : Collective {
  bool done() override { return true; }
  void wait() override {}
};

// The group of one process: every collective returns its input.
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
