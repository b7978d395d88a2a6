// Execution of templates.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/core/message_text.hpp"
#include "text/jinja.hpp"

namespace npu_train::detail {
namespace {

constexpr int64_t kMostTemplateSteps = 10'000'000;
constexpr size_t kMostBytes = size_t{64} << 20;

class JinjaRun {
 public:
  JinjaRun(const Json& variables, const std::string& name, std::vector<JinjaSpan>* generated) : name_(name), generated_(generated) {
    scopes_.emplace_back();
    for (const auto& member : variables.members(name)) scopes_.front().emplace(member.key, JinjaValue{member.value});
  }

  std::string text(const std::vector<JinjaNode>& nodes) {
    std::string out;
    page_ = &out;
    run(nodes, out);
    return out;
  }

 private:
  enum class Flow { Next, Break, Continue };
  using Expression = JinjaExpression;

  std::string where(int64_t line) const { return str_cat(name_, ", line ", line); }
  [[noreturn]] void fail(int64_t line, const std::string& what) const {
    throw Error(ErrorKind::Data, "chat_template", where(line) + ": " + what);
  }

  void step(int64_t line) {
    if (++steps_ > kMostTemplateSteps) fail(line, "the template takes more than 10 million steps");
  }

  void append(std::string& out, const std::string& more, int64_t line) const {
    out += more;
    if (out.size() > kMostBytes) fail(line, "the text has more than 64 MiB");
  }

  Flow run(const std::vector<JinjaNode>& nodes, std::string& out) {
    for (const auto& node : nodes) {
      step(node.line);
      const auto flow = run(node, out);
      if (flow != Flow::Next) return flow;
    }
    return Flow::Next;
  }

  Flow run(const JinjaNode& node, std::string& out) {
    switch (node.kind) {
      case JinjaNode::Kind::Text:
        append(out, node.text, node.line);
        return Flow::Next;
      case JinjaNode::Kind::Output:
        append(out, jinja_text(value(*node.expression), where(node.line)), node.line);
        return Flow::Next;
      case JinjaNode::Kind::If:
        return run(value(*node.expression).is_true() ? node.body : node.otherwise, out);
      case JinjaNode::Kind::For:
        return loop(node, out);
      case JinjaNode::Kind::Set:
        assign(node, value(*node.expression));
        return Flow::Next;
      case JinjaNode::Kind::SetBlock: {
        std::string inner;
        const auto flow = run(node.body, inner);
        assign(node, {inner});
        return flow;
      }
      case JinjaNode::Kind::Generation:
        return generation(node, out);
      case JinjaNode::Kind::Break:
        return Flow::Break;
      case JinjaNode::Kind::Continue:
        return Flow::Continue;
    }
    return Flow::Next;
  }

  // A variable that is set in the block does not exist after the block, because a generation block is a macro in Jinja.
  Flow generation(const JinjaNode& node, std::string& out) {
    const bool outermost = !std::exchange(generating_, true);
    const auto begin = out.size();
    scopes_.emplace_back();
    const auto flow = run(node.body, out);
    scopes_.pop_back();
    if (!outermost) return flow;
    generating_ = false;
    if (generated_ == nullptr) return flow;
    if (&out != page_) fail(node.line, "a generation block within a block of 'set' has no place in the text");
    generated_->emplace_back(begin, out.size());
    return flow;
  }

  void assign(const JinjaNode& node, JinjaValue of) {
    if (node.text.empty()) {
      scopes_.back()[node.names.front()] = std::move(of);
      return;
    }
    auto* object = find(node.names.front());
    if (object == nullptr || !object->json.is_object()) fail(node.line, "'" + node.names.front() + "' is not a namespace");
    object->json.set(node.text, of.json);
  }

  void bind(const JinjaNode& node, const Json& element) {
    auto& scope = scopes_.back();
    if (node.names.size() == 1) {
      scope[node.names.front()] = {element};
      return;
    }
    if (!element.is_array() || element.items("").size() != node.names.size())
      fail(node.line, str_cat("an element does not have ", node.names.size(), " parts"));
    for (size_t i = 0; i < node.names.size(); ++i) scope[node.names[i]] = {element.items("")[i]};
  }

  Flow loop(const JinjaNode& node, std::string& out) {
    auto elements = jinja_elements(value(*node.expression), where(node.line));
    scopes_.emplace_back();
    if (node.filter) {
      std::vector<Json> kept;
      for (auto& element : elements) {
        step(node.line);
        bind(node, element);
        if (value(*node.filter).is_true()) kept.push_back(std::move(element));
      }
      elements = std::move(kept);
    }
    for (size_t i = 0; i < elements.size(); ++i) {
      step(node.line);
      scopes_.back().clear();
      bind(node, elements[i]);
      scopes_.back()["loop"] = {loop_value(elements, i)};
      if (run(node.body, out) == Flow::Break) break;
    }
    scopes_.pop_back();
    return elements.empty() ? run(node.otherwise, out) : Flow::Next;
  }

