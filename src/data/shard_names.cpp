#include "data/shard_names.hpp"

#include <algorithm>
#include <set>

#include "npu_train/core/error.hpp"
#include "npu_train/core/read_text.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train::detail {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostShards = 1'000'000;

// The position of the brace that closes an opening brace, and the positions of the commas between the two that are not in an inner pair.
struct Braces {
  size_t close = std::string::npos;
  std::vector<size_t> commas{};
};

Braces braces_at(const std::string& text, size_t open) {
  Braces out;
  int depth = 0;
  for (size_t i = open; i < text.size(); ++i) {
    if (text[i] == '{') ++depth;
    if (text[i] == ',' && depth == 1) out.commas.push_back(i);
    if (text[i] == '}' && --depth == 0) {
      out.close = i;
      break;
    }
  }
  return out;
}

// Expands "007..012" to 007, 008, ..., 012. Returns an empty list for any other text.
std::vector<std::string> numbers_of(const std::string& range) {
  const auto dots = range.find("..");
  if (dots == std::string::npos) return {};
  const auto first = range.substr(0, dots), last = range.substr(dots + 2);
  const auto begin = whole_number(first), end = whole_number(last);
  if (!begin || !end || *begin < 0 || *end < *begin || *end - *begin >= static_cast<int64_t>(kMostShards)) return {};
  const bool padded = (first.size() > 1 && first[0] == '0') || (last.size() > 1 && last[0] == '0');
  const size_t width = padded ? std::max(first.size(), last.size()) : 0;
  std::vector<std::string> out;
  for (auto i = *begin; i <= *end; ++i) {
    const auto digits = std::to_string(i);
    out.push_back(std::string(width - std::min(width, digits.size()), '0') + digits);
  }
  return out;
}

}  // namespace

std::vector<std::string> expand_braces(const std::string& pattern, const std::string& key) {
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorKind::Usage, key, "'" + pattern + "' " + why, "as in train-{000..147}.tar or {train,extra}.tar");
  };
  const auto open = pattern.find_first_of("{}");
  if (open == std::string::npos) return {pattern};
  const auto braces = pattern[open] == '{' ? braces_at(pattern, open) : Braces{};
  if (braces.close == std::string::npos) refuse("has a brace without its partner");
  std::vector<std::string> parts;
  if (braces.commas.empty()) {
    parts = numbers_of(pattern.substr(open + 1, braces.close - open - 1));
    if (parts.empty()) refuse("has braces without a comma or an ascending range of at most 1,000,000 numbers");
  } else {
    auto begin = open + 1;
    auto ends = braces.commas;
    ends.push_back(braces.close);
    for (const auto end : ends) {
      parts.push_back(pattern.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  const auto rest = expand_braces(pattern.substr(braces.close + 1), key);
  std::vector<std::string> out;
  for (const auto& part : parts) {
    for (const auto& middle : expand_braces(part, key)) {
      if (out.size() + rest.size() > kMostShards) refuse("stands for more than 1,000,000 names");
      for (const auto& end : rest) out.push_back(pattern.substr(0, open) + middle + end);
    }
  }
  return out;
}

std::vector<fs::path> shard_files(const std::string& root, const std::vector<std::string>& patterns, const std::string& key) {
  std::vector<fs::path> out;
  for (const auto& pattern : patterns) {
    for (const auto& name : expand_braces(pattern, key)) {
      const auto path = fs::path(root) / name;
      std::error_code error;
      const auto status = fs::status(path, error);
      if (!fs::is_directory(status)) {
        const bool address = name.find("://") != std::string::npos || name.starts_with("pipe:");
        check(fs::is_regular_file(status), ErrorKind::Data, "webdataset", key, ": ", path.string(), ": ",
              error ? error.message() : "is not a regular file", "; allowed: .tar files, and folders of them; hint: ",
              address                                          ? "only local files can be read: download the archives"
              : name.find_first_of("*?[") != std::string::npos ? "train-{000..147}.tar, or a folder, in place of a pattern"
                                                               : "they are relative to data.root");
        out.push_back(path);
        continue;
      }
      const auto before = out.size();
      for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
        std::error_code gone;
        const bool hidden = it->path().filename().string()[0] == '.';
        if (!hidden && to_lower(it->path().extension().string()) == ".tar" && it->is_regular_file(gone)) out.push_back(it->path());
      }
      check(!error, ErrorKind::Data, "webdataset", key, ": ", path.string(), ": ", error.message());
      check(out.size() > before, ErrorKind::Data, "webdataset", key, ": ", path.string(),
            ": contains no .tar files; hint: compressed archives (.tar.gz, .tgz) must be decompressed");
      std::sort(out.begin() + static_cast<int64_t>(before), out.end());
    }
  }
  std::set<fs::path> seen;
  for (const auto& path : out)
    check(seen.insert(path.lexically_normal()).second, ErrorKind::Usage, key.c_str(), path.string(), " is listed twice");
  return out;
}

}  // namespace npu_train::detail
