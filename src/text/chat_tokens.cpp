#include "npu_train/text/chat_tokens.hpp"

#include <algorithm>
#include <string_view>

namespace npu_train::detail {
namespace {

using Ids = std::vector<int64_t>;

struct PartsOfText {
  const Tokenizer& tokenizer;
  std::string_view text;

  // Returns the tokens of the bytes [begin, end) alone.
  Ids operator()(size_t begin, size_t end) const { return tokenizer.encode(text.substr(begin, end - begin), /*special_tokens=*/false).ids; }
};

// The tokens of a text and, for each border in the text, the number of tokens before it.
struct BorderedTokens {
  Ids ids;
  std::vector<size_t> before;
  bool divided = false;

  void append(const Ids& more, size_t count) { ids.insert(ids.end(), more.begin(), more.begin() + static_cast<std::ptrdiff_t>(count)); }
};

// Returns the positions at which answers begin and end.
std::vector<size_t> borders_of(const ChatText& chat) {
  std::vector<size_t> out;
  for (const auto& [begin, end] : chat.answers) out.insert(out.end(), {begin, end});
  return out;
}

bool are_equal(const Ids& a, const Ids& b, size_t count) {
  const auto first = static_cast<std::ptrdiff_t>(count);
  return a.size() >= count && b.size() >= count && std::equal(a.begin(), a.begin() + first, b.begin());
}

// Returns the tokens of the parts between the borders.
BorderedTokens in_parts(const PartsOfText& parts, const std::vector<size_t>& borders) {
  BorderedTokens out;
  size_t at = 0;
  for (const auto border : borders) {
    const auto ids = parts(at, border);
    out.append(ids, ids.size());
    out.before.push_back(out.ids.size());
    at = border;
  }
  const auto rest = parts(at, parts.text.size());
  out.append(rest, rest.size());
  return out;
}

// Returns the tokens of the text, which is divided only at the borders that a token of the undivided text crosses. `whole` has the tokens
// of the undivided text. To count the tokens before a border, tokenizes the text from the last division (at first, from the beginning) to
// the border. It would be wrong to tokenize only the text between two borders, because a tokenizer such as Llama 2's begins each text with
// a space.
BorderedTokens in_beginnings(const PartsOfText& parts, const std::vector<size_t>& borders, const Ids& whole) {
  BorderedTokens out;
  Ids rest = whole;                      // tokens of the text from `at` on
  size_t at = 0, fitting = 0, sure = 0;  // fitting: last border that no token crosses; sure: number of tokens of `rest` before `fitting`
  for (size_t i = 0; i < borders.size();) {
    const auto beginning = parts(at, borders[i]);
    if (beginning.size() >= sure && are_equal(beginning, rest, beginning.size())) {
      fitting = borders[i++], sure = beginning.size();
      out.before.push_back(out.ids.size() + sure);
      continue;
    }
    out.divided = true;
    if (fitting == at || are_equal(beginning, rest, sure)) {
      out.append(beginning, beginning.size());
      out.before.push_back(out.ids.size());
      at = fitting = borders[i++];
    } else {  // the tokens before `fitting` have changed, because a normalizer changes text across borders
      out.append(rest, sure);
      at = fitting;
    }
    rest = parts(at, parts.text.size());
    sure = 0;
  }
  out.append(rest, rest.size());
  return out;
}

}  // namespace

ChatTokens tokens_of_chat(const Tokenizer& tokenizer, const ChatText& chat) {
  const PartsOfText parts{tokenizer, chat.text};
  const auto borders = borders_of(chat);
  const auto whole = parts(0, chat.text.size());
  auto found = in_parts(parts, borders);
  if (found.ids != whole) found = in_beginnings(parts, borders, whole);
  ChatTokens out;
  for (size_t i = 0; i < chat.answers.size(); ++i)
    out.answers.emplace_back(static_cast<int64_t>(found.before[2 * i]), static_cast<int64_t>(found.before[2 * i + 1]));
  out.ids = std::move(found.ids);
  out.divided = found.divided;
  return out;
}

}  // namespace npu_train::detail
