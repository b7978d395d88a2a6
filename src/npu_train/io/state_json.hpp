/// The plain values of a State as JSON.
#pragma once

#include <map>
#include <string>

#include "npu_train/base/state.hpp"
#include "npu_train/io/json.hpp"

namespace npu_train {

/// Returns the plain values of a State as an object; values_from_json() restores them bit for bit, including inf, nan and any bytes in
/// texts.
Json values_to_json(const std::map<std::string, StateValue>& values);
/// Restores the values. Error(Checkpoint) if `json` is not an output of values_to_json.
std::map<std::string, StateValue> values_from_json(const Json& json, const std::string& where);

}  // namespace npu_train
