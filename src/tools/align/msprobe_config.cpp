#include "tools/align/msprobe_config.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "npu_train/core/error.hpp"
#include "npu_train/core/read_text.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/io/json.hpp"

namespace npu_train::detail {
namespace {

// A key of msprobe's config.json that has no counterpart here, and the values that are accepted for it because they have no effect.
struct NoCounterpart {
  const char* key;
  std::vector<Json> harmless;
};

class MsprobeConfig {
 public:
  MsprobeConfig(const std::string& path, const std::function<bool(const char*)>& is_given)
      : path_(path), is_given_(is_given), root_(load_json(path)) {}

  void apply_to(DumpOptions& options) {
    for (const auto& [key, value] : root_.members(path_))
      if (!value.is_null()) apply(options, key, value);
    if (!has_value(root_.find("level")) && !is_given_("level")) options.level = "op";  // the default of msprobe
    const auto* own = root_.find(options.task);
    if (!has_value(own)) return;
    for (const auto& [key, value] : own->members(at(options.task)))
      if (!value.is_null()) apply_of_task(options, options.task + "." + key, key, value);
  }

 private:
  template <class... Parts>
  [[noreturn]] void refuse(const std::string& key, const Parts&... parts) const {
    throw Error(ErrorKind::Usage, "dump.config", str_cat(path_, ": ", key, ": ", parts...));
  }

  static bool has_value(const Json* json) { return json != nullptr && !json->is_null(); }

  std::string at(const std::string& key) const { return path_ + ": " + key; }

  // Sets a field. Error(Usage) if the section sets it to another value.
  template <class T>
  void set(T& field, T value, const char* ours, const std::string& key) const {
    if (is_given_(ours) && field != value)
      refuse(key, "the section dump of the configuration has another value; hint: remove one of the two");
    field = std::move(value);
  }

  void apply(DumpOptions& options, const std::string& key, const Json& value) const {
    if (key == "task")
      set(options.task,
          one_of_words(key, value, {{"statistics", "statistics"}, {"tensor", "tensor"}, {"overflow_check", "overflow_check"}}), "task",
          key);
    else if (key == "level")
      set(options.level, one_of_words(key, value, {{"L0", "module"}, {"L1", "op"}, {"mix", "mix"}, {"debug", "debug"}}), "level", key);
    else if (key == "dump_path")
      set(options.dir, value.text(at(key)), "dir", key);
    else if (key == "step")
      set(options.steps, ranges(key, value), "steps", key);
    else if (key == "rank")
      set(options.ranks, numbers(key, value), "ranks", key);
    else if (key == "async_dump")
      set(options.async, value.boolean(at(key)), "async", key);
    else if (!is_task(key))
      need_harmless(key, key, value,
                    {{"extra_info", {true}},
                     {"dump_enable", {true}},
                     {"precision", {"high"}},
                     {"enable_dataloader", {false}},
                     {"risk_level", {}},
                     {"custom_op_namespaces", {}},
                     {"load", {}}});
  }

  // Applies a key of the object of the task. apply() ignores the objects of other tasks, like msprobe.
  void apply_of_task(DumpOptions& options, const std::string& where, const std::string& key, const Json& value) const {
    if (key == "scope")
      set(options.scope, texts(where, value), "scope", where);
    else if (key == "list")
      set(options.list, names(where, value), "list", where);
    else if (key == "data_mode")
      set(options.data_mode, modes(where, value), "data_mode", where);
    else if (key == "summary_mode")
      set(options.summary, one_of_words(where, value, {{"statistics", "statistics"}, {"md5", "crc32"}}), "summary", where);
    else if (key == "file_format")
      set(options.format, one_of_words(where, value, {{"npy", "npy"}}), "format", where);
    else
      need_harmless(where, key, value,
                    {{"tensor_list", {Json::array()}},
                     {"online_run_ut", {false}},
                     {"nfs_path", {""}},
                     {"host", {""}},
                     {"port", {""}},
                     {"tls_path", {""}},
                     {"overflow_nums", {1, -1}},
                     {"check_mode", {"all"}},
                     {"slice", {}},
                     {"request_id", {}},
                     {"diff_nums", {}},
                     {"bench_path", {}}});
  }

