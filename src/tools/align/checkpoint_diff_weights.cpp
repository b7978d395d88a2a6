#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "npu_train/base/parameter_set.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/io/pickle.hpp"
#include "npu_train/io/state_json.hpp"
#include "npu_train/train/checkpoint_store.hpp"
#include "tools/align/checkpoint_diff_parts.hpp"
#include "tools/align/dump_names.hpp"

namespace npu_train::detail {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 4> kSharedPrefixes = {"module.", "model.", "_orig_mod.", "state_dict."};

// Compares numbers in names by value: "blocks.2" before "blocks.10".
bool natural_less(const std::string& a, const std::string& b) {
  const auto is_digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      while (i < a.size() && a[i] == '0') ++i;
      while (j < b.size() && b[j] == '0') ++j;
      size_t m = i, n = j;
      while (m < a.size() && is_digit(a[m])) ++m;
      while (n < b.size() && is_digit(b[n])) ++n;
      if (m - i != n - j) return m - i < n - j;
      if (const int order = a.compare(i, m - i, b, j, n - j); order != 0) return order < 0;
      i = m;
      j = n;
    } else {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i;
      ++j;
    }
  }
  return a.size() - i < b.size() - j;
}

// Converts a key to the name of an entry: "momentum/conv1.weight" of the optimizer's state to "conv1.weight.momentum", and
// "average/conv1.weight" of the moving average to "conv1.weight".
std::string name_in_part(const std::string& part, const std::string& key) {
  const auto slash = key.find('/');
  if (part == "model" || slash == std::string::npos) return key;
  return part == "ema" ? key.substr(slash + 1) : key.substr(slash + 1) + "." + key.substr(0, slash);
}

// Removes the prefix that training scripts use for a part ("optimizer.") from a tensor's name. Returns the part.
std::string take_part(std::string& name) {
  static const std::array<std::pair<std::string_view, std::string_view>, 8> known = {{{"optimizer.", "optimizer"},
                                                                                      {"optimizer_state_dict.", "optimizer"},
                                                                                      {"optimizer_states.", "optimizer"},
                                                                                      {"ema.", "ema"},
                                                                                      {"model_ema.", "ema"},
                                                                                      {"ema_state_dict.", "ema"},
                                                                                      {"state_dict_ema.", "ema"},
                                                                                      {"model_state_dict.", "model"}}};
  for (const auto& [prefix, part] : known)
    if (name.starts_with(prefix)) {
      name.erase(0, prefix.size());
      return std::string(part);
    }
  return "model";
}

// Returns the kind of a layer and the shapes of its parameters. Layers that match neither by name nor by the sizes of their parameters are
// paired by this text, in order.
std::string type_of_layer(const DumpCall& call) {
  std::string shapes;
  size_t weight_dims = 0;
  bool statistics = false;
  for (const auto& item : call.items) {
    shapes += " " + item.name.substr(item.name.rfind('.') + 1) + "[";
    for (const auto n : item.shape) shapes += std::to_string(n) + ",";
    shapes += "]";
    if (item.name.ends_with(".weight")) weight_dims = item.shape.size();
    statistics |= item.name.ends_with(".running_mean");
  }
  static const std::array<const char*, 6> kinds = {"Parameter", "Norm", "Linear", "Conv1d", "Conv2d", "Conv3d"};
  const std::string kind = statistics ? "BatchNorm" : weight_dims < kinds.size() ? kinds[weight_dims] : "Parameter";
  return kind + shapes;
}

// Whether ranks wrote the part in separate files.
bool is_in_slices(const fs::path& folder, const std::string& part) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    if (it->path().filename().string().starts_with(part + ".rank")) return true;
  return false;
}

std::string text_of_value(const StateValue& value) {
  if (const auto* integer = std::get_if<int64_t>(&value)) return std::to_string(*integer);
  if (const auto* number = std::get_if<double>(&value)) return shortest(*number);
  return std::get<std::string>(value);
}

}  // namespace

