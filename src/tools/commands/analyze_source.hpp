// npu_tool analyze --source: the uses of CUDA in a project.
#pragma once

#include <cstddef>
#include <string>

namespace npu_train::cli {

struct SourceArguments {
  std::string source, rewrite, html, csv;
  size_t rows = 50;
  bool json = false;
};

/// Prints the scan; writes the requested copy and reports. Returns 0, or 7 if something blocks the move.
int analyze_source(const SourceArguments& args);

}  // namespace npu_train::cli
