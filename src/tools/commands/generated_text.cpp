#include "generated_text.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <memory>
#include <utility>

#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/message_text.hpp"
#include "npu_train/data/tokens.hpp"
#include "npu_train/text/utf8.hpp"

namespace npu_train::cli {
namespace {

bool has_byte_tokens(const Model& model) {
  return !model.inputs.empty() && model.inputs.front().range && model.inputs.front().range->second == kByteVocabulary;
}

std::string tokenizer_next_to(const std::string& weights) {
  std::error_code error;
  if (weights.empty()) return "";
  const std::filesystem::path path = weights;
  const auto folder = std::filesystem::is_directory(path, error) ? path : path.parent_path();
  return tokenizer_file(folder) ? folder.string() : "";
}

TextCodec bytes_codec() {
  TextCodec out;
  out.encode = [](const std::string& text, bool) { return byte_tokens(text); };
  out.decode = [](const std::vector<int64_t>& ids) {
    std::vector<int64_t> bytes;  // without the tokens that stand for images
    std::copy_if(ids.begin(), ids.end(), std::back_inserter(bytes), [](int64_t id) { return id < kByteVocabulary; });
    return npu_train::detail::with_replacements(text_of_bytes(bytes));
  };
  out.settings.end_tokens = {kEndOfText};
  return out;
}

// Returns nullptr, with a warning, for a tokenizer that cannot be read and is not needed.
std::shared_ptr<const Tokenizer> load_tokenizer(const std::string& path, bool needed) {
  try {
    return std::make_shared<const Tokenizer>(Tokenizer::load(path));
  } catch (const Error& e) {
    if (needed) throw;
    log_warning("the tokens have no texts, because the tokenizer next to the weights cannot be read: ", e.what());
    return nullptr;
  }
}

// Returns the codec that only knows which tokens end a text.
TextCodec without_texts(const std::string& weights) {
  TextCodec out;
  out.settings.end_tokens = read_text_settings(weights).end_tokens;
  return out;
}

}  // namespace

TextCodec text_codec(const Model& model, const std::string& tokenizer, const std::string& weights, bool needed) {
  const auto path = tokenizer.empty() ? tokenizer_next_to(weights) : tokenizer;
  if (path.empty()) return has_byte_tokens(model) ? bytes_codec() : TextCodec{};
  const auto shared = load_tokenizer(path, needed || !tokenizer.empty());
  if (shared == nullptr) return without_texts(weights);
  check(!model.inputs.empty() && model.inputs.front().range, ErrorKind::Usage, "generate", "the model '", model.name,
        "' has no tokens, and ", path, " is a tokenizer");
  const auto vocabulary = static_cast<int64_t>(model.inputs.front().range->second);
  check(shared->vocabulary_size() <= vocabulary, ErrorKind::Data, "generate", path, " has ", shared->vocabulary_size(),
        " tokens, and the model ", vocabulary, "; hint: name the tokenizer of the model with --tokenizer");
  TextCodec out;
  out.encode = [shared](const std::string& text, bool special_tokens) { return shared->encode(text, special_tokens).ids; };
  out.decode = [shared](const std::vector<int64_t>& ids) { return shared->decode(ids); };
  out.settings = read_text_settings(path);
  if (!weights.empty()) out.settings.end_tokens = read_text_settings(weights).end_tokens;
  // A checkpoint of a run has no generation_config.json. Its texts end with the tokenizer's end token, as in the training.
  if (weights.empty() && out.settings.end_tokens.empty())
    if (const auto end = shared->id(out.settings.end)) out.settings.end_tokens = {*end};
  return out;
}

GeneratedText::GeneratedText(TextStream::Decode decode, std::vector<std::string> stops, bool print)
    : stream_(std::move(decode)), stops_(std::move(stops)), print_(print) {
  for (const auto& stop : stops_) check(!stop.empty(), ErrorKind::Usage, "generate", "--stop is empty; allowed: a text");
}

bool GeneratedText::add(int64_t token) { return append(stream_.next(token)); }

bool GeneratedText::append(const std::string& more) {
  const auto before = text_.size();
  text_ += more;
  size_t end = std::string::npos;
  for (const auto& stop : stops_) end = std::min(end, text_.find(stop, before - std::min(before, stop.size() - 1)));
  ended_ = end != std::string::npos;
  if (ended_) text_.resize(end);
  print(ended_ ? text_.size() : sure());
  return !ended_;
}

// Returns the length of the text without its tail, if the tail may be the beginning of a stop text.
size_t GeneratedText::sure() const {
  size_t out = text_.size();
  for (const auto& stop : stops_)
    for (size_t size = std::min(stop.size() - 1, text_.size()); size > 0; --size)
      if (text_.ends_with(stop.substr(0, size))) {
        out = std::min(out, text_.size() - size);
        break;
      }
  return out;
}

void GeneratedText::print(size_t end) {
  if (!print_ || end <= printed_) return;
  const auto shown = npu_train::detail::visible_lines(text_.substr(printed_, end - printed_));
  std::fwrite(shown.data(), 1, shown.size(), stdout);
  std::fflush(stdout);
  printed_ = end;
}

const std::string& GeneratedText::finish() {
  if (!ended_) append(stream_.rest());
  print(text_.size());
  return text_;
}

}  // namespace npu_train::cli
