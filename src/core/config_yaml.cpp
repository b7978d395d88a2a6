// The only file that includes yaml-cpp. The events of yaml-cpp's parser build the nodes directly, so that limits apply during the parsing.
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <unordered_map>

#include "npu_train/core/config_node.hpp"
#include "npu_train/core/error.hpp"

namespace npu_train {
namespace {

constexpr size_t kMostNodes = 100'000;
constexpr size_t kDeepestYaml = 64;
constexpr size_t kMostText = size_t{16} << 20;
constexpr uintmax_t kLargestFile = uintmax_t{4} << 20;

/// Size of a node with all its descendants.
struct Weight {
  size_t nodes = 1;
  size_t text = 0;
  size_t depth = 1;
};

Weight weigh(const ConfigNode& node) {
  Weight sum{1, node.scalar().size(), 1};
  const auto add = [&](const ConfigNode& child) {
    const auto w = weigh(child);
    sum.nodes += w.nodes;
    sum.text += w.text;
    sum.depth = std::max(sum.depth, w.depth + 1);
  };
  for (const auto& item : node.items()) add(item);
  for (const auto& member : node.members()) {
    sum.text += member.key.size();
    add(member.value);
  }
  return sum;
}

class Builder final : public YAML::EventHandler {
 public:
  explicit Builder(const std::string& source) : source_(source) {}

