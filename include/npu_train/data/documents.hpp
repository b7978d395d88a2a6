/// Texts of different lengths as samples: documents of token files, and texts with labels. A batch is padded to its longest one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "npu_train/data/data_options.hpp"
#include "npu_train/data/dataset.hpp"
#include "npu_train/data/tokens.hpp"

namespace npu_train {

/// Samples whose "input" is a sequence of ids, int64 [tokens], of any length; the other fields have equal shapes. The Loader fills the
/// inputs of a batch up to the longest one, and adds "attention_mask", int64 [batch, tokens]: 1 for a token of the sample, 0 for padding.
class SequenceDataset : public Dataset {
 public:
  virtual int64_t padding() const = 0;  ///< the id that fills
  virtual int64_t longest() const = 0;  ///< tokens of the longest possible sample: of every batch if shapes must not change
};

/// What a document becomes.
struct DocumentRules {
  int64_t context = 512;                 ///< tokens of the longest sample, with begin_token and end_token
  std::string long_documents = "error";  ///< longer ones: error; truncate: the first tokens, then end_token; split: several samples
  int64_t begin_token = -1;              ///< comes before each sample; below 0: nothing
  int64_t end_token = 0;                 ///< ends a document in a file of tokens, and is the last token of its sample
  int64_t pad_token = 0;
  int64_t vocab_size = 0;  ///< a token of at least this is an error; 0: not checked
  bool skip_bad = false;   ///< documents that are empty, too long or have such a token are omitted and counted, instead of an error

  /// Error(Usage) for numbers out of range.
  void check() const;
};

/// Documents that were not taken as they are.
struct DocumentCounts {
  int64_t empty = 0, long_ones = 0, unknown_tokens = 0;  ///< omitted
  int64_t truncated = 0, split = 0;
  DocumentCounts& operator+=(const DocumentCounts& other);
  /// "3 empty documents omitted, 2 truncated to 64 tokens"; "" if there are none.
  std::string str(int64_t context) const;
};

/// The documents of token files, each up to its end_token (the last one of a file may lack it). "input" int64 [tokens]; no target. The
/// files are read once at the start, to find the ends; 24 bytes are kept for each sample.
class TokenDocuments final : public SequenceDataset {
 public:
  /// Error(Data) with file and token for the first bad document, unless bad ones are omitted; and if no document remains.
  TokenDocuments(std::vector<TokenFile> files, const DocumentRules& rules);

  int64_t size() const override { return size_; }
  Sample get(int64_t index) const override;
  DatasetInfo info() const override;
  std::string where(int64_t index) const override;
  int64_t padding() const override { return rules_.pad_token; }
  int64_t longest() const override { return rules_.context; }
  const DocumentCounts& counts() const { return counts_; }
  /// Samples `first` up to `first + count` as a data set; the files are shared. Error(Usage) outside of the range.
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

/// Texts of a file with one JSON object in a line: {"text": "...", "label": "sport"}. A text becomes its bytes and end_token; instead of
/// "text" there may be "tokens", a list of ids that are taken as they are, after begin_token unless they begin with it, without end_token;
/// or "prompt" and "completion", each a text or such a list, for a language model whose loss counts the completion. Labels are names, whose
/// classes are numbered in alphabetical order, or numbers from 0; all lines have one, or none does. "input" int64 [tokens]; if a line has a
/// prompt, "prompt", a scalar: how many of the tokens are before the completion; with labels "target", a scalar. The tokens are kept in
/// memory.
class LabelledTexts final : public SequenceDataset {
 public:
  /// `classes`: the names of the training data, which a label must be one of; empty: those of these files. Error(Data) with file and line
  /// for a line that is not such an object, for the first bad text unless bad ones are omitted, and if no text remains; Error(Usage) for
  /// long_documents: split.
  LabelledTexts(const std::vector<std::string>& files, const DocumentRules& rules, const DatasetInfo& classes = {});

  int64_t size() const override { return size_; }
  Sample get(int64_t index) const override;
  DatasetInfo info() const override { return info_; }
  std::string where(int64_t index) const override;
  int64_t padding() const override { return rules_.pad_token; }
  int64_t longest() const override { return rules_.context; }
  const DocumentCounts& counts() const { return counts_; }
  std::shared_ptr<LabelledTexts> part(int64_t first, int64_t count) const;

 private:
  struct Text {
    int32_t file;
    int32_t count;        // tokens
    int32_t prompt;       // of them
    int64_t line, first;  // from 1; of the tokens
    int64_t label;        // -1: none
  };
  struct Lines;

  DocumentRules rules_;
  DocumentCounts counts_;
  DatasetInfo info_;
  std::shared_ptr<const Lines> lines_;
  int64_t first_ = 0, size_ = 0;
};

struct DocumentsOptions : DataOptions {
  std::string train;  ///< training files: tokens, as for token_files(), or .jsonl
  std::string val;    ///< validation files; empty: val_fraction
  double val_fraction = 0;
  int64_t context = 512;
  std::string long_documents = "error";
  int64_t begin_token = -1;
  int64_t end_token = 0;
  int64_t pad_token = 0;
  int64_t vocab_size = 0;
  std::string dtype = "uint16";
  static const ConfigTable<DocumentsOptions>& config_table();
};

}  // namespace npu_train