StoredWeights::StoredWeights(const std::filesystem::path& path) {
  std::error_code ignored;
  check(fs::exists(path, ignored), ErrorKind::Data, "checkpoint", path.string(), ": no such file or folder");
  if (fs::is_directory(path, ignored)) {
    open_checkpoint(find_checkpoint(path.string()));
  } else if (is_safetensors_name(path)) {
    add_safetensors(path, "");
  } else if (is_pth_name(path)) {
    add_pth(path);
  } else {
    throw Error(ErrorKind::Data, "checkpoint", path.string() + ": unknown file format",
                "supported formats are .safetensors, PyTorch's .pth, .pt, .bin, .ckpt and .pth.tar, and checkpoint folders of npu_train");
  }
  drop_prefixes();
  restore_order();
}

void StoredWeights::open_checkpoint(const std::filesystem::path& folder) {
  verify_checkpoint(folder.string());
  const auto meta = read_checkpoint_meta(folder.string());
  facts_ = {{"model", meta.model},
            {"version", meta.library},
            {"libtorch", meta.torch},
            {"device", meta.device},
            {"precision", meta.precision},
            {"threads", std::to_string(meta.threads)},
            {"cpu", meta.cpu},
            {"epoch", std::to_string(meta.epoch)},
            {"global_step", std::to_string(meta.global_step)}};
  for (const char* part : {"model", "optimizer", "ema"}) {
    const auto file = folder / (std::string(part) + ".safetensors");
    if (is_in_slices(folder, part))
      add_joined(folder, part);
    else if (fs::is_regular_file(file))
      add_safetensors(file, part);
  }
  const auto where = (folder / "state.json").string();
  const auto state = load_json(where);
  for (const char* part : {"optimizer", "ema", "scaler"})
    if (const auto* values = state.find(part))
      for (const auto& [key, value] : values_from_json(*values, where)) facts_[std::string(part) + "." + key] = text_of_value(value);
}

void StoredWeights::add_safetensors(const std::filesystem::path& file, const std::string& part) {
  files_.emplace_back(file);
  for (const auto& key : files_.back().names()) {
    const auto& info = files_.back().info(key);
    auto name = key;
    const auto found = part.empty() ? take_part(name) : part;
    entries_.push_back({found, name_in_part(found, name), key, files_.size() - 1, info.dtype, info.shape});
  }
}

void StoredWeights::add_joined(const std::filesystem::path& folder, const std::string& part) {
  auto state = load_checkpoint(folder.string(), {part});
  for (auto& [name, tensor] : state[part].tensors) {
    const auto key = part + " " + name;
    entries_.push_back({part, name_in_part(part, name), key, 0, tensor.scalar_type(), tensor.sizes().vec()});
    in_memory_.emplace(key, std::move(tensor));
  }
}

void StoredWeights::add_pth(const std::filesystem::path& file) {
  for (auto& [key, tensor] : load_pth(file).tensors) {
    auto name = key;
    const auto part = take_part(name);
    entries_.push_back({part, name.empty() ? "tensor" : name, key, 0, tensor.scalar_type(), tensor.sizes().vec()});
    in_memory_.emplace(key, std::move(tensor));
  }
}

at::Tensor StoredWeights::read(const Entry& entry) const {
  const auto found = in_memory_.find(entry.key);
  return found != in_memory_.end() ? found->second : files_.at(entry.file).tensor(entry.key);
}

bool StoredWeights::has(const std::string& part) const {
  return std::any_of(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.part == part; });
}

std::vector<std::vector<std::string>> StoredWeights::tied() const {
  std::map<std::pair<const void*, int64_t>, std::vector<std::string>> groups;  // by address and size, so a transposed view counts as shared
  for (const auto& entry : entries_) {
    const auto found = in_memory_.find(entry.key);
    if (entry.part != "model" || found == in_memory_.end() || found->second.numel() == 0) continue;
    const auto& t = found->second;
    groups[{t.const_data_ptr(), t.numel()}].push_back(entry.name);
  }
  std::vector<std::vector<std::string>> out;
  for (auto& [place, names] : groups)
    if (names.size() > 1) out.push_back(std::move(names));
  std::sort(out.begin(), out.end());
  return out;
}

