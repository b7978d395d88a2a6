/// Lists of numbers as messages between ranks.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "npu_train/core/error.hpp"

namespace npu_train {

/// Returns the bytes of the numbers, in the byte order of this machine.
inline std::string to_bytes(const std::vector<double>& numbers) {
  std::string bytes(numbers.size() * sizeof(double), '\0');
  std::copy_n(reinterpret_cast<const char*>(numbers.data()), bytes.size(), bytes.data());
  return bytes;
}

/// Returns the numbers that another rank passed to to_bytes(). Throws Error (Peer) if they cannot be numbers; `where` begins the message.
inline std::vector<double> numbers_of_bytes(const char* where, const std::string& bytes) {
  check(bytes.size() % sizeof(double) == 0, ErrorKind::Peer, where, "a rank gave ", bytes.size(),
        " bytes, which are not a list of numbers; hint: all ranks must run the same program");
  std::vector<double> numbers(bytes.size() / sizeof(double));
  std::copy_n(bytes.data(), bytes.size(), reinterpret_cast<char*>(numbers.data()));
  return numbers;
}

}  // namespace npu_train
