#include "npu_train/tools/align/dump_reader.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "npu_train/io/file.hpp"
#include "npu_train/io/json.hpp"
#include "tools/align/dump_places.hpp"

namespace npu_train {
namespace fs = std::filesystem;
namespace {

using detail::number_after, detail::description_in, detail::kDumpJson, detail::kDebugJson;

constexpr JsonLimits kLimits{.values = 20'000'000, .max_bytes = uint64_t{1} << 30};
constexpr int64_t kMostItems = 1'000'000;  // calls and values of a step; each takes some 300 bytes in memory, a null only 5 in the file
constexpr size_t kMostNameBytes = size_t{128} << 20;  // total length of all names; each name of a value includes the name of the call
constexpr size_t kMostSteps = 100'000;
constexpr size_t kDeepestItem = 16;

std::vector<fs::path> folders_in(const fs::path& folder) {
  std::vector<fs::path> out;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end && out.size() < kMostSteps; it.increment(error))
    if (it->is_directory(error)) out.push_back(it->path());
  return out;
}

void add_ranks(const fs::path& step_folder, int64_t step, std::vector<Dump::Place>& places) {
  if (!description_in(step_folder).empty()) places.push_back({step, "rank0", step_folder});
  std::vector<Dump::Place> found;
  for (const auto& folder : folders_in(step_folder)) {
    const auto name = folder.filename().string();
    const bool known = name == "rank" || number_after(name, "rank") || number_after(name, "proc");
    if (known && !description_in(folder).empty()) found.push_back({step, name, folder});
  }
  // in a run with one process, msprobe names the folder "proc<N>" or "rank"
  if (found.size() == 1 && !number_after(found[0].rank, "rank")) found[0].rank = "rank0";
  places.insert(places.end(), found.begin(), found.end());
}

std::vector<Dump::Place> places_in(const fs::path& path) {
  std::vector<Dump::Place> out;
  for (const auto& folder : folders_in(path))
    if (const auto step = number_after(folder.filename().string(), "step")) add_ranks(folder, *step, out);
  if (out.empty()) {
    auto named = fs::absolute(path).lexically_normal();
    if (!named.has_filename()) named = named.parent_path();  // "step3/"
    auto step = number_after(named.filename().string(), "step");
    if (!step) step = number_after(named.parent_path().filename().string(), "step");
    add_ranks(path, step.value_or(0), out);
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) {
    return std::tuple(a.step, number_after(a.rank, "rank").value_or(-1)) < std::tuple(b.step, number_after(b.rank, "rank").value_or(-1));
  });
  return out;
}

// Returns the folder if `path` is a dump.json or debug.json, otherwise `path`.
fs::path folder_of(const fs::path& path) {
  std::error_code error;
  if ((path.filename() != kDumpJson && path.filename() != kDebugJson) || !fs::is_regular_file(path, error)) return path;
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> out(1);
  for (const char c : text)
    if (c == '.')
      out.emplace_back();
    else
      out.back() += c;
  return out;
}

constexpr const char *kNamed = "debug", *kGradient = "_grad";

// Parses Module.{path}.{Class}.{direction}.{number}, {Prefix}.{api}.{number}.{direction} and {name}.{number}.debug. Leaves other names
// unchanged.
void read_name(DumpCall& call) {
  const auto parts = split(call.name);
  const auto n = parts.size();
  const auto is_direction = [](const std::string& p) { return p == "forward" || p == "backward" || p == "parameters_grad"; };
  call.layer = call.type = call.name;
  call.direction = "forward";
  const auto piece = [&](size_t from, size_t to) {
    return join(std::vector<std::string>(parts.begin() + static_cast<long>(from), parts.begin() + static_cast<long>(to)), ".");
  };
  if (n >= 4 && (parts[0] == "Module" || parts[0] == "Cell") && is_direction(parts[n - 2])) {
    call.is_module = true;
    call.direction = parts[n - 2];
    call.number = number_after(parts[n - 1], "").value_or(0);
    call.type = parts[n - 3];
    call.layer = piece(1, n - 3);
  } else if (n >= 4 && is_direction(parts[n - 1])) {
    call.direction = parts[n - 1];
    call.number = number_after(parts[n - 2], "").value_or(0);
    call.type = piece(1, n - 2);
    call.layer = piece(1, n - 1);
  } else if (n >= 3 && parts[n - 1] == kNamed) {
    call.number = number_after(parts[n - 2], "").value_or(0);
    call.type = kNamed;
    call.layer = piece(0, n - 2);
  }
}

