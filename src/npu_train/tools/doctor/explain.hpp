/// Explains error codes and symptoms, either a single one or all in a log: meaning, causes and remedy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <istream>
#include <string>
#include <string_view>
#include <vector>

#include "npu_train/tools/report/report.hpp"

namespace npu_train {

/// A row of src/tools/doctor/facts/codes.tsv or symptoms.tsv.
struct KnownProblem {
  std::string name;     ///< "507018", "EI0006", "out of memory"
  std::string layer;    ///< its source: "CANN runtime", "torch_npu", "loader", "symptom"
  std::string meaning;  ///< one sentence
  std::string causes;   ///< the most likely first
  std::string fix;
  int rank = 2;                         ///< 1: a cause; 2: a failed operation; 3: repeats or wraps another problem; 4: no error
  std::vector<std::string> patterns{};  ///< texts that indicate it in a log, in lower case; for a code, the code itself
  bool is_code = false;
};

const std::vector<KnownProblem>& known_problems();

/// Returns the entries that match `text`: a code (507018, 0x7BC8A, EI0006, "error code is 507018"), or a symptom by name or in words. A
/// code that the table contains only as part of a family (507057 in 507053-507059) is found, too. Error(Usage) with the nearest entries and
/// a list of symptoms if none matches.
std::vector<KnownProblem> explain(const std::string& text);

/// One code or symptom in a log.
struct Sighting {
  KnownProblem problem;
  std::string shown;        ///< the code as written in the log, or the pattern
  uint64_t count = 0;       ///< number of lines
  uint64_t first_line = 0;  ///< counted from 1
  std::string excerpt;      ///< part of that line, at most 240 bytes
};

struct LogReport {
  std::vector<Sighting> sightings;  ///< the most important first: by rank, then by first line, since causes come before their effects
  uint64_t lines = 0;
  uint64_t bytes = 0;
  uint64_t long_lines = 0;   ///< lines longer than 64 KiB, which were read in pieces
  uint64_t error_lines = 0;  ///< lines with "error", "fatal" or "exception"
  uint64_t first_error_line = 0;
  std::string first_error{};  ///< excerpt of the first such line, which is reported if no known problem is found
  bool compressed = false;    ///< the stream begins like gzip, zip, xz, zstd or bzip2: unpack it first
};

/// Reads a log of any size, line by line, with bounded memory. Carriage returns also end a line (progress bars); all bytes are allowed.
/// Numbers count as codes only in lines that report an error.
LogReport explain_log(std::istream& log);

Report report_of(const LogReport& log);
Report report_of(const std::vector<KnownProblem>& problems);

}  // namespace npu_train
