#include "npu_train/dist/process_group.hpp"

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

std::shared_ptr<ProcessGroup> ProcessGroup::from_environment(std::chrono::milliseconds timeout) {
  return make_process_group(launch_of_environment(), timeout);
}

}  // namespace npu_train
