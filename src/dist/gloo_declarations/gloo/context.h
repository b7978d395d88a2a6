#pragma once

#include <chrono>

namespace gloo {

// Only libtorch creates and destroys contexts, and knows their size.
class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

}  // namespace gloo
