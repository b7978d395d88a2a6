#include "text/split.hpp"

#include "npu_train/core/error.hpp"
#include "npu_train/core/message_text.hpp"

namespace npu_train::detail {

Delimiters read_delimiters(const std::string& name, const std::string& where) {
  if (name == "Removed") return Delimiters::Removed;
  if (name == "Isolated") return Delimiters::Isolated;
  if (name == "MergedWithPrevious") return Delimiters::MergedWithPrevious;
  if (name == "MergedWithNext") return Delimiters::MergedWithNext;
  if (name == "Contiguous") return Delimiters::Contiguous;
  throw Error(ErrorKind::Data, "tokenizer",
              where + " is '" + visible_start(name, 40) + "'; allowed: Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous");
}

void Splitter::add(size_t end, bool is_delimiter) {
  switch (delimiters_) {
    case Delimiters::Isolated:
      pass(end);
      break;
    case Delimiters::Removed:
      is_delimiter ? void(begin_ = end) : pass(end);
      break;
    case Delimiters::MergedWithPrevious:
      // Of successive delimiters, only the first one has a previous part.
      if (!is_delimiter || last_is_delimiter_) pass(end_);
      break;
    case Delimiters::MergedWithNext:
      if (is_delimiter || !last_is_delimiter_) pass(end_);
      break;
    case Delimiters::Contiguous:
      if (is_delimiter != last_is_delimiter_) pass(end_);
      break;
  }
  end_ = end;
  last_is_delimiter_ = is_delimiter;
}

void Splitter::finish() { pass(end_); }

void split_at(TextPart part, const Regex& pattern, bool invert, Delimiters delimiters, const TextPartSink& sink) {
  Splitter out(part, delimiters, sink);
  Matches matches(pattern, part.text);
  size_t at = 0;
  for (Span match; matches.next(match); at = match.end) {
    if (match.begin > at) out.add(match.begin, invert);
    out.add(match.end, !invert);
  }
  if (at < part.text.size()) out.add(part.text.size(), invert);
  out.finish();
}

}  // namespace npu_train::detail
