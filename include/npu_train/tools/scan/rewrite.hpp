/// A copy of a project with the mechanical part of the move to Ascend NPUs done, and a list of the rest.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "npu_train/io/json.hpp"
#include "npu_train/tools/scan/source_scan.hpp"

namespace npu_train {

struct Rewrite {
  std::string source, out;
  int64_t files = 0;  ///< copied
  int64_t files_changed = 0;
  int64_t changes = 0;                ///< findings that were mended
  std::vector<std::string> left_out;  ///< links that lead out, pipes, sockets, with the reason; at most 100
  SourceScan remaining;               ///< of the copy: what a person must do
};

/// Copies `folder` to `out` and replaces what `scan_source` calls mechanical, token by token; comments, documentation and prose stay as
/// they are, as do encodings, line ends, modes and everything that is no source file. CUDA sources (.cu) are only copied. `out` also gets
/// the folder npu_migration with
///
///     log.json       every change: file, line, rule, the line before and after
///     changes.diff   the same as a unified diff; `patch -p1` applies it to the original
///     todo.md        what a person must do, by file and line of the copy
///
/// Scans and rewrites pass such a folder over, so that rewriting a copy once more changes nothing. The original is only read. `out` appears
/// as a whole or not at all.
/// Links that stay inside of the project are made anew; others are left out and told.
/// Error(Usage) when `out` is there and not an empty folder, or when one of both folders lies inside the other; Error(Data) as scan_source,
/// and for a file that cannot be read; Error(Checkpoint) when `out` cannot be written.
Rewrite rewrite_source(const std::filesystem::path& folder, const std::filesystem::path& out, const ScanOptions& options = {});

/// What was done, and the headline of what remains.
std::string to_text(const Rewrite& rewrite);
Json to_json(const Rewrite& rewrite);

}  // namespace npu_train
