#include <algorithm>
#include <array>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/core/text.hpp"
#include "text/jinja.hpp"

namespace npu_train::detail {
namespace {

using Kind = JinjaToken::Kind;
using Expression = std::unique_ptr<JinjaExpression>;
constexpr int kDeepest = 100, kLongestChain = 500;

class JinjaParser {
 public:
  JinjaParser(std::string_view source, const std::string& where) : where_(where), tokens_(jinja_tokens(source, where)) {}

  std::vector<JinjaNode> run() {
    auto out = nodes({});
    if (now().kind != Kind::End) fail("'" + now().text + "' is not expected");
    return out;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::Data, "chat_template", str_cat(where_, ", line ", now().line, ": ", what));
  }

  const JinjaToken& now() const { return tokens_[at_]; }
  const JinjaToken& take() { return tokens_[at_ == tokens_.size() - 1 ? at_ : at_++]; }
  bool is(Kind kind, std::string_view text) const { return now().kind == kind && now().text == text; }
  bool is_word(std::string_view text) const { return is(Kind::Name, text); }
  bool is_sign(std::string_view text) const { return is(Kind::Operator, text); }
  bool skip(Kind kind, std::string_view text) {
    const bool found = is(kind, text);
    if (found) take();
    return found;
  }
  bool skip_sign(std::string_view text) { return skip(Kind::Operator, text); }
  bool skip_word(std::string_view text) { return skip(Kind::Name, text); }
  void expect_sign(std::string_view text) {
    if (!skip_sign(text)) fail(str_cat("'", text, "' is expected before '", now().text, "'"));
  }
  std::string name() {
    if (now().kind != Kind::Name) fail("a name is expected before '" + now().text + "'");
    return take().text;
  }
  void end_of_block() {
    if (now().kind != Kind::BlockEnd) fail("the block does not end before '" + now().text + "'");
    take();
  }

  // Parses up to a block tag that begins with one of the words in `ends`.
  std::vector<JinjaNode> nodes(const std::vector<std::string_view>& ends) {
    if (++depth_ > kDeepest) fail("blocks are nested too deeply");
    std::vector<JinjaNode> out;
    for (; now().kind != Kind::End;) {
      if (now().kind == Kind::Text) {
        JinjaNode node;
        node.text = take().text;
        out.push_back(std::move(node));
      } else if (now().kind == Kind::OutputBegin) {
        out.push_back(output());
      } else {
        const auto& word = tokens_[at_ + 1];
        if (word.kind == Kind::Name && std::find(ends.begin(), ends.end(), word.text) != ends.end()) break;
        take();
        out.push_back(block());
      }
    }
    --depth_;
    return out;
  }

  JinjaNode node_of(JinjaNode::Kind kind) const {
    JinjaNode out;
    out.kind = kind;
    out.line = now().line;
    return out;
  }

  JinjaNode output() {
    take();
    auto out = node_of(JinjaNode::Kind::Output);
    out.expression = expression();
    if (now().kind != Kind::OutputEnd) fail("'}}' is expected before '" + now().text + "'");
    take();
    return out;
  }

  // Takes "{% WORD %}".
  void end_tag(std::string_view word) {
    if (now().kind != Kind::BlockBegin) fail(str_cat("'", word, "' is missing"));
    take();
    if (!skip_word(word)) fail(str_cat("'", word, "' is expected"));
    end_of_block();
  }

  JinjaNode block() {
    const auto word = name();
    if (word == "if") return condition();
    if (word == "for") return loop();
    if (word == "set") return assignment();
    if (word == "break" || word == "continue") {
      auto out = node_of(word == "break" ? JinjaNode::Kind::Break : JinjaNode::Kind::Continue);
      end_of_block();
      return out;
    }
    if (word == "generation") {  // marks the text of the assistant
      auto out = node_of(JinjaNode::Kind::Generation);
      end_of_block();
      out.body = nodes({"endgeneration"});
      end_tag("endgeneration");
      return out;
    }
    fail("the block '" + word + "' is not supported; allowed: break, continue, for, generation, if, set");
  }

  JinjaNode condition() {
    auto out = node_of(JinjaNode::Kind::If);
    out.expression = expression();
    end_of_block();
    out.body = nodes({"elif", "else", "endif"});
    if (now().kind != Kind::BlockBegin) fail("'endif' is missing");
    take();
    if (skip_word("elif")) {
      if (++depth_ > kDeepest) fail("blocks are nested too deeply");
      out.otherwise.push_back(condition());
      --depth_;
      return out;
    }
    if (skip_word("else")) {
      end_of_block();
      out.otherwise = nodes({"endif"});
      end_tag("endif");
    } else {
      take();
      end_of_block();
    }
    return out;
  }