bool is_named_value(const DumpCall& call) { return call.type == kNamed && !call.is_module; }

std::optional<double> number_of(const Json* value) {
  if (value == nullptr || value->is_null()) return std::nullopt;
  if (value->kind() == Json::Kind::Boolean) return value->boolean("") ? 1.0 : 0.0;
  try {
    return value->number("dump.json");
  } catch (const Error&) {  // msprobe writes a text in place of a missing number
    return std::nullopt;
  }
}

// Returns -1 for a value that is not a size.
int64_t size_of(const Json* value) {
  const auto n = number_of(value).value_or(-1);
  return n >= 0 && n < 0x1p53 ? static_cast<int64_t>(n) : -1;
}

std::string text_of(const Json& value) {
  if (value.is_text()) return value.text("");
  return value.is_null() ? "None" : value.dump(0).substr(0, 200);
}

// Limits the memory that a small file can make the reader allocate.
class ItemBudget {
 public:
  explicit ItemBudget(const std::string& source) : source_(source) {}
  void take(const std::string& name) {
    check(++items_ <= kMostItems, ErrorKind::Data, "dump", source_, ": more than ", with_commas(kMostItems),
          " calls and values in one step; hint: dump fewer layers (dump.list, dump.sample) or level: module");
    name_bytes_ += name.size();
    check(name_bytes_ <= kMostNameBytes, ErrorKind::Data, "dump", source_, ": names of more than ",
          human_bytes(static_cast<double>(kMostNameBytes)), " in one step; hint: dump fewer layers (dump.list, dump.sample)");
  }

 private:
  const std::string& source_;
  int64_t items_ = 0;
  size_t name_bytes_ = 0;
};

class CallReader {
 public:
  CallReader(DumpCall& call, const std::string& source, ItemBudget& budget) : call_(call), source_(source), budget_(budget) {}

  void read(const Json& content) {
    if (is_named_value(call_)) return visit(content, call_.name, "output", 0);
    if (!content.is_object()) return;
    for (const auto& [key, value] : content.members(source_)) {
      if (call_.direction == "parameters_grad")
        visit(value, call_.name + "." + key, "parameters_grad", 0);
      else if (key == "input_args" || key == "input")
        visit(value, call_.name + ".input", "input", 0);
      else if (key == "input_kwargs")
        visit(value, call_.name + ".input", "input", 0);
      else if (key == "output")
        visit(value, call_.name + ".output", "output", 0);
      else if (key == "parameters")
        visit(value, call_.name + ".parameters", "parameters", 0);
    }
  }

 private:
  void visit(const Json& value, const std::string& name, const std::string& side, size_t depth) {
    if (depth > kDeepestItem) return;
    const auto* type = value.find("type");
    if (value.is_null() || (type != nullptr && type->is_text())) {
      add(value, name, side);
    } else if (value.is_object()) {
      for (const auto& [key, item] : value.members(source_)) visit(item, name + "." + key, side, depth + 1);
    } else if (value.is_array()) {
      const auto& items = value.items(source_);
      // parameters_grad is {"weight": [leaf]}; the file name of this leaf has no ".0"
      if (side == "parameters_grad" && items.size() == 1) return visit(items[0], name, side, depth + 1);
      for (size_t i = 0; i < items.size(); ++i) visit(items[i], name + "." + std::to_string(i), side, depth + 1);
    }
  }

  void add(const Json& leaf, const std::string& name, const std::string& side) {
    budget_.take(name);
    DumpItem item{.name = name, .side = side, .dtype = {}};
    if (leaf.is_null()) {
      item.value = "None";
    } else if (const auto* dtype = leaf.find("dtype"); dtype != nullptr && dtype->is_text()) {
      read_tensor(leaf, item);
    } else {
      item.type = leaf.find("type")->text(source_);
      const auto* value = leaf.find("value");
      item.value = value != nullptr ? text_of(*value) : "?";
    }
    call_.items.push_back(std::move(item));
  }

