/// A list of texts as JSON.
#pragma once

#include <string>
#include <vector>

#include "npu_train/io/json.hpp"

namespace npu_train::detail {

/// Returns ["a", "b"].
inline Json json_texts(const std::vector<std::string>& list) {
  auto out = Json::array();
  for (const auto& text : list) out.push_back(text);
  return out;
}

}  // namespace npu_train::detail
