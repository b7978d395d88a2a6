/// Texts of different lengths as samples: documents of token files, and texts with labels. A batch is padded to its longest sample.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "npu_train/data/data_options.hpp"
#include "npu_train/data/dataset.hpp"
#include "npu_train/data/tokens.hpp"

namespace npu_train {

/// Samples whose "input" is a sequence of ids, int64 [tokens], of any length. The Loader pads the inputs of a batch to the longest one, and
/// adds "attention_mask", int64 [batch, tokens]: 1 for a token of the sample, 0 for padding. Two further fields may have the length of the
/// input, and are padded with 0: "loss_mask", int64, 1 for a token whose prediction counts in the loss, and "position_ids", int64 (see
/// PackedDocuments). All other fields have equal shapes.
class SequenceDataset : public Dataset {
 public:
  virtual int64_t padding() const = 0;  ///< padding id
  virtual int64_t longest() const = 0;  ///< tokens of the longest possible sample; batches are padded to it if shapes must not change
  virtual int64_t shortest_batch() const { return 0; }  ///< batches are padded to at least this many tokens
  /// Returns the number of tokens of a sample. The default implementation reads the sample.
  virtual int64_t tokens(int64_t index) const;
};

namespace detail {
class TextTokenizer;
}

/// Returns a tokenizer of Hugging Face or SentencePiece for DocumentRules::texts. Errors: those of Tokenizer::load() and
/// read_text_settings().
std::shared_ptr<const detail::TextTokenizer> tokenizer_of_texts(const std::string& path);

/// How documents become samples.
struct DocumentRules {
  int64_t context = 512;                 ///< tokens of the longest sample, with begin_token and end_token
  std::string long_documents = "error";  ///< longer documents: error | truncate (first tokens, then end_token) | split (several samples)
  int64_t begin_token = -1;              ///< first token of each sample; below 0: none
  int64_t end_token = 0;                 ///< last token of each document in a file of tokens, and of each sample that is a text
  int64_t pad_token = 0;
  int64_t vocab_size = 0;  ///< larger or equal tokens are an error; 0: not checked
  bool skip_bad = false;   ///< documents that are empty, too long or have a token out of range are omitted and counted; false: errors
  std::shared_ptr<const detail::TextTokenizer> texts{};  ///< tokenizer of texts; nullptr: each byte is a token
  bool all_answers = false;                              ///< loss of a chat: on all messages of the assistant; false: on the last one

  /// Error(Usage) for numbers out of range.
  void check() const;
};

/// Counts of documents that were omitted, truncated or split.
struct DocumentCounts {
  int64_t empty = 0, long_ones = 0, unknown_tokens = 0;  ///< omitted documents, by cause
  int64_t refused = 0;                                   ///< omitted chats: the template gives no text, or one with unknown answers
  int64_t truncated = 0, split = 0;
  int64_t divided = 0;  ///< chats divided at the beginning or the end of an answer, which a token would have crossed
  DocumentCounts& operator+=(const DocumentCounts& other);
  /// Returns "3 empty documents omitted, 2 truncated to 64 tokens"; "" if all counts are 0.
  std::string str(int64_t context) const;
};

/// The documents of token files, each up to its end_token, which may be missing at the end of a file. Samples have "input" int64 [tokens]
/// and no target. The constructor reads the files once to find the ends; each sample costs 24 bytes of memory.
class TokenDocuments final : public SequenceDataset {
 public:
  /// Error(Data) with file and token for the first bad document unless skip_bad, and if no document remains.
  TokenDocuments(std::vector<TokenFile> files, const DocumentRules& rules);

  int64_t size() const override { return size_; }
  Sample get(int64_t index) const override;
  DatasetInfo info() const override;
  std::string where(int64_t index) const override;
  int64_t padding() const override { return rules_.pad_token; }
  int64_t longest() const override { return rules_.context; }
  int64_t tokens(int64_t index) const override;
  const DocumentCounts& counts() const { return counts_; }
  /// Returns samples [first, first + count) as a data set that shares the files. Error(Usage) if out of range.
  std::shared_ptr<TokenDocuments> part(int64_t first, int64_t count) const;

 private:
  struct Place {
    int32_t file;
    bool truncated;
    int64_t first, count;  // tokens
  };
  void scan(int32_t file);
  void add(int32_t file, int64_t first, int64_t end, bool ended);

