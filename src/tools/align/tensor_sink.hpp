// Writes the tensors of a dump, in the caller's thread or in one of its own.
#pragma once

#include <ATen/core/Tensor.h>

#include <condition_variable>
#include <deque>
#include <exception>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace npu_train::detail {

class TensorSink {
 public:
  TensorSink(bool npy, bool async);
  ~TensorSink();
  TensorSink(const TensorSink&) = delete;
  TensorSink& operator=(const TensorSink&) = delete;

  // `tensor` must not change any more. What went wrong with an earlier file is thrown here or by wait().
  void write(const std::filesystem::path& path, at::Tensor tensor);
  // A second name for a file of before.
  void link(const std::filesystem::path& existing, const std::filesystem::path& path);
  // Until all is on its way to the disk.
  void wait();

 private:
  struct Job {
    std::function<void()> run;
    int64_t bytes = 0;
  };
  void push(Job job);
  void work();

  bool npy_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  int64_t waiting_ = 0;  // bytes, those of the job under way included
  bool busy_ = false, ends_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace npu_train::detail
