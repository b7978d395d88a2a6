#include "models/families.hpp"
#include "models/hub/hub_reader.hpp"
#include "npu_train/models/bert.hpp"

namespace npu_train::detail {
namespace {

// Returns the naming of Hugging Face. The oldest files use gamma and beta for weight and bias of the norms. The head for masked tokens
// stores the token embedding and its own bias a second time, as a layer "decoder".
Naming bert_naming() {
  std::vector<NameRule> rules;
  const auto add = [&](const std::string& ours, const std::string& theirs, bool above = false) {
    rules.push_back({ours, theirs, /*transposed=*/false, above});
  };
  const auto add_norm = [&](const std::string& ours, const std::string& theirs, bool above = false) {
    add(ours + ".weight", theirs + ".weight", above);
    add(ours + ".bias", theirs + ".bias", above);
    add(ours + ".weight", theirs + ".gamma", above);
    add(ours + ".bias", theirs + ".beta", above);
  };
  add("type_embedding.weight", "embeddings.token_type_embeddings.weight");
  add("blocks.#.attention.q_proj.*", "encoder.layer.#.attention.self.query.*");
  add("blocks.#.attention.k_proj.*", "encoder.layer.#.attention.self.key.*");
  add("blocks.#.attention.v_proj.*", "encoder.layer.#.attention.self.value.*");
  add("blocks.#.attention.proj.*", "encoder.layer.#.attention.output.dense.*");
  add_norm("blocks.#.ln_1", "encoder.layer.#.attention.output.LayerNorm");
  add("blocks.#.mlp.fc1.*", "encoder.layer.#.intermediate.dense.*");
  add("blocks.#.mlp.fc2.*", "encoder.layer.#.output.dense.*");
  add_norm("blocks.#.ln_2", "encoder.layer.#.output.LayerNorm");
  add("token_embedding.weight", "embeddings.word_embeddings.weight");
  add("position_embedding.weight", "embeddings.position_embeddings.weight");
  add_norm("ln", "embeddings.LayerNorm");
  add("mlm.fc.*", "cls.predictions.transform.dense.*", true);
  add_norm("mlm.ln", "cls.predictions.transform.LayerNorm", true);
  add("mlm.bias", "cls.predictions.bias", true);
  add("pooler.*", "pooler.dense.*");
  add("mlm.bias", "cls.predictions.decoder.bias", true);
  add("token_embedding.weight", "cls.predictions.decoder.weight", true);
  return {{"hf", "hf4"}, "bert.", rules, {"classifier.*", "classifier.*"}, /*splits_projections=*/true};
}

ConfigurationKeys bert_keys(const WeightShapes& shapes) {
  ConfigurationKeys out;
  const auto dim = shapes.size("token_embedding.weight", 1), hidden = shapes.size("blocks.0.mlp.fc1.weight", 0);
  add(out, "vocab_size", shapes.size("token_embedding.weight", 0));
  add(out, "context", shapes.size("position_embedding.weight", 0));
  add(out, "layers", shapes.layers("blocks.", ".ln_1.weight"));
  add(out, "dim", dim);
  add(out, "hidden", hidden == 4 * dim ? 0 : hidden);
  add(out, "token_types", shapes.size("type_embedding.weight", 0));
  add(out, "num_classes", shapes.size("classifier.weight", 0));
  return out;
}

void read_bert(const Json& config, HubNetwork& out) {
  out.model = "bert";
  HubReader file(config, out);
  const auto dim = file.size("hidden_size", 768, "dim");
  file.size("vocab_size", 30522, "vocab_size");
  file.size("max_position_embeddings", 512, "context");
  file.size("num_hidden_layers", 12, "layers");
  file.heads("num_attention_heads", 12);
  file.size("intermediate_size", 3072, "hidden", static_cast<double>(4 * dim));
  file.size("type_vocab_size", 2, "token_types");
  file.activation("hidden_act", "gelu");
  file.number("layer_norm_eps", 1e-12, "norm_eps");
  file.classes({"BertForSequenceClassification"});
  file.must_be("position_embedding_type", "absolute");
  file.must_be("tie_word_embeddings", true);
  file.architectures({"BertForMaskedLM", "BertForPreTraining", "BertForSequenceClassification", "BertModel"});
  file.unused({"attention_probs_dropout_prob", "classifier_dropout", "directionality", "hidden_dropout_prob", "pooler_fc_size",
               "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type", "transformers.js_config"});
  file.finish();
}

void add_bert(ModelRegistry& registry) {
  add_network(registry, bert, "bert", "BERT of configurable size");
  add_network(registry, bert, "bert_base", "BERT with 110 million parameters: layers 12, heads 12, dim 768", bert_base_options());
  add_network(registry, bert, "bert_tiny", "BERT for bytes: vocab_size 258, context 64, layers 2, heads 2, dim 64", bert_tiny_options());
}

}  // namespace

ModelFamily bert_family() {
  return {.name = "bert",
          .add = add_bert,
          .hub_types = {{"bert", read_bert}},
          .namings = {own_naming(bert_naming()), bert_naming()},
          .keys_of = bert_keys};
}

}  // namespace npu_train::detail
