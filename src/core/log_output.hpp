// The function with which a sink of the log reports its own problems to the log.
#pragma once

#include <string>

namespace npu_train::detail {

// Logs a warning about a sink. If it is called from inside a sink, the warning is logged after the current message.
void warn_about_sink(const std::string& warning);

}  // namespace npu_train::detail
