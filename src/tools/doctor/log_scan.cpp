// explain_log(): scans a log of any size in blocks of 64 KiB.
#include <algorithm>
#include <cctype>
#include <map>

#include "npu_train/tools/doctor/explain.hpp"
#include "tools/doctor/known_problems.hpp"

namespace npu_train {
namespace {

constexpr size_t kLongestLine = 64 * 1024;
constexpr size_t kExcerpt = 240;

// Returns the part of a line around `place`.
std::string excerpt_of(std::string_view line, size_t place) {
  const size_t from = place > kExcerpt / 2 && line.size() > kExcerpt ? std::min(place - kExcerpt / 2, line.size() - kExcerpt) : 0;
  return std::string(line.substr(from, kExcerpt));
}

bool starts_compressed(std::string_view head) {
  using namespace std::string_view_literals;
  for (const auto magic : {"\x1f\x8b"sv, "PK\x03\x04"sv,
                           "\xfd"
                           "7zXZ\0"sv,
                           "\x28\xb5\x2f\xfd"sv, "BZh"sv})
    if (head.starts_with(magic)) return true;
  return false;
}

class LogScan {
 public:
  // Scans a line, or a piece of a line that is too long. end_line() increases the line number.
  void take(std::string_view line) {
    detail::find_known_problems(line, true, [&](const detail::Hit& hit) {
      switch (hit.kind) {
        case detail::Hit::Kind::ErrorWord:
          return note_error(line, hit.place);
        case detail::Hit::Kind::CodeFollows:
          return note_unknown_code(line, hit.place);
        default:
          return note(*hit.problem, line, hit.place, hit.length);
      }
    });
  }
  void end_line() { ++number_; }

  LogReport finish(uint64_t bytes, uint64_t long_lines, bool compressed, bool open_line) {
    LogReport out;
    out.lines = number_ - 1 + (open_line ? 1 : 0);
    out.bytes = bytes;
    out.long_lines = long_lines;
    out.error_lines = error_lines_;
    out.first_error_line = first_error_line_;
    out.first_error = first_error_;
    out.compressed = compressed;
    for (auto& [name, s] : seen_) out.sightings.push_back(std::move(s));
    std::stable_sort(out.sightings.begin(), out.sightings.end(), [](const Sighting& a, const Sighting& b) {
      return std::pair(a.problem.rank, a.first_line) < std::pair(b.problem.rank, b.first_line);
    });
    return out;
  }

 private:
  void note_error(std::string_view line, size_t place) {
    if (last_error_line_ == number_) return;
    last_error_line_ = number_;
    ++error_lines_;
    if (first_error_line_ != 0) return;
    first_error_line_ = number_;
    first_error_ = excerpt_of(line, place);
  }

  void note(const KnownProblem& problem, std::string_view line, size_t place, size_t length) {
    auto& s = seen_[problem.name];
    if (s.count > 0 && last_line_[problem.name] == number_) return;
    last_line_[problem.name] = number_;
    if (s.count++ > 0) return;
    s.problem = problem;
    s.first_line = number_;
    s.excerpt = excerpt_of(line, place);
    s.shown = std::string(line.substr(place, length));
    std::transform(s.shown.begin(), s.shown.end(), s.shown.begin(), [](unsigned char c) { return std::tolower(c); });
  }

  // Notes "error code is 512345" for codes that are not in the table; at most 64 different ones.
  void note_unknown_code(std::string_view line, size_t place) {
    const auto from = line.find_first_of("0123456789", place);
    if (from == std::string_view::npos || from - place > 24) return;
    const auto code = line.substr(from, std::min(line.find_first_not_of("0123456789", from), line.size()) - from);
    const auto family = detail::family_of(code);
    if (!family) return;
    for (const auto& known : known_problems())
      if (std::find(known.patterns.begin(), known.patterns.end(), code) != known.patterns.end()) return;
    if (!seen_.contains(family->name) && unknown_++ >= 64) return;
    note(*family, line, from, code.size());
  }

  std::map<std::string, Sighting> seen_;
  std::map<std::string, uint64_t> last_line_;
  uint64_t number_ = 1, error_lines_ = 0, first_error_line_ = 0, last_error_line_ = 0;
  std::string first_error_;
  size_t unknown_ = 0;
};

}  // namespace

LogReport explain_log(std::istream& log) {
  LogScan scan;
  std::string line, block(kLongestLine, '\0');
  uint64_t bytes = 0, long_lines = 0;
  bool compressed = false, cut = false, open = false;
  const auto take = [&] {
    scan.take(line);
    line.clear();
  };
  while (log.read(block.data(), static_cast<std::streamsize>(block.size())) || log.gcount() > 0) {
    std::string_view rest(block.data(), static_cast<size_t>(log.gcount()));
    if (bytes == 0) compressed = starts_compressed(rest);
    bytes += rest.size();
    while (!rest.empty()) {
      const auto end = std::min(rest.find_first_of("\n\r"), rest.size());
      const auto piece = rest.substr(0, std::min(end, kLongestLine - line.size()));
      line += piece;
      open = true;
      if (piece.size() < end || (piece.size() == rest.size() && line.size() == kLongestLine)) {  // too long: scanned in pieces
        long_lines += cut ? 0 : 1;
        cut = true;
        take();
        rest.remove_prefix(piece.size());
        continue;
      }
      rest.remove_prefix(end);
      if (rest.empty()) break;
      take();
      cut = false;
      if (rest[0] == '\n') {
        scan.end_line();
        open = false;
      }
      rest.remove_prefix(1);
    }
  }
  take();
  return scan.finish(bytes, long_lines, compressed, open);
}

}  // namespace npu_train