  std::shared_ptr<const std::vector<TokenFile>> files_;
  DocumentRules rules_;
  DocumentCounts counts_;
  std::shared_ptr<std::vector<Place>> places_;
  int64_t first_ = 0, size_ = 0;
};

/// Texts of a file with one JSON object per line: {"text": "...", "label": "sport"}. A text becomes its tokens, followed by end_token;
/// if the rules have no tokenizer, each byte is a token. Instead of "text":
///  - "tokens": a list of ids, to which begin_token and end_token are added unless the list already has them;
///  - "prompt" and "completion", each a text or a list of ids, for a language model whose loss counts only the completion;
///  - "messages": a chat. The loss counts only the last message, which must be one of the assistant; with all_answers, it counts all
///    messages of the assistant, and there must be at least one. The tokenizer's chat template makes the text, and no tokens are added to
///    it.
/// Labels are names (their classes are numbered alphabetically) or numbers from 0; all lines have a label, or none has. Samples have
/// "input" int64 [tokens], "loss_mask" int64 [tokens] if any line has a prompt or messages, and with labels "target", a scalar. All tokens
/// are in memory.
class LabelledTexts final : public SequenceDataset {
 public:
  /// `classes`: classes of the training data, which are the only ones allowed; empty: the classes of these files. Error(Data) with file and
  /// line for a line that is not such an object, and for the first bad text unless skip_bad; Error(Data) if no text remains; Error(Usage)
  /// for long_documents: split.
  LabelledTexts(const std::vector<std::string>& files, const DocumentRules& rules, const DatasetInfo& classes = {});

  int64_t size() const override { return size_; }
  Sample get(int64_t index) const override;
  DatasetInfo info() const override { return info_; }
  std::string where(int64_t index) const override;
  int64_t label(int64_t index) const override;
  int64_t padding() const override { return rules_.pad_token; }
  int64_t longest() const override { return rules_.context; }
  int64_t tokens(int64_t index) const override;
  const DocumentCounts& counts() const { return counts_; }
  std::shared_ptr<LabelledTexts> part(int64_t first, int64_t count) const;

 private:
  struct Text {
    int32_t file;
    int32_t count;        // tokens
    int64_t line, first;  // number of the line, from 1; index of the first token
    int64_t label;        // -1: none
  };
  struct Lines;

  DocumentRules rules_;
  DocumentCounts counts_;
  DatasetInfo info_;
  std::shared_ptr<const Lines> lines_;
  int64_t first_ = 0, size_ = 0;
};

/// Several documents in each sample, without attention or loss across them, for models with Model::packs_documents. Documents are packed by
/// best fit in the order of decreasing lengths: each goes into the sample with the least remaining room that suffices. The samples are a
/// function of the lengths alone, the same in each epoch and on all ranks. They have "input", "loss_mask", which is 0 also for the first
/// token of each document, and "position_ids", int64 [tokens], which begin with 0 in each document and in padding; so each token of the
/// padding is a document of its own. A batch is padded to longest().
class PackedDocuments final : public SequenceDataset {
 public:
  /// Error(Usage) for documents with labels, Error(Data) for one with more than longest() tokens. Each document costs 16 bytes of memory,
  /// and each sample 8.
  explicit PackedDocuments(std::shared_ptr<const SequenceDataset> documents);

  int64_t size() const override { return static_cast<int64_t>(first_.size()) - 1; }
  Sample get(int64_t index) const override;
  DatasetInfo info() const override { return documents_->info(); }
  std::string where(int64_t index) const override;
  int64_t padding() const override { return documents_->padding(); }
  int64_t longest() const override { return documents_->longest(); }
  int64_t shortest_batch() const override { return longest(); }
  int64_t tokens(int64_t index) const override;
  /// Returns the documents of a sample, in ascending order. Error(Usage) if out of range.
  std::vector<int64_t> documents(int64_t index) const;

 private:
  std::shared_ptr<const SequenceDataset> documents_;
  std::vector<int64_t> lengths_;        // of each document
  std::vector<int64_t> order_, first_;  // documents of sample i: order_[first_[i]] to order_[first_[i + 1] - 1]
};

struct DocumentsOptions : DataOptions {
  std::string train;  ///< training files: tokens, as for token_files(), or .jsonl
  std::string val;    ///< validation files; empty: val_fraction
  double val_fraction = 0;
  int64_t context = 512;
  std::string long_documents = "error";
  std::string tokenizer;
  int64_t begin_token = -1;
  int64_t end_token = -1;  ///< -1: eos_token of the tokenizer, or 0 without one
  int64_t pad_token = 0;
  int64_t vocab_size = 0;
  std::string answers = "last";
  bool packing = false;
  std::string dtype = "uint16";
  static const ConfigTable<DocumentsOptions>& config_table();
};

}  // namespace npu_train
