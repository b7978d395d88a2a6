// A stand-in for the plugin of HCCL: Gloo on the memory of the stand-in for torch_npu, which is the host's.
//
//   FAKE_HCCL_BROKEN  1: it does not start
//   FAKE_HCCL_TRACE   a file to which each collective is appended: its name and the number of elements; and "abort 0"
//   FAKE_HCCL_NO_ALL_TO_ALL  set: it has none, as on some products
//   FAKE_HCCL_LAST_CALL  the process ends in the collective that follows as many tensors
#include "hccl/npu_train_hccl.h"

#include <ATen/ops/from_blob.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

namespace {

class FakeHccl final : public c10d::Backend {
 public:
  FakeHccl(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, std::chrono::milliseconds timeout)
      : c10d::Backend(rank, size) {
    auto options = c10d::ProcessGroupGloo::Options::create(timeout);
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
    gloo_ = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, std::move(options));
  }
  const std::string getBackendName() const override { return "hccl"; }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) override {
    std::vector<at::Tensor> host{on_host("all_reduce", tensors.at(0))};
    return gloo_->allreduce(host, options);
  }
  c10::intrusive_ptr<c10d::Work> reduce(std::vector<at::Tensor>& tensors, const c10d::ReduceOptions& options) override {
    std::vector<at::Tensor> host{on_host("reduce", tensors.at(0))};
    return gloo_->reduce(host, options);
  }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override {
    std::vector<at::Tensor> host{on_host("distribute", tensors.at(0))};
    return gloo_->broadcast(host, options);
  }
  c10::intrusive_ptr<c10d::Work> _reduce_scatter_base(at::Tensor& out, at::Tensor& in,
                                                      const c10d::ReduceScatterOptions& /*options*/) override {
    const auto to = on_host("", out), from = on_host("reduce_scatter", in);
    std::vector<at::Tensor> host{from};
    auto work = gloo_->allreduce(host, c10d::AllreduceOptions());
    work->wait();
    to.copy_(from.narrow(0, getRank() * to.numel(), to.numel()));
    return work;
  }
  void abort() override {
    if (const char* file = std::getenv("FAKE_HCCL_TRACE")) std::ofstream(file, std::ios::app) << "abort 0\n";
  }
  c10::intrusive_ptr<c10d::Work> alltoall_base(at::Tensor& out, at::Tensor& in, std::vector<int64_t>& out_splits,
                                               std::vector<int64_t>& in_splits, const c10d::AllToAllOptions& options) override {
    TORCH_CHECK(std::getenv("FAKE_HCCL_NO_ALL_TO_ALL") == nullptr, "HCCL function error: HcclAlltoAll, error code is 2");
    auto to = on_host("", out), from = on_host("all_to_all", in);
    return gloo_->alltoall_base(to, from, out_splits, in_splits, options);
  }
  c10::intrusive_ptr<c10d::Work> _allgather_base(at::Tensor& out, at::Tensor& in, const c10d::AllgatherOptions& options) override {
    auto to = on_host("", out), from = on_host("all_gather", in);
    return gloo_->_allgather_base(to, from, options);
  }

 private:
  static at::Tensor on_host(const std::string& operation, const at::Tensor& t) {
    TORCH_CHECK(t.device().type() == c10::DeviceType::PrivateUse1, "HCCL got a tensor on ", t.device());
    static int calls = 0;
    if (const char* last = std::getenv("FAKE_HCCL_LAST_CALL"); last != nullptr && ++calls > std::atoi(last)) ::_exit(3);
    if (const char* file = std::getenv("FAKE_HCCL_TRACE"); file != nullptr && !operation.empty())
      std::ofstream(file, std::ios::app) << operation + " " + std::to_string(t.numel()) + "\n";
    return at::from_blob(const_cast<void*>(t.const_data_ptr()), t.sizes(), t.strides(), at::TensorOptions().dtype(t.dtype()));
  }

  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo_;
};

}  // namespace

extern "C" __attribute__((visibility("default"))) c10d::Backend* npu_train_make_hccl(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                                                                     int size, long timeout) {
  const char* broken = std::getenv("FAKE_HCCL_BROKEN");
  TORCH_CHECK(broken == nullptr || std::string(broken) != "1", "HCCL function error: hcclCommInitRootInfo, error code is 7");
  return c10::make_intrusive<FakeHccl>(store, rank, size, std::chrono::milliseconds(timeout)).release();
}