  void read_tensor(const Json& leaf, DumpItem& item) {
    item.dtype = leaf.find("dtype")->text(source_);
    if (const auto* shape = leaf.find("shape"); shape != nullptr && shape->is_array())
      for (const auto& size : shape->items(source_)) item.shape.push_back(size_of(&size));
    item.max = number_of(leaf.find("Max"));
    item.min = number_of(leaf.find("Min"));
    item.mean = number_of(leaf.find("Mean"));
    item.norm = number_of(leaf.find("Norm"));
    if (const auto* grad = leaf.find("requires_grad"); grad != nullptr && grad->kind() == Json::Kind::Boolean)
      item.requires_grad = grad->boolean(source_);
    const auto text = [&](const char* key) {
      const auto* found = leaf.find(key);
      return found != nullptr && found->is_text() ? found->text(source_) : std::string();
    };
    item.crc = text("md5");
    item.data_name = text("data_name");
    item.parameter = text("parameter");
    if (!item.parameter.empty()) item.side = "parameters";
    item.sampled = std::max<int64_t>(0, size_of(leaf.find("sampled")));
    if (const auto phase = text("phase"); !phase.empty() && is_named_value(call_)) {
      call_.direction = "backward";
      item.unscaled = phase == "update";
      if (phase == "backward" && call_.layer.ends_with(kGradient))
        call_.layer.resize(call_.layer.size() - std::string_view(kGradient).size());
    }
  }

  DumpCall& call_;
  const std::string& source_;
  ItemBudget& budget_;
};

void read_parents(const fs::path& path, std::vector<DumpCall>& calls) {
  std::error_code error;
  if (!fs::is_regular_file(fs::symlink_status(path, error))) return;
  const auto construct = load_json_prefix(path, kLimits).value;
  if (!construct.is_object()) return;
  std::map<std::string_view, DumpCall*> known;
  for (auto& call : calls) known.emplace(call.name, &call);
  for (const auto& [child, parent] : construct.members("construct.json")) {
    const auto found = known.find(child);
    if (found == known.end()) continue;
    if (parent.is_text()) found->second->parent = parent.text("");
    if (parent.is_array() && !parent.items("").empty() && parent.items("")[0].is_text())
      found->second->parent = parent.items("")[0].text("");
  }
}

// Moves the gradients to the end, in the order of a backward pass. msprobe writes the gradient of a named value x next to x, as a named
// value x_grad.
void find_gradients(std::vector<DumpCall>& calls) {
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < calls.size(); ++i) places.emplace(calls[i].name, i);
  std::vector<std::pair<size_t, DumpCall>> gradients;  // each with the index of the value whose gradient it is
  for (auto& call : calls) {
    if (call.type != kNamed || !call.layer.ends_with(kGradient)) continue;
    const auto of = call.layer.substr(0, call.layer.size() - std::string_view(kGradient).size());
    const auto value = places.find(of + call.name.substr(call.layer.size()));
    if (value == places.end()) continue;
    call.direction = "backward";
    call.layer = of;
    gradients.emplace_back(value->second, std::move(call));
  }
  std::erase_if(calls, [](const auto& call) { return call.name.empty(); });  // removes the calls that were moved
  std::stable_sort(gradients.begin(), gradients.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  for (auto& [place, call] : gradients) calls.push_back(std::move(call));
}

/// Whether a truncated file ends between two calls: inside its object "data", but not inside a call.
bool ends_between_calls(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  int depth = 0;
  bool in_text = false, escaped = false;
  for (std::istreambuf_iterator<char> c(in), end; c != end; ++c) {
    if (in_text) {
      in_text = escaped || *c != '"';
      escaped = !escaped && *c == '\\';
    } else {
      in_text = *c == '"';
      depth += (*c == '{' || *c == '[') - (*c == '}' || *c == ']');
    }
  }
  return depth <= 2;
}

}  // namespace

