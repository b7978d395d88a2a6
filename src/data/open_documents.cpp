#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "data/open_tokens.hpp"
#include "data/text_tokenizer.hpp"
#include "npu_train/core/error.hpp"
#include "npu_train/core/log.hpp"
#include "npu_train/core/text.hpp"

namespace npu_train {
namespace detail {
namespace {

bool is_json_lines(const std::string& path) { return path.ends_with(".jsonl"); }

DocumentRules rules_of(const DocumentsOptions& o) {
  DocumentRules out{.context = o.context,
                    .long_documents = o.long_documents,
                    .begin_token = o.begin_token,
                    .end_token = std::max<int64_t>(0, o.end_token),
                    .pad_token = o.pad_token,
                    .vocab_size = o.vocab_size,
                    .skip_bad = o.on_bad_sample == "skip",
                    .texts = {},
                    .all_answers = o.answers == "all"};
  if (o.tokenizer.empty()) return out;
  out.texts = tokenizer_of_texts(o.tokenizer);
  if (o.end_token < 0) out.end_token = out.texts->end_token("data.end_token");
  return out;
}

// Returns true if all files of `pattern` are .jsonl, false if none is; Error(Usage) for a mixture.
bool all_json_lines(const std::vector<std::string>& files, const std::string& pattern) {
  const auto count = std::count_if(files.begin(), files.end(), is_json_lines);
  check(count == 0 || count == static_cast<int64_t>(files.size()), ErrorKind::Usage, "data", "'", pattern, "' names ", count,
        " .jsonl files and ", static_cast<int64_t>(files.size()) - count, " others; allowed: one kind");
  return count > 0;
}

std::shared_ptr<TokenDocuments> open_token_documents(const std::vector<std::string>& paths, const DocumentsOptions& options,
                                                     const DocumentRules& rules) {
  std::vector<TokenFile> files;
  for (const auto& path : paths) files.emplace_back(path, options.dtype);
  return std::make_shared<TokenDocuments>(std::move(files), rules);
}

// Packs documents, and reports how full the samples are. Null stays null.
std::shared_ptr<const Dataset> pack_documents(const std::shared_ptr<const Dataset>& data, const char* which) {
  if (data == nullptr) return data;
  const auto documents = std::dynamic_pointer_cast<const SequenceDataset>(data);
  const auto out = std::make_shared<PackedDocuments>(documents);
  int64_t tokens = 0;
  for (int64_t i = 0; i < out->size(); ++i) tokens += out->tokens(i);
  const auto share = static_cast<double>(tokens) / static_cast<double>(out->size()) / static_cast<double>(out->longest());
  log_info("data.packing: ", with_commas(documents->size()), " documents in ", with_commas(out->size()), " ", which, " samples of ",
           out->longest(), " tokens, ", printed("%.1f", 100 * share), " % of which are documents");
  return out;
}

}  // namespace

DatasetPair open_documents(const DocumentsOptions& options) {
  check_no_images(options);
  check_split(options.train, options.val, options.val_fraction);
  DatasetPair pair;
  pair.options = options;
  DocumentCounts counts;
  const auto paths = token_files(options.train);
  const auto val_paths = options.val.empty() ? std::vector<std::string>{} : token_files(options.val);
  const bool texts = all_json_lines(paths, options.train);
  check(texts || options.tokenizer.empty(), ErrorKind::Usage, "data.tokenizer", "'", options.train,
        "' names files of tokens, which need no tokenizer; allowed with: .jsonl files");
  check(val_paths.empty() || all_json_lines(val_paths, options.val) == texts, ErrorKind::Usage, "data.val", "'", options.val,
        "' names files of another kind than data.train; allowed: both .jsonl, or both files of tokens");
  const auto rules = rules_of(options);
  check(texts || !rules.all_answers, ErrorKind::Usage, "data.answers", "'", options.train,
        "' names files of tokens, and chats are in .jsonl files; hint: remove it");
  if (texts) {
    const auto all = std::make_shared<LabelledTexts>(paths, rules);
    counts += all->counts();
    split_off_validation(pair, all, options.val_fraction);
    if (!val_paths.empty()) {
      const auto val = std::make_shared<LabelledTexts>(val_paths, rules, all->info());
      check((val->info().num_classes > 0) == (all->info().num_classes > 0), ErrorKind::Data, "data.val", "'", options.val,
            "' and data.train do not both have labels; allowed: labels in both, or in none");
      counts += val->counts();
      pair.val = val;
    }
  } else {
    const auto all = open_token_documents(paths, options, rules);
    counts += all->counts();
    split_off_validation(pair, all, options.val_fraction);
    if (!val_paths.empty()) {
      check_written_together(paths, val_paths);
      const auto val = open_token_documents(val_paths, options, rules);
      counts += val->counts();
      pair.val = val;
    }
  }
  pair.left_out = counts.str(options.context);
  warn_without_validation(pair);
  if (options.packing) {
    pair.train = pack_documents(pair.train, "training");
    pair.val = pack_documents(pair.val, "validation");
  }
  return pair;
}

}  // namespace detail

const ConfigTable<DocumentsOptions>& DocumentsOptions::config_table() {
  using T = DocumentsOptions;
  static const auto table = data_fields(
      ConfigTable<T>("data documents")
          .field("train", &T::train, "training files: tokens, as for the data set tokens, or .jsonl with one text in a line")
          .field("val", &T::val, "validation files, in the same way; empty: val_fraction")
          .field("val_fraction", &T::val_fraction, "share of the training samples, at the end, that is used for validation instead",
                 between(0, 0.9))
          .field("context", &T::context, "tokens of the longest sample, with begin_token and end_token", between(2, 1 << 20))
          .field("long_documents", &T::long_documents,
                 "longer documents; error: the run ends; truncate: the first tokens, then end_token; split: several samples",
                 one_of({"error", "truncate", "split"}))
          .field("tokenizer", &T::tokenizer,
                 "tokenizer.json or tokenizer.model of Hugging Face, or its folder, for the texts of .jsonl files; empty: each byte is a "
                 "token")
          .field("begin_token", &T::begin_token,
                 "comes before the tokens of each sample, unless a list of tokens begins with it; -1: nothing", between(-1, 1 << 24))
          .field("end_token", &T::end_token,
                 "ends a document in files of tokens; comes after the other texts, unless a list of tokens ends with it; -1: 0, or with a "
                 "tokenizer its eos_token",
                 between(-1, 1 << 24))
          .field("pad_token", &T::pad_token, "fills the shorter samples of a batch", between(0, 1 << 24))
          .field("vocab_size", &T::vocab_size, "a token of at least this is an error; 0: not checked", between(0, 1 << 24))
          .field(
              "answers", &T::answers,
              "messages of a chat that count in the loss; last: the last one, which is one of the assistant; all: those of the assistant",
              one_of({"last", "all"}))
          .field("packing", &T::packing,
                 "several documents in each sample of context tokens, without attention across them; for language_model with gpt2, llama, "
                 "qwen2 and glm")
          .field("dtype", &T::dtype, "of files without a header", one_of({"uint16", "uint32"})));
  return table;
}

}  // namespace npu_train