  ConfigNode take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add(ConfigNode::parsed_scalar("", false, place(mark)), anchor, mark);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string& value) override {
    const bool is_text = tag == "!" || tag == "tag:yaml.org,2002:str";
    if (!is_text) refuse_tag(mark, tag);
    add(ConfigNode::parsed_scalar(value, is_text, place(mark)), anchor, mark);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchored_.find(anchor);
    if (found == anchored_.end()) fail(mark, "an alias inside the value to which it refers");
    auto copy = found->second.node;
    count(mark, found->second.weight);
    copy.set_mark(place(mark));
    add(std::move(copy), 0, mark, true);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    open(ConfigNode::list({}), mark, tag, anchor);
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    open(ConfigNode::map(), mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapEnd() override { close(); }

 private:
  struct Frame {
    ConfigNode node;
    YAML::anchor_t anchor = 0;
    YAML::Mark start;
    bool has_key = false;
    std::string key;
    Mark key_mark;
    std::unordered_map<std::string, int> lines;  // lines of the keys, to report both places of a repeated key
    std::vector<ConfigNode::Member> members;
  };
  struct Anchored {
    ConfigNode node;
    Weight weight;
  };

  Mark place(const YAML::Mark& mark) const { return {source_, mark.line + 1, mark.column + 1}; }

  [[noreturn]] void fail(const YAML::Mark& mark, const std::string& message, const std::string& hint = "") const {
    throw Error(ErrorKind::Usage, "config", place(mark).str() + ": " + message, hint);
  }

  void refuse_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (!tag.empty() && tag != "?" && tag != "!") fail(mark, "the tag '" + tag + "' is not allowed in configurations", "remove it");
  }

  void count(const YAML::Mark& mark, const Weight& weight) {
    nodes_ += weight.nodes;
    text_ += weight.text;
    if (nodes_ > kMostNodes) fail(mark, "more than 100,000 values, with aliases expanded");
    if (text_ > kMostText) fail(mark, "more than 16 MiB of text, with aliases expanded");
    if (frames_.size() + weight.depth > kDeepestYaml) fail(mark, "nested deeper than 64 levels");
  }

  void open(ConfigNode node, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    refuse_tag(mark, tag);
    count(mark, {});
    if (!frames_.empty() && frames_.back().node.is_map() && !frames_.back().has_key) fail(mark, "a list or a map cannot be a key");
    node.set_mark(place(mark));
    Frame frame;
    frame.node = std::move(node);
    frame.anchor = anchor;
    frame.start = mark;
    frames_.push_back(std::move(frame));
  }

  void close() {
    auto frame = std::move(frames_.back());
    frames_.pop_back();
    frame.node.assign_members(std::move(frame.members));
    add(std::move(frame.node), frame.anchor, frame.start, true);
  }

  void add(ConfigNode node, YAML::anchor_t anchor, const YAML::Mark& mark, bool counted = false) {
    if (!counted) count(mark, {1, node.scalar().size(), 1});
    if (anchor != 0) {
      const auto weight = weigh(node);
      count(mark, {weight.nodes, weight.text, 0});  // counts the copy that is kept for aliases
      anchored_[anchor] = {node, weight};
    }
    if (frames_.empty()) {
      root_ = std::move(node);
      return;
    }
    auto& frame = frames_.back();
    if (frame.node.is_list()) {
      frame.node.push_back(std::move(node));
    } else if (!frame.has_key) {
      take_key(frame, node, mark);
    } else {
      frame.members.push_back({std::move(frame.key), frame.key_mark, std::move(node)});
      frame.has_key = false;
    }
  }

  void take_key(Frame& frame, const ConfigNode& node, const YAML::Mark& mark) const {
    if (!node.is_scalar())
      fail(mark, node.is_null() ? "a key is missing or null" : "a list or a map cannot be a key", "put the key in quotes");
    if (node.scalar() == "<<" && !node.quoted()) fail(mark, "merge keys ('<<') are not supported", "write the keys out");
    const auto line = mark.line + 1;
    const auto [before, is_new] = frame.lines.emplace(node.scalar(), line);
    if (!is_new) {
      fail(mark,
           "the key '" + node.scalar() + "' is given twice: in line " + std::to_string(before->second) + " and in line " +
               std::to_string(line),
           "keep one of them");
    }
    frame.key = node.scalar();
    frame.key_mark = place(mark);
    frame.has_key = true;
  }

  std::string source_;
  ConfigNode root_;
  std::vector<Frame> frames_;
  std::map<YAML::anchor_t, Anchored> anchored_;
  size_t nodes_ = 0;
  size_t text_ = 0;
};

}  // namespace

namespace {

/// Returns the number of the last line, among the first `lines`, that is indented with a tab; 0 if there is none.
int tab_indented_line(std::string_view text, int lines) {
  int found = 0;
  for (int line = 1; line <= lines && !text.empty(); ++line) {
    const auto end = text.find('\n');
    const auto indent = text.substr(0, std::min(text.find_first_not_of(" \t"), end));
    if (indent.find('\t') != std::string_view::npos) found = line;
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return found;
}

}  // namespace

ConfigNode parse_yaml(std::string_view text, const std::string& source) {
  Builder builder(source);
  check(text.size() <= kLargestFile, ErrorKind::Usage, "config", source, ": ", text.size(), " bytes; allowed: at most 4 MiB");
  const auto zero = text.find('\0');
  check(zero == std::string_view::npos || text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff"), ErrorKind::Usage, "config", source,
        ": byte ", zero, " is zero: this is not a text file");
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder)) return {};
    Builder second(source);
    check(!parser.HandleNextDocument(second), ErrorKind::Usage, "config", source,
          ": more than one document ('---' inside the file); hint: use one file for each");
  } catch (const YAML::Exception& e) {
    const Mark mark{source, e.mark.is_null() ? 0 : e.mark.line + 1, e.mark.column + 1};
    const auto tab = tab_indented_line(text, mark.line);
    const auto hint = tab != 0 ? "line " + std::to_string(tab) + " is indented with a tab; YAML allows only spaces"
                      : text.find("..") != std::string_view::npos && text.find('{') != std::string_view::npos
                          ? std::string("a text with braces must be quoted, as in ['train-{000..147}.tar']")
                          : std::string();
    throw Error(ErrorKind::Usage, "config", mark.str() + ": invalid YAML: " + e.msg, hint, std::current_exception());
  } catch (const std::bad_alloc&) {
    throw translate_current_exception("config");
  }
  return builder.take();
}

ConfigNode load_yaml(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  check(std::filesystem::exists(status), ErrorKind::Usage, "config", path, ": no such file (relative paths start at ",
        std::filesystem::current_path(error).string(), ")");
  check(!std::filesystem::is_directory(status), ErrorKind::Usage, "config", path, ": this is a folder; hint: name a .yaml file in it");
  std::ifstream file(path, std::ios::binary);
  check(file.good(), ErrorKind::Usage, "config", path, ": cannot be read: ", std::strerror(errno));
  // Reads up to the limit instead of asking for the size, because pipes and devices report none.
  std::string text(kLargestFile + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  check(!file.bad(), ErrorKind::Usage, "config", path, ": cannot be read: ", std::strerror(errno));
  text.resize(static_cast<size_t>(file.gcount()));
  check(text.size() <= kLargestFile, ErrorKind::Usage, "config", path, ": larger than 4 MiB; a configuration is a small text file");
  return parse_yaml(text, path);
}

}  // namespace npu_train