  JinjaNode loop() {
    auto out = node_of(JinjaNode::Kind::For);
    do {
      out.names.push_back(name());
    } while (skip_sign(","));
    if (!skip_word("in")) fail("'in' is expected before '" + now().text + "'");
    out.expression = disjunction();
    if (skip_word("if")) out.filter = expression();
    if (is_word("recursive")) fail("recursive loops are not supported");
    end_of_block();
    out.body = nodes({"else", "endfor"});
    if (now().kind == Kind::BlockBegin && tokens_[at_ + 1].text == "else") {
      take();
      take();
      end_of_block();
      out.otherwise = nodes({"endfor"});
    }
    end_tag("endfor");
    return out;
  }

  JinjaNode assignment() {
    auto out = node_of(JinjaNode::Kind::Set);
    out.names.push_back(name());
    if (skip_sign(".")) out.text = name();
    if (skip_sign("=")) {
      out.expression = expression();
      if (is_sign(",")) fail("several values of 'set' are not supported");
      end_of_block();
      return out;
    }
    out.kind = JinjaNode::Kind::SetBlock;
    end_of_block();
    out.body = nodes({"endset"});
    end_tag("endset");
    return out;
  }

  // ---- expressions ----

  Expression make(JinjaExpression::Kind kind, std::string text, Expression first = nullptr, Expression second = nullptr) {
    auto out = std::make_unique<JinjaExpression>();
    out->kind = kind;
    out->name = std::move(text);
    out->line = now().line;
    for (auto* part : {&first, &second}) {
      if (*part == nullptr) continue;
      out->depth = std::max(out->depth, (*part)->depth + 1);
      out->parts.push_back(std::move(*part));
    }
    if (out->depth > kLongestChain) fail("an expression has too many parts");
    return out;
  }

  Expression expression() {
    if (++depth_ > kDeepest) fail("expressions are nested too deeply");
    auto out = disjunction();
    while (skip_word("if")) {
      auto condition = make(JinjaExpression::Kind::Conditional, "", disjunction(), std::move(out));
      if (skip_word("else")) condition->parts.push_back(expression());
      out = std::move(condition);
    }
    --depth_;
    return out;
  }

  Expression disjunction() {
    auto out = conjunction();
    while (skip_word("or")) out = make(JinjaExpression::Kind::Binary, "or", std::move(out), conjunction());
    return out;
  }

  Expression conjunction() {
    auto out = negation();
    while (skip_word("and")) out = make(JinjaExpression::Kind::Binary, "and", std::move(out), negation());
    return out;
  }

  Expression negation() {
    if (!skip_word("not")) return comparison();
    if (++depth_ > kDeepest) fail("expressions are nested too deeply");
    auto out = make(JinjaExpression::Kind::Unary, "not", negation());
    --depth_;
    return out;
  }

  Expression comparison() {
    auto out = sum();
    for (int count = 0;; ++count) {
      std::string sign;
      for (const char* each : {"==", "!=", "<=", ">=", "<", ">"})
        if (sign.empty() && skip_sign(each)) sign = each;
      if (sign.empty() && skip_word("in")) sign = "in";
      if (sign.empty() && is_word("not") && tokens_[at_ + 1].text == "in") {
        take();
        take();
        sign = "not in";
      }
      if (sign.empty()) return out;
      if (count > 0) fail("a chain of comparisons is not supported");
      out = make(JinjaExpression::Kind::Binary, sign, std::move(out), sum());
    }
  }

  Expression sum() {
    auto out = concatenation();
    while (is_sign("+") || is_sign("-")) {
      const auto sign = take().text;
      out = make(JinjaExpression::Kind::Binary, sign, std::move(out), concatenation());
    }
    return out;
  }

  Expression concatenation() {
    auto out = product();
    while (skip_sign("~")) out = make(JinjaExpression::Kind::Binary, "~", std::move(out), product());
    return out;
  }

  Expression product() {
    auto out = unary();
    while (is_sign("*") || is_sign("/") || is_sign("//") || is_sign("%")) {
      const auto sign = take().text;
      out = make(JinjaExpression::Kind::Binary, sign, std::move(out), unary());
    }
    if (is_sign("**")) fail("'**' is not supported");
    return out;
  }

  Expression unary() {
    if (skip_sign("-")) {
      if (++depth_ > kDeepest) fail("expressions are nested too deeply");
      auto out = make(JinjaExpression::Kind::Unary, "-", unary());
      --depth_;
      return out;
    }
    return postfix(primary());
  }

