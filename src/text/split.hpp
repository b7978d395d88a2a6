// Divides a text at delimiters, and keeps, merges or removes the delimiters.
#pragma once

#include <string>
#include <string_view>

#include "text/regex.hpp"
#include "text/tokenizer_steps.hpp"

namespace npu_train::detail {

enum class Delimiters { Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous };

/// Parses the name of a member of Delimiters, as tokenizer.json spells it. Error(Data) with the name `where` for an unknown name.
Delimiters read_delimiters(const std::string& name, const std::string& where);

/// Passes on the words between delimiters; `delimiters` determines what happens to the delimiters. The parts that are added must follow
/// each other without gaps.
class Splitter {
 public:
  Splitter(TextPart whole, Delimiters delimiters, const TextPartSink& sink) : whole_(whole), delimiters_(delimiters), sink_(sink) {}

  /// Adds the next part, which ends at `end`.
  void add(size_t end, bool is_delimiter);
  /// Passes on the rest.
  void finish();

 private:
  void pass(size_t end) {
    if (end > begin_) sink_({whole_.text.substr(begin_, end - begin_), whole_.first && begin_ == 0});
    begin_ = end;
  }

  TextPart whole_;
  Delimiters delimiters_;
  const TextPartSink& sink_;
  size_t begin_ = 0;  // start of the text that was not passed on yet
  size_t end_ = 0;    // end of the last part
  bool last_is_delimiter_ = false;
};

/// Divides at the matches of a pattern; with `invert`, at the text between the matches.
void split_at(TextPart part, const Regex& pattern, bool invert, Delimiters delimiters, const TextPartSink& sink);

}  // namespace npu_train::detail
