/// Reuses an error message in another message.
#pragma once

#include <string>

namespace npu_train {

/// Returns the text of Error::what() without the hint at its end.
inline std::string without_hint(const std::string& message) { return message.substr(0, message.find("; hint: ")); }

}  // namespace npu_train
