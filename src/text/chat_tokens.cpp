#include "npu_train/text/chat_tokens.hpp"

#include <algorithm>
#include <optional>
#include <string_view>

namespace npu_train::detail {
namespace {

using Ids = std::vector<int64_t>;

// Where answers begin and end, and where the text ends.
std::vector<size_t> borders_of(const ChatText& chat) {
  std::vector<size_t> out;
  for (const auto& [begin, end] : chat.answers) out.insert(out.end(), {begin, end});
  out.push_back(chat.text.size());
  return out;
}

// Returns how many of the tokens `whole` come before each border; nullopt if a border is within a token. A tokenizer may begin each text
// with a space, as that of Llama 2 does, so that it is given beginnings of the text instead of parts.
std::optional<std::vector<size_t>> tokens_before(const Tokenizer& tokenizer, const ChatText& chat, const Ids& whole) {
  std::vector<size_t> out;
  for (const auto border : borders_of(chat)) {
    const auto ids = tokenizer.encode(std::string_view(chat.text).substr(0, border), /*special_tokens=*/false).ids;
    if (ids.size() > whole.size() || !std::equal(ids.begin(), ids.end(), whole.begin())) return std::nullopt;
    if (!out.empty() && ids.size() < out.back()) return std::nullopt;  // a normalizer removes more from the longer text
    out.push_back(ids.size());
  }
  return out;
}

}  // namespace

ChatTokens tokens_of_chat(const Tokenizer& tokenizer, const ChatText& chat) {
  const auto whole = tokenizer.encode(chat.text, /*special_tokens=*/false).ids;
  Ids parts;
  std::vector<size_t> before;  // each border
  size_t at = 0;
  for (const auto border : borders_of(chat)) {
    const auto ids = tokenizer.encode(std::string_view(chat.text).substr(at, border - at), /*special_tokens=*/false).ids;
    parts.insert(parts.end(), ids.begin(), ids.end());
    before.push_back(parts.size());
    at = border;
  }
  ChatTokens out;
  if (parts != whole) {
    auto found = tokens_before(tokenizer, chat, whole);
    out.divided = !found;
    if (found) before = std::move(*found);
  }
  for (size_t i = 0; i < chat.answers.size(); ++i)
    out.answers.emplace_back(static_cast<int64_t>(before[2 * i]), static_cast<int64_t>(before[2 * i + 1]));
  out.ids = out.divided ? parts : whole;
  return out;
}

}  // namespace npu_train::detail