  Expression postfix(Expression out) {
    for (;;) {
      if (skip_sign(".")) {
        out = make(JinjaExpression::Kind::Attribute, name(), std::move(out));
      } else if (skip_sign("[")) {
        out = subscript(std::move(out));
      } else if (skip_sign("(")) {
        out = make(JinjaExpression::Kind::Call, "", std::move(out));
        arguments(*out);
      } else if (skip_sign("|")) {
        out = make(JinjaExpression::Kind::Filter, name(), std::move(out));
        if (skip_sign("(")) arguments(*out);
      } else if (is_word("is")) {
        take();
        const bool negated = skip_word("not");
        out = make(JinjaExpression::Kind::Test, test_name(), std::move(out));
        out->negated = negated;
        test_argument(*out);
      } else {
        return out;
      }
    }
  }

  std::string test_name() { return is_sign("==") ? take().text : name(); }

  // Parses the argument of a test, if there is one: "is divisibleby(3)" or "is divisibleby 3".
  void test_argument(JinjaExpression& test) {
    if (skip_sign("(")) return arguments(test);
    const bool word = now().kind == Kind::Name && now().text != "and" && now().text != "or" && now().text != "if" && now().text != "else" &&
                      now().text != "is" && now().text != "not" && now().text != "in";
    if (word || now().kind == Kind::String || now().kind == Kind::Integer) test.parts.push_back(primary());
  }

  void arguments(JinjaExpression& call) {
    while (!skip_sign(")")) {
      if (now().kind == Kind::Name && tokens_[at_ + 1].kind == Kind::Operator && tokens_[at_ + 1].text == "=") {
        auto key = name();
        take();
        call.named.emplace_back(std::move(key), expression());
      } else {
        call.parts.push_back(expression());
      }
      if (!is_sign(")")) expect_sign(",");
    }
  }

  Expression subscript(Expression of) {
    Expression limits[3];
    int colons = 0;
    while (!is_sign("]")) {
      if (skip_sign(":")) {
        if (++colons > 2) fail("a slice has three parts at most");
      } else {
        if (limits[colons] != nullptr) fail("']' is expected before '" + now().text + "'");
        limits[colons] = expression();
      }
    }
    take();
    if (colons == 0) {
      if (limits[0] == nullptr) fail("an index is missing");
      return make(JinjaExpression::Kind::Item, "", std::move(of), std::move(limits[0]));
    }
    auto out = make(JinjaExpression::Kind::Slice, "", std::move(of));
    for (auto& limit : limits) out->parts.push_back(std::move(limit));
    return out;
  }

  Expression literal(Json value) {
    auto out = make(JinjaExpression::Kind::Literal, "");
    out->value.json = std::move(value);
    return out;
  }

  Expression primary() {
    const auto& token = now();
    if (token.kind == Kind::String) {
      std::string text;
      while (now().kind == Kind::String) text += take().text;  // adjacent strings are joined
      return literal(text);
    }
    if (token.kind == Kind::Integer) return literal(static_cast<int64_t>(*decimal_number(take().text)));
    if (token.kind == Kind::Number) return literal(*decimal_number(take().text));
    if (token.kind == Kind::Name) {
      const auto word = take().text;
      if (word == "true" || word == "True") return literal(true);
      if (word == "false" || word == "False") return literal(false);
      if (word == "none" || word == "None") return literal(Json());
      return make(JinjaExpression::Kind::Name, word);
    }
    if (skip_sign("(")) return list(")", /*tuple=*/true);
    if (skip_sign("[")) return list("]", /*tuple=*/false);
    if (skip_sign("{")) return dict();
    fail("an expression is expected before '" + token.text + "'");
  }

  Expression list(std::string_view end, bool tuple) {
    auto out = make(JinjaExpression::Kind::List, "");
    bool comma = false;
    while (!skip_sign(end)) {
      out->parts.push_back(expression());
      if (!is_sign(end)) {
        expect_sign(",");
        comma = true;
      }
    }
    if (tuple && !comma && out->parts.size() == 1) return std::move(out->parts.front());
    return out;
  }

  Expression dict() {
    auto out = make(JinjaExpression::Kind::Dict, "");
    while (!skip_sign("}")) {
      out->parts.push_back(expression());
      expect_sign(":");
      out->parts.push_back(expression());
      if (!is_sign("}")) expect_sign(",");
    }
    return out;
  }

  const std::string& where_;
  std::vector<JinjaToken> tokens_;
  size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

std::vector<JinjaNode> parse_jinja(std::string_view source, const std::string& where) { return JinjaParser(source, where).run(); }

}  // namespace npu_train::detail
