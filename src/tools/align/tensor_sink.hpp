// Writes the tensors of a dump, in the thread of the caller or in a separate thread.
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

  // The caller must not change `tensor` afterwards. If a separate thread cannot write a file, a later write() or wait() throws the error.
  void write(const std::filesystem::path& path, at::Tensor tensor);
  // Creates a second name for an existing file.
  void link(const std::filesystem::path& existing, const std::filesystem::path& path);
  // Blocks until all files are written; does not sync the disk.
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
  int64_t waiting_ = 0;  // number of bytes in the queue, including the current job
  bool busy_ = false, ends_ = false;
  std::exception_ptr error_;
  std::thread thread_;
};

}  // namespace npu_train::detail
