// Rules that the data sets of texts share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "npu_train/data/documents.hpp"
#include "npu_train/data/image_text.hpp"
#include "npu_train/io/json.hpp"

namespace npu_train::detail {

// Calls DocumentRules::check(). Error(Usage) for long_documents: split, which only files of tokens support.
void check_rules_of_lines(const DocumentRules& rules);

// Returns the tokens of a line {"text": "..."}, {"tokens": [...]} or, if `prompts`, {"prompt": ..., "completion": ...}; either of these two
// may be a list of ids. Error(Data) names `where` for another line and for a bad text; with skip_bad, a bad text is counted and gives
// nullopt.
std::optional<QuestionTokens> tokens_of_line(const Json& line, const std::string& where, const DocumentRules& rules, bool prompts,
                                             DocumentCounts& counts);
std::optional<QuestionTokens> completion_of_line(const Json& line, const std::string& where, const DocumentRules& rules,
                                                 DocumentCounts& counts);

// Returns the tokens of a text, without begin_token and end_token.
std::vector<int32_t> ids_of_text(const std::string& text, const std::string& where, const DocumentRules& rules);

// Like tokens_of_line(), for {"messages": [...]}.
std::optional<QuestionTokens> chat_of_line(const Json& line, const std::string& where, const DocumentRules& rules, DocumentCounts& counts);

// Like tokens_of_line(), for {"question": "...", "answer": "..."}; either may be a list of ids.
std::optional<QuestionTokens> question_of_line(const Json& line, const std::string& where, const DocumentRules& rules,
                                               const QuestionOptions& questions, DocumentCounts& counts);

// Returns the bytes of a caption as tokens, with the special tokens of `rules`. `where` names its source in errors.
std::vector<int32_t> caption_of_bytes(const std::string& text, const std::string& where, const DocumentRules& rules);

// Returns the tokens of a question and its answer, as bytes. `where` names their source in errors.
QuestionTokens question_of_bytes(const std::string& question, const std::string& answer, const std::string& where,
                                 const DocumentRules& rules, const QuestionOptions& questions);

}  // namespace npu_train::detail
