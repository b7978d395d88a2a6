// npu_tool analyze --source: finds the uses of CUDA in a project.
#pragma once

#include <cstddef>
#include <string>

namespace npu_train::cli {

struct SourceArguments {
  std::string source, rewrite, html, csv;
  size_t rows = 50;
  bool json = false;
};

/// Prints the scan and writes the requested copy and reports. Returns 0, or 7 if a finding blocks the migration.
int analyze_source(const SourceArguments& args);

}  // namespace npu_train::cli