Dump Dump::open(const fs::path& given) {
  std::error_code error;
  const auto path = folder_of(given);
  check(fs::is_directory(path, error), ErrorKind::Data, "dump", path.string(),
        ": not a folder; a dump is a folder with step<N>/rank<R>/dump.json");
  Dump out;
  out.path_ = path;
  out.places_ = places_in(path);
  check(!out.places_.empty(), ErrorKind::Data, "dump", path.string(),
        ": contains neither dump.json nor step<N>/rank<R>/dump.json; hint: train_app CONFIG dump.level=module writes a dump into the run's "
        "folder");
  for (size_t i = 1; i < out.places_.size(); ++i) {
    const auto &x = out.places_[i - 1], &y = out.places_[i];
    check(x.step != y.step || x.rank != y.rank, ErrorKind::Data, "dump", x.folder.string(), " and ", y.folder.string(), ": both are step ",
          x.step, " of ", x.rank, "; hint: give one of them, or remove one");
  }
  const auto inside = fs::canonical(path, error);
  for (const auto& place : out.places_) {
    const auto file = description_in(place.folder);
    const auto real = fs::canonical(file, error);
    check(!error && std::mismatch(inside.begin(), inside.end(), real.begin(), real.end()).first == inside.end(), ErrorKind::Data, "dump",
          file.string(), ": a link in its path leads out of the dump; hint: give the folder to which it leads");
  }
  return out;
}

bool is_dump(const fs::path& given) {
  std::error_code error;
  const auto path = folder_of(given);
  return fs::is_directory(path, error) && !places_in(path).empty();
}

fs::path dump_around(const fs::path& path) {
  const auto whole = fs::absolute(path).lexically_normal();
  const auto name = (whole.has_filename() ? whole : whole.parent_path()).filename();
  const auto folder = (whole.has_filename() ? whole : whole.parent_path()).parent_path();
  std::error_code error;
  const bool part = name == "stack.json" || name == "construct.json" || name == "dump_tensor_data";
  return part && !description_in(folder).empty() ? folder : fs::path();
}

DumpStep read_dump_step(const Dump::Place& place) {
  DumpStep out{.step = place.step, .rank = place.rank, .folder = place.folder, .task = {}, .level = {}};
  const auto path = description_in(place.folder);
  const auto source = path.string();
  const auto document = load_json_prefix(path, kLimits);
  const auto& json = document.value;
  out.complete = document.complete;
  check(json.is_object(), ErrorKind::Data, "dump", source, ": not a JSON object, so not a dump.json");
  const auto text = [&](const char* key) {
    const auto* found = json.find(key);
    return found != nullptr && found->is_text() ? found->text(source) : std::string();
  };
  out.task = text("task");
  out.level = text("level");
  if (const auto* facts = json.find("npu_train"); facts != nullptr && facts->is_object())
    for (const auto& [key, value] : facts->members(source)) out.facts[key] = text_of(value);
  const auto* data = json.find("data");
  check(data == nullptr || data->is_object(), ErrorKind::Data, "dump", source, ": \"data\" is not an object, so not a dump.json");
  check(data != nullptr || !out.complete, ErrorKind::Data, "dump", source, ": has no \"data\", so not a dump.json");
  ItemBudget budget(source);
  if (data != nullptr)
    for (const auto& [name, content] : data->members(source)) {
      budget.take(name);
      auto& call = out.calls.emplace_back();
      call.name = name;
      read_name(call);
      CallReader(call, source, budget).read(content);
    }
  if (!out.complete && !out.calls.empty() && !ends_between_calls(path)) out.calls.pop_back();  // drops the last call, which is incomplete
  if (out.level == "debug" && out.facts.empty()) find_gradients(out.calls);
  read_parents(place.folder / "construct.json", out.calls);
  return out;
}

fs::path DumpStep::file_of(const DumpItem& item) const {
  check(!item.data_name.empty(), ErrorKind::Data, "dump", item.name, ": the dump contains only its statistics, not its values");
  std::error_code error;
  check(!fs::is_symlink(folder / "dump_tensor_data", error), ErrorKind::Data, "dump", (folder / "dump_tensor_data").string(),
        ": a link that leads out of the dump");
  try {
    return safe_join(folder / "dump_tensor_data", item.data_name);
  } catch (const Error& e) {
    throw Error(ErrorKind::Data, "dump", folder.string() + ": the file name of " + item.name + " leads out of the dump: " + e.what());
  }
}

}  // namespace npu_train
