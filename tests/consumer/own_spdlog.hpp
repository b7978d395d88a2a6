// The program's own functions that use spdlog and fmt.
#pragma once

#include <string>

void write_with_spdlog(const std::string& file, int level, const std::string& message);
std::string formatted_with_fmt(double number);