std::vector<std::string> ties_broken(const StoredWeights& here, const StoredWeights& there, const std::string& here_name,
                                     const std::string& there_name) {
  std::set<std::string> names;
  for (const auto& entry : there.entries())
    if (entry.part == "model") names.insert(entry.name);
  std::map<std::string, size_t> group_there;
  const auto tied_there = there.tied();
  for (size_t i = 0; i < tied_there.size(); ++i)
    for (const auto& name : tied_there[i]) group_there[name] = i;
  std::vector<std::string> out;
  for (const auto& tied : here.tied()) {
    std::vector<std::string> present;
    std::set<size_t> groups;
    for (const auto& name : tied)
      if (names.count(name) != 0) {
        present.push_back(name);
        const auto found = group_there.find(name);
        groups.insert(found != group_there.end() ? found->second : tied_there.size() + present.size());
      }
    if (present.empty() || (present.size() == tied.size() && groups.size() == 1)) continue;
    out.push_back(
        join(tied) + ": one tensor in " + here_name +
        (present.size() < tied.size() ? "; " + there_name + " has only " + join(present) : ", separate tensors in " + there_name));
  }
  return out;
}

// Removes "module." and similar prefixes, as long as all tensors of the model (or of the average) have them.
void StoredWeights::drop_prefixes() {
  for (const char* part : {"model", "ema"}) {
    for (bool again = has(part); again;) {
      again = false;
      for (const auto prefix : kSharedPrefixes) {
        const auto fits = [&](const Entry& e) { return e.part != part || (e.name.starts_with(prefix) && e.name.size() > prefix.size()); };
        if (!std::all_of(entries_.begin(), entries_.end(), fits)) continue;
        for (auto& e : entries_)
          if (e.part == part) e.name.erase(0, prefix.size());
        again = true;
      }
    }
  }
}

// Sorts the entries by part. If the names of the model are in alphabetical order, the network's order is lost, so each part is sorted by
// name with natural_less().
void StoredWeights::restore_order() {
  const auto by_part = [](const Entry& a, const Entry& b) {
    static const std::string order = "meo";  // model, ema, optimizer
    return order.find(a.part[0]) < order.find(b.part[0]);
  };
  std::stable_sort(entries_.begin(), entries_.end(), by_part);
  const bool alphabetical = std::is_sorted(entries_.begin(), entries_.end(), [&](const Entry& a, const Entry& b) {
    return by_part(a, b) || (!by_part(b, a) && a.part == "model" && a.name < b.name);
  });
  if (!alphabetical) return;
  std::stable_sort(entries_.begin(), entries_.end(),
                   [&](const Entry& a, const Entry& b) { return by_part(a, b) || (!by_part(b, a) && natural_less(a.name, b.name)); });
}

DumpStep layers_of(const StoredWeights& weights, const std::set<std::string>& parts, const std::map<std::string, std::string>& mapping) {
  DumpStep out;
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < weights.entries().size(); ++i) {
    const auto& entry = weights.entries()[i];
    if (parts.count(entry.part) == 0) continue;
    auto name = entry.name;
    if (const auto mapped = mapping.find(name); mapped != mapping.end()) name = mapped->second;
    // In names of our optimizers ("conv1.weight.momentum"), the last part is a slot and not a level of the network. Names of torch's
    // optimizers, such as "state.0.exp_avg", contain no layer.
    const bool slot = entry.part == "optimizer" && !name.starts_with("state.");
    auto layer = layer_of(slot ? layer_of(name) : name);
    if (layer.empty()) layer = name;
    const auto prefix = entry.part == "model" ? "" : entry.part + " ";
    const auto [found, is_new] = places.emplace(prefix + layer, out.calls.size());
    if (is_new) {
      DumpCall call{.name = prefix + layer, .layer = prefix + layer, .type = "", .direction = "forward"};
      call.is_module = entry.part == "model";
      out.calls.push_back(std::move(call));
    }
    DumpItem item{.name = prefix + name, .side = "parameters", .dtype = dtype_text(entry.dtype), .shape = entry.shape};
    item.data_name = std::to_string(i);
    out.calls[found->second].items.push_back(std::move(item));
  }
  for (auto& call : out.calls) call.type = type_of_layer(call);
  return out;
}

}  // namespace npu_train::detail
