// What a sink may need of the log that calls it.
#pragma once

#include <string>

namespace npu_train::detail {

// Logs a warning about a sink, also from inside one: there the other sinks get it after the message.
void warn_about_sink(const std::string& warning);

}  // namespace npu_train::detail