  static bool is_task(const std::string& key) {
    static const std::set<std::string> names = {"statistics", "tensor",    "overflow_check", "acc_check",      "structure",
                                                "diff_check", "nan_check", "run_ut",         "free_benchmark", "grad_probe"};
    return names.count(key) > 0;
  }

  void need_harmless(const std::string& where, const std::string& key, const Json& value, const std::vector<NoCounterpart>& known) const {
    const auto found = std::find_if(known.begin(), known.end(), [&](const auto& k) { return k.key == key; });
    if (found == known.end()) refuse(where, "unknown; allowed: the keys of msprobe's config.json");
    std::vector<std::string> allowed;
    for (const auto& harmless : found->harmless) allowed.push_back(harmless.dump(0));
    if (std::find(allowed.begin(), allowed.end(), value.dump(0)) != allowed.end()) return;
    refuse(where, value.dump(0), " has no counterpart in a dump of npu_train; allowed: no such key", allowed.empty() ? "" : ", or ",
           join(allowed, " or "));
  }

  std::string one_of_words(const std::string& key, const Json& value, const std::map<std::string, std::string>& words) const {
    const auto found = words.find(value.text(at(key)));
    if (found != words.end()) return found->second;
    std::vector<std::string> allowed;
    for (const auto& [theirs, ours] : words) allowed.push_back(theirs == ours ? theirs : theirs + " (here " + ours + ")");
    refuse(key, "'", value.text(at(key)), "' has no counterpart in a dump of npu_train; allowed: ", join(allowed));
  }

  std::vector<std::string> texts(const std::string& key, const Json& value) const {
    std::vector<std::string> out;
    for (const auto& item : value.items(at(key))) out.push_back(item.text(at(key)));
    return out;
  }

  std::vector<std::string> names(const std::string& where, const Json& value) const {
    const auto out = texts(where, value);
    for (const auto& name : out)
      if (name.starts_with("name-regex("))
        refuse(where, "'", name, "': regular expressions are not supported; allowed: parts of names, and *");
    return out;
  }

  std::vector<std::string> modes(const std::string& where, const Json& value) const {
    auto out = texts(where, value);
    if (out == std::vector<std::string>{"all"}) out.clear();
    for (const auto& word : out)
      if (!std::set<std::string>{"forward", "backward", "input", "output"}.contains(word))
        refuse(where, "'", word, "'; allowed: all, or forward, backward, input, output");
    return out;
  }

  std::vector<std::string> ranges(const std::string& key, const Json& value) const {
    std::vector<std::string> out;
    for (const auto& item : value.items(at(key)))
      out.push_back(item.is_text() ? item.text(at(key)) : std::to_string(item.integer(at(key))));
    return out;
  }

  std::vector<int64_t> numbers(const std::string& key, const Json& value) const {
    constexpr int64_t kMost = 1'000'000;
    std::vector<int64_t> out;
    for (const auto& range : ranges(key, value)) {
      const auto dash = range.find('-');
      const auto first = whole_number(std::string_view(range).substr(0, dash));
      const auto last = dash == std::string::npos ? first : whole_number(std::string_view(range).substr(dash + 1));
      if (!first || !last || *first < 0 || *last < *first || *last > kMost)
        refuse(key, "'", range, "'; allowed: numbers such as 4, or ranges such as \"4-6\"");
      for (auto i = *first; i <= *last; ++i) out.push_back(i);
    }
    return out;
  }

  std::string path_;
  const std::function<bool(const char*)>& is_given_;
  Json root_;
};

}  // namespace

void apply_msprobe_config(const std::string& path, const std::function<bool(const char*)>& is_given, DumpOptions& options) {
  MsprobeConfig(path, is_given).apply_to(options);
}

}  // namespace npu_train::detail
