#include "data/json_lines.hpp"

#include <algorithm>

#include "npu_train/core/error.hpp"
#include "npu_train/core/read_text.hpp"
#include "npu_train/io/file.hpp"

namespace npu_train {
namespace {

constexpr size_t kBytesAtOnceOfLines = size_t{1} << 20;

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\r") == std::string_view::npos; }

}  // namespace

void for_each_json_line(const std::string& path, const std::function<void(const Json&, int64_t, const std::string&)>& see) {
  const ReadableFile file(path);
  const JsonLimits limits;
  std::string rest;
  int64_t number = 0;
  const auto line_ends = [&](std::string_view text) {
    if (number++ == 0) text.remove_prefix(start_of_text(text));
    if (is_blank(text)) return;
    const auto where = path + ", line " + std::to_string(number);
    const Json line = parse_json(text, where, limits);
    check(line.is_object(), ErrorKind::Data, "documents", where, ": not a JSON object; allowed: {\"text\": \"...\"} in each line");
    see(line, number, where);
  };
  for (uint64_t at = 0; at < file.size();) {
    const auto bytes = static_cast<size_t>(std::min<uint64_t>(kBytesAtOnceOfLines, file.size() - at));
    const auto searched = rest.size();
    rest += file.read(at, bytes);
    at += bytes;
    size_t begin = 0;
    for (auto end = rest.find('\n', searched); end != std::string::npos; end = rest.find('\n', begin)) {
      line_ends(std::string_view(rest).substr(begin, end - begin));
      begin = end + 1;
    }
    rest.erase(0, begin);
    check(rest.size() <= limits.max_bytes, ErrorKind::Data, "documents", path, ", line ", number + 1, ": longer than ", limits.max_bytes,
          " bytes");
  }
  if (!rest.empty()) line_ends(rest);
}

}  // namespace npu_train
