#pragma once

#include <chrono>

namespace gloo {

// Only libtorch creates and destroys it, and knows its size.
class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

}  // namespace gloo