  static Json loop_value(const std::vector<Json>& elements, size_t i) {
    const auto at = static_cast<int64_t>(i), size = static_cast<int64_t>(elements.size());
    auto out = Json::object({{"index", at + 1},
                             {"index0", at},
                             {"revindex", size - at},
                             {"revindex0", size - at - 1},
                             {"first", at == 0},
                             {"last", at + 1 == size},
                             {"length", size}});
    if (i > 0) out.push_member("previtem", elements[i - 1]);
    if (i + 1 < elements.size()) out.push_member("nextitem", elements[i + 1]);
    return out;
  }

  JinjaValue* find(const std::string& name) {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
      if (const auto found = scope->find(name); found != scope->end()) return &found->second;
    return nullptr;
  }

  JinjaValue value(const Expression& e) {
    step(e.line);
    const auto part = [&](size_t i) { return value(*e.parts[i]); };
    switch (e.kind) {
      case Expression::Kind::Literal:
        return e.value;
      case Expression::Kind::Name: {
        const auto* found = find(e.name);
        return found != nullptr                                          ? *found
               : e.name == "strftime_now" || e.name == "raise_exception" ? JinjaValue{true}
                                                                         : JinjaValue::undefined();
      }
      case Expression::Kind::List: {
        auto out = Json::array();
        for (size_t i = 0; i < e.parts.size(); ++i) out.push_back(part(i).json);
        return {out};
      }
      case Expression::Kind::Dict: {
        auto out = Json::object();
        for (size_t i = 0; i + 1 < e.parts.size(); i += 2) out.set(part(i).json.text(where(e.line)), part(i + 1).json);
        return {out};
      }
      case Expression::Kind::Unary:
        return unary(e, part(0));
      case Expression::Kind::Binary:
        return binary(e);
      case Expression::Kind::Conditional:
        return part(0).is_true() ? part(1) : e.parts.size() > 2 ? part(2) : JinjaValue::undefined();
      case Expression::Kind::Item:
        return jinja_item(part(0), part(1), where(e.line));
      case Expression::Kind::Attribute:
        return jinja_item(part(0), {e.name}, where(e.line));
      case Expression::Kind::Slice: {
        const auto limit = [&](size_t i) { return e.parts[i] ? part(i) : JinjaValue::undefined(); };
        return jinja_slice(part(0), limit(1), limit(2), limit(3), where(e.line));
      }
      case Expression::Kind::Filter:
        return jinja_filter(e.name, part(0), arguments(e), where(e.line));
      case Expression::Kind::Test:
        return {jinja_test(e.name, part(0), arguments(e), where(e.line)) != e.negated};
      case Expression::Kind::Call:
        return call(e);
    }
    return JinjaValue::undefined();
  }

  JinjaArguments arguments(const Expression& e) {
    JinjaArguments out;
    for (size_t i = 1; i < e.parts.size(); ++i) out.values.push_back(value(*e.parts[i]));
    for (const auto& [key, each] : e.named) out.named.emplace_back(key, value(*each));
    return out;
  }

  JinjaValue unary(const Expression& e, const JinjaValue& of) const {
    if (e.name == "not") return {!of.is_true()};
    if (of.json.kind() == Json::Kind::Integer) return {-of.json.integer("")};
    return {-of.json.number(where(e.line))};
  }

  JinjaValue binary(const Expression& e) {
    const auto left = value(*e.parts[0]);
    if (e.name == "and") return left.is_true() ? value(*e.parts[1]) : left;
    if (e.name == "or") return left.is_true() ? left : value(*e.parts[1]);
    const auto right = value(*e.parts[1]);
    const auto& sign = e.name;
    if (sign == "==") return {left.defined == right.defined && jinja_equal(left.json, right.json)};
    if (sign == "!=") return {left.defined != right.defined || !jinja_equal(left.json, right.json)};
    if (sign == "in" || sign == "not in") return {contains(right, left, e.line) == (sign == "in")};
    if (sign == "~") return {jinja_text(left, where(e.line)) + jinja_text(right, where(e.line))};
    if (!left.defined || !right.defined) fail(e.line, "'" + sign + "' of a value that is not defined");
    if (sign == "<") return {jinja_less(left.json, right.json, where(e.line))};
    if (sign == ">") return {jinja_less(right.json, left.json, where(e.line))};
    if (sign == "<=") return {!jinja_less(right.json, left.json, where(e.line))};
    if (sign == ">=") return {!jinja_less(left.json, right.json, where(e.line))};
    return arithmetic(e, left.json, right.json);
  }

  bool contains(const JinjaValue& all, const JinjaValue& one, int64_t line) const {
    if (!all.defined) return false;
    if (all.json.is_text()) return all.json.text("").find(one.json.text(where(line))) != std::string::npos;
    const auto elements = jinja_elements(all, where(line));
    return std::any_of(elements.begin(), elements.end(), [&](const Json& each) { return jinja_equal(each, one.json); });
  }

