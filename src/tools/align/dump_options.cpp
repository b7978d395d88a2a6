#include "npu_train/tools/align/dumper.hpp"

#include <algorithm>

#include "npu_train/core/name_pattern.hpp"
#include "npu_train/core/read_text.hpp"

namespace npu_train {

const ConfigTable<DumpOptions>& DumpOptions::config_table() {
  using T = DumpOptions;
  static const auto table =
      ConfigTable<T>("dump")
          .field("level", &T::level, "module: layers; op: operators; mix: both; debug: named values",
                 one_of({"module", "op", "mix", "debug"}, {{"L0", "module"}, {"L1", "op"}}))
          .field("task", &T::task, "tensor: also the values; overflow_check: only non-finite tensors, with their values",
                 one_of({"statistics", "tensor", "overflow_check"}))
          .field("steps", &T::steps, "indices of the windows, from 0, as in [0, \"4-6\"]; empty: all")
          .field(
              "scope", &T::scope,
              "[first, last]: names of layers or operators; dumps from the first call of the first to the end of the last, in call order")
          .field("list", &T::list, "names or parts of names, * matches anything; empty: all")
          .field("ranks", &T::ranks, "ranks to dump; empty: all", at_least(0))
          .field("data_mode", &T::data_mode, "kinds of data to dump; empty: all",
                 one_of({"forward", "backward", "input", "output", "parameters_grad", "optimizer"}))
          .field("sample", &T::sample, "fraction of layers, drawn by name and seed", Bounds{.lo = 0, .hi = 1, .lo_open = true})
          .field("sample_elements", &T::sample_elements, "task tensor: fraction of the elements of each tensor, drawn by seed",
                 Bounds{.lo = 0, .hi = 1, .lo_open = true})
          .field("seed", &T::seed, "seed of both samples", at_least(0))
          .field("summary", &T::summary, "max, min, mean and L2 norm, or the checksum of the bytes",
                 one_of({"statistics", "crc32"}, {{"md5", "crc32"}, {"crc", "crc32"}}))
          .field("format", &T::format, "format of tensor files; npy stores bf16 as fp32", one_of({"pt", "npy"}))
          .field("async", &T::async, "tensor files are written by a separate thread, with at most 512 MiB queued")
          .field("dir", &T::dir, "folder of the dumps; '': dump in the run's folder, or in the working directory")
          .synonym("step", "steps")
          .synonym("rank", "ranks")
          .synonym("summary_mode", "summary")
          .synonym("dump_path", "dir")
          .synonym("async_dump", "async");
  return table;
}

StepRanges::StepRanges(const std::vector<std::string>& texts) {
  const auto number = [](const std::string& whole, std::string_view text) {
    const auto value = whole_number(text);
    check(value && *value >= 0, ErrorKind::Usage, "dump.steps", "'", whole, "'; allowed: a step such as 4, or a range such as \"4-6\"");
    return *value;
  };
  for (const auto& text : texts) {
    const auto dash = text.find('-');
    const auto first = number(text, std::string_view(text).substr(0, dash));
    const auto last = dash == std::string::npos ? first : number(text, std::string_view(text).substr(dash + 1));
    check(first <= last, ErrorKind::Usage, "dump.steps", "'", text, "' ends before its start");
    ranges_.emplace_back(first, last);
  }
}

bool StepRanges::contains(int64_t step) const {
  return ranges_.empty() || std::any_of(ranges_.begin(), ranges_.end(), [&](const auto& r) { return r.first <= step && step <= r.second; });
}

std::vector<std::string> StepRanges::outside(int64_t first, int64_t last) const {
  std::vector<std::string> out;
  for (const auto& [from, to] : ranges_)
    if (to < first || from > last) out.push_back(from == to ? std::to_string(from) : std::to_string(from) + "-" + std::to_string(to));
  return out;
}

bool name_matches(const std::string& name, const std::string& pattern) {
  return pattern.find('*') == std::string::npos ? name.find(pattern) != std::string::npos : glob_matches(name, pattern);
}

bool call_matches(const std::string& name, const std::string& pattern) {
  if (name_matches(name, pattern)) return true;
  const auto first = name.find('.');
  const bool module = name.starts_with("Module.") || name.starts_with("Cell.");
  if (!module || pattern.find('*') == std::string::npos) return false;
  std::string rest = name.substr(first + 1);
  if (name_matches(rest, pattern)) return true;
  for (const char* direction : {".forward.", ".backward.", ".parameters_grad."})
    if (const auto at = rest.rfind(direction); at != std::string::npos) rest.erase(at);
  const auto type = rest.rfind('.');
  if (type == std::string::npos) return false;
  rest.erase(type);
  return name_matches(rest, pattern) || name_matches(name.substr(0, first + 1) + rest, pattern);
}

}  // namespace npu_train
