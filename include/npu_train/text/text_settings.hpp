/// What the files next to a tokenizer say about the texts of a model: tokenizer_config.json, generation_config.json and config.json of
/// Hugging Face.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace npu_train {

struct TextSettings {
  std::vector<int64_t> end_tokens;  ///< ids that end a generated text: eos_token_id of generation_config.json, or else of config.json
  std::string begin, end, padding;  ///< texts of bos_token, eos_token and pad_token; "": none
  std::string chat_template;        ///< template in Jinja's language that turns messages into a text; "": none
  std::string file;                 ///< file with the template, for messages
};

/// Reads what is there; a file that is missing has no effect. `folder` may be a file in the folder. Error(Data) for a file that is damaged,
/// and for values of other types.
TextSettings read_text_settings(const std::filesystem::path& folder);

}  // namespace npu_train