  JinjaValue arithmetic(const Expression& e, const Json& left, const Json& right) const {
    const auto& sign = e.name;
    if (sign == "+" && left.is_text() && right.is_text()) {
      std::string out = left.text("");
      append(out, right.text(""), e.line);
      return {out};
    }
    if (sign == "+" && left.is_array() && right.is_array()) {
      auto out = left;
      for (const auto& each : right.items("")) out.push_back(each);
      if (out.items("").size() > size_t{1} << 20) fail(e.line, "a list has more than a million elements");
      return {out};
    }
    if (left.kind() == Json::Kind::Integer && right.kind() == Json::Kind::Integer && sign != "/") {
      const auto out = of_integers(sign, left.integer(""), right.integer(""));
      if (!out) fail(e.line, "the result of '" + sign + "' is not a number");
      return {*out};
    }
    const double a = left.number(where(e.line)), b = right.number(where(e.line));
    if (sign == "+") return {a + b};
    if (sign == "-") return {a - b};
    if (sign == "*") return {a * b};
    if (b == 0) fail(e.line, "division by zero");
    if (sign == "/") return {a / b};
    const double floor = std::floor(a / b);
    return {sign == "//" ? floor : a - floor * b};
  }

  // Returns nullopt for division by zero, and for a result beyond 64 bits.
  static std::optional<int64_t> of_integers(const std::string& sign, int64_t a, int64_t b) {
    int64_t out = 0;
    bool bad = false;
    if (sign == "+") bad = __builtin_add_overflow(a, b, &out);
    if (sign == "-") bad = __builtin_sub_overflow(a, b, &out);
    if (sign == "*") bad = __builtin_mul_overflow(a, b, &out);
    if (sign == "//" || sign == "%") {
      if (b == 0 || b == -1) return b == 0 ? std::nullopt : of_integers(sign == "//" ? "-" : "*", 0, a);
      const int64_t quotient = a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
      out = sign == "//" ? quotient : a - quotient * b;
    }
    return bad ? std::nullopt : std::optional(out);
  }

  JinjaValue call(const Expression& e) {
    const auto given = arguments(e);
    const auto& callee = *e.parts[0];
    if (callee.kind == Expression::Kind::Attribute) return jinja_method(callee.name, value(*callee.parts[0]), given, where(e.line));
    if (callee.kind != Expression::Kind::Name) fail(e.line, "this call is not supported");
    if (callee.name == "namespace") {
      auto out = Json::object();
      for (const auto& [key, each] : given.named) out.set(key, each.json);
      return {out};
    }
    if (callee.name == "raise_exception")
      fail(e.line, "the template refuses the messages: " + (given.values.empty() ? "" : jinja_text(given.values[0], where(e.line))));
    if (callee.name == "strftime_now" && given.values.size() == 1)
      return {jinja_time(given.values[0].json.text(where(e.line)), where(e.line))};
    if (callee.name == "range") return range(given, e.line);
    fail(e.line, "the function '" + visible_start(callee.name, 40) +
                     "' is not supported; allowed: namespace, raise_exception, range, strftime_now");
  }

  JinjaValue range(const JinjaArguments& given, int64_t line) {
    if (given.values.empty() || given.values.size() > 3) fail(line, "range() has one to three arguments");
    const auto number = [&](size_t i) { return given.values[i].json.integer(where(line)); };
    const int64_t begin = given.values.size() > 1 ? number(0) : 0, end = number(given.values.size() > 1 ? 1 : 0);
    const int64_t stride = given.values.size() > 2 ? number(2) : 1;
    if (stride == 0 || std::abs(begin) > kMostTemplateSteps || std::abs(end) > kMostTemplateSteps || std::abs(stride) > kMostTemplateSteps)
      fail(line, "the arguments of range() are out of range");
    auto out = Json::array();
    for (int64_t i = begin; stride > 0 ? i < end : i > end; i += stride) {
      step(line);
      out.push_back(i);
    }
    return {out};
  }

  const std::string& name_;
  std::vector<JinjaSpan>* generated_;
  const std::string* page_ = nullptr;  // the text that the template writes
  bool generating_ = false;
  std::vector<std::map<std::string, JinjaValue>> scopes_;
  int64_t steps_ = 0;
};

}  // namespace

std::string render_jinja(const std::vector<JinjaNode>& nodes, const Json& variables, const std::string& where,
                         std::vector<JinjaSpan>* generated) {
  return JinjaRun(variables, where, generated).text(nodes);
}

bool has_generation(const std::vector<JinjaNode>& nodes) {
  return std::any_of(nodes.begin(), nodes.end(), [](const JinjaNode& node) {
    return node.kind == JinjaNode::Kind::Generation || has_generation(node.body) || has_generation(node.otherwise);
  });
}

}  // namespace npu_train::detail
