#pragma once

#include <chrono>

namespace gloo {

// Made, sized and destroyed by libtorch alone.
class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

}  // namespace gloo
