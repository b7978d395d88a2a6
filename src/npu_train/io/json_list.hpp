/// A list of values as JSON.
#pragma once

#include <string>
#include <vector>

#include "npu_train/io/json.hpp"

namespace npu_train::detail {

/// Returns ["a", "b"], or [1, 2]; without a type, a list in braces is one of texts.
template <class T = std::string>
Json json_list(const std::vector<T>& list) {
  auto out = Json::array();
  for (const auto& value : list) out.push_back(value);
  return out;
}

}  // namespace npu_train::detail
