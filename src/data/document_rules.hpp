// What the data sets of texts share.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "npu_train/data/documents.hpp"
#include "npu_train/data/image_text.hpp"
#include "npu_train/io/json.hpp"

namespace npu_train::detail {

// DocumentRules::check(), and Error(Usage) for long_documents: split, which files of tokens alone have.
void check_rules_of_lines(const DocumentRules& rules);

// The tokens of a line of a file, {"text": "..."}, {"tokens": [...]} or, if `prompts`, {"prompt": ..., "completion": ...}, where either may
// be a list of ids, as `rules` have them. Error(Data) names `where` for another line and for a bad text; with skip_bad a bad text is
// nothing, and is counted.
std::optional<QuestionTokens> tokens_of_line(const Json& line, const std::string& where, const DocumentRules& rules, bool prompts,
                                             DocumentCounts& counts);
std::optional<QuestionTokens> completion_of_line(const Json& line, const std::string& where, const DocumentRules& rules,
                                                 DocumentCounts& counts);

// The same for {"question": "...", "answer": "..."}, where either may be a list of ids.
std::optional<QuestionTokens> question_of_line(const Json& line, const std::string& where, const DocumentRules& rules,
                                               const QuestionOptions& questions, DocumentCounts& counts);

// A caption as bytes, as `rules` have it; `where` it is from is for the message.
std::vector<int32_t> caption_of_bytes(const std::string& text, const std::string& where, const DocumentRules& rules);

// A question and its answer as bytes; `where` they are from is for the message.
QuestionTokens question_of_bytes(const std::string& question, const std::string& answer, const std::string& where,
                                 const DocumentRules& rules, const QuestionOptions& questions);

}  // namespace npu_train::detail
