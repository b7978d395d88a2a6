// Templates in the part of Jinja's language that chat templates use: https://jinja.palletsprojects.com/templates
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "npu_train/io/json.hpp"

namespace npu_train::detail {

// ---- tokens ----

struct JinjaToken {
  enum class Kind { Text, BlockBegin, BlockEnd, OutputBegin, OutputEnd, Name, String, Integer, Number, Operator, End };
  Kind kind = Kind::End;
  std::string text;  // strings: without quotes, and with escapes replaced
  int64_t line = 1;
};

/// Divides a template into tokens, and removes white space around blocks as transformers does (trim_blocks, lstrip_blocks). `where` names
/// the template in errors.
std::vector<JinjaToken> jinja_tokens(std::string_view source, const std::string& where);

// ---- values ----

/// A value, or an undefined name. An undefined name is false and prints nothing.
struct JinjaValue {
  Json json;
  bool defined = true;

  static JinjaValue undefined() { return {Json(), false}; }
  bool is_true() const;
};

/// jinja_less(): Error(Data) for kinds that cannot be ordered. jinja_text(): Error(Data) for a list or an object.
bool jinja_equal(const Json& a, const Json& b);
bool jinja_less(const Json& a, const Json& b, const std::string& where);
std::string jinja_text(const JinjaValue& value, const std::string& where);

struct JinjaArguments {
  std::vector<JinjaValue> values;
  std::vector<std::pair<std::string, JinjaValue>> named;

  const JinjaValue* find(size_t index, std::string_view name) const;
};

/// Apply filters (value | name), tests (value is name) and methods (value.name()). Error(Data), with the place `where`, for an unknown
/// name.
JinjaValue jinja_filter(const std::string& name, const JinjaValue& value, const JinjaArguments& arguments, const std::string& where);
bool jinja_test(const std::string& name, const JinjaValue& value, const JinjaArguments& arguments, const std::string& where);
JinjaValue jinja_method(const std::string& name, const JinjaValue& value, const JinjaArguments& arguments, const std::string& where);
JinjaValue jinja_item(const JinjaValue& value, const JinjaValue& key, const std::string& where);
JinjaValue jinja_slice(const JinjaValue& value, const JinjaValue& begin, const JinjaValue& end, const JinjaValue& step,
                       const std::string& where);
/// Returns the elements that a loop over the value visits.
std::vector<Json> jinja_elements(const JinjaValue& value, const std::string& where);
/// Formats the current local time as strftime() does. Error(Data) for a conversion that is not supported.
std::string jinja_time(const std::string& format, const std::string& where);

// ---- trees ----

struct JinjaExpression {
  enum class Kind { Literal, Name, List, Dict, Unary, Binary, Conditional, Item, Attribute, Slice, Call, Filter, Test };
  Kind kind = Kind::Literal;
  std::string name;  // name of a variable, attribute, operator, filter or test
  JinjaValue value{};
  std::vector<std::unique_ptr<JinjaExpression>> parts;                          // nullptr: an omitted limit of a slice
  std::vector<std::pair<std::string, std::unique_ptr<JinjaExpression>>> named;  // arguments
  bool negated = false;                                                         // true: "is not"
  int64_t line = 1;
  int depth = 1;  // number of levels in this tree
};

struct JinjaNode {
  enum class Kind { Text, Output, If, For, Set, SetBlock, Break, Continue, Generation };
  Kind kind = Kind::Text;
  std::string text;                                     // content of a text; attribute that `set` assigns
  std::vector<std::string> names;                       // variables
  std::unique_ptr<JinjaExpression> expression, filter;  // filter: the condition of a loop
  std::vector<JinjaNode> body, otherwise;
  int64_t line = 1;
};

/// Error(Data), with the line, for anything that is not supported.
std::vector<JinjaNode> parse_jinja(std::string_view source, const std::string& where);

/// Bytes [begin, end) of a text.
using JinjaSpan = std::pair<size_t, size_t>;

/// Returns the text of a template with these variables. Appends to `generated` the spans of the text that `generation` blocks write, in
/// order. Error(Data) as for parse_jinja(), and for too many steps.
std::string render_jinja(const std::vector<JinjaNode>& nodes, const Json& variables, const std::string& where,
                         std::vector<JinjaSpan>* generated = nullptr);
/// Returns whether a template has a `generation` block.
bool has_generation(const std::vector<JinjaNode>& nodes);

}  // namespace npu_train::detail
