// npu_tool analyze --source: what ties a project to CUDA.
#pragma once

#include <cstddef>
#include <string>

namespace npu_train::cli {

struct SourceArguments {
  std::string source, rewrite, html, csv;
  size_t rows = 50;
  bool json = false;
};

/// Prints the scan, writes the copy and the reports that are asked for. 0, or 7 when something blocks the move.
int analyze_source(const SourceArguments& args);

}  // namespace npu_train::cli
