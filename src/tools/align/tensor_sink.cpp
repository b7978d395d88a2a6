#include "tools/align/tensor_sink.hpp"

#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/io/npy.hpp"
#include "npu_train/io/pickle.hpp"

namespace npu_train::detail {
namespace {

constexpr int64_t kMostWaiting = int64_t{512} << 20;

void link_or_copy(const std::filesystem::path& existing, const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_hard_link(existing, path, error);
  if (error) std::filesystem::copy_file(existing, path, std::filesystem::copy_options::overwrite_existing, error);
  check(!error, ErrorKind::Checkpoint, "dump", path.string(), ": cannot be written (", error.message(), ")");
}

}  // namespace

TensorSink::TensorSink(bool npy, bool async) : npy_(npy) {
  if (async)
    thread_ = std::thread([this, run = log_run()] {
      const ScopedLogRun scope(run);
      work();
    });
}

TensorSink::~TensorSink() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void TensorSink::write(const std::filesystem::path& path, at::Tensor tensor) {
  const auto bytes = static_cast<int64_t>(tensor.nbytes());
  push({[npy = npy_, path, tensor = std::move(tensor)] {
          if (npy)
            save_npy(path, tensor.scalar_type() == at::kBFloat16 ? tensor.to(at::kFloat) : tensor, Durability::Renamed);
          else
            save_pt(path, tensor, Durability::Renamed);
        },
        bytes});
}

void TensorSink::link(const std::filesystem::path& existing, const std::filesystem::path& path) {
  push({[existing, path] { link_or_copy(existing, path); }, 0});
}

void TensorSink::push(Job job) {
  if (!thread_.joinable()) return job.run();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return error_ != nullptr || waiting_ == 0 || waiting_ + job.bytes <= kMostWaiting; });
  if (error_ != nullptr) std::rethrow_exception(error_);
  waiting_ += job.bytes;
  jobs_.push_back(std::move(job));
  lock.unlock();
  changed_.notify_all();
}

void TensorSink::wait() {
  if (!thread_.joinable()) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return error_ != nullptr || (jobs_.empty() && !busy_); });
  if (error_ != nullptr) std::rethrow_exception(error_);
}

void TensorSink::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ends_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    auto job = std::move(jobs_.front());
    jobs_.pop_front();
    busy_ = true;
    lock.unlock();
    std::exception_ptr error;
    try {
      job.run();
    } catch (...) {
      error = std::current_exception();
    }
    const auto bytes = job.bytes;
    job = {};  // releases the tensor before its bytes count as free
    lock.lock();
    waiting_ -= bytes;
    busy_ = false;
    if (error != nullptr && error_ == nullptr) error_ = error;
    changed_.notify_all();
  }
}

}  // namespace npu_train::detail
