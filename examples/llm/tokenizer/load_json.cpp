// Hugging Face's tokenizer.json, as far as it describes byte-level BPE.
#include "llm/model/failure.hpp"
#include "llm/model/json_file.hpp"
#include "llm/tokenizer/byte_level_bpe.hpp"
#include "llm/tokenizer/loaders.hpp"

namespace llm {
namespace {

using nlohmann::json;

std::string type_of(const json& part, const std::string& file) {
  check_io(part.is_object(), file, ": ", part.dump().substr(0, 40), " must be an object");
  return json_text(part, "type", file).value_or("");
}

// The members of a part that may be a Sequence of parts under `list`.
std::vector<json> parts_of(const json& part, const char* list, const std::string& file) {
  if (part.is_null()) return {};
  if (type_of(part, file) != "Sequence") return {part};
  const json& members = json_member(part, list);
  check_io(members.is_array(), file, ": a Sequence needs the array ", list);
  return members.get<std::vector<json>>();
}

std::vector<std::string> read_patterns(const json& root, const std::string& file) {
  std::vector<std::string> patterns;
  bool byte_level = false;
  for (const json& part : parts_of(json_member(root, "pre_tokenizer"), "pretokenizers", file)) {
    const std::string type = type_of(part, file);
    if (type == "ByteLevel") {
      check_supported(!json_boolean(part, "add_prefix_space", file).value_or(true), file,
                      ": a ByteLevel pre-tokenizer that adds a space is not supported");
      byte_level = true;
      if (json_boolean(part, "use_regex", file).value_or(true))
        patterns.push_back(splitter_patterns("gpt-2", file)[0]);
    } else if (type == "Digits") {
      const bool each = json_boolean(part, "individual_digits", file).value_or(false);
      patterns.emplace_back(each ? "\\p{N}" : "\\p{N}+");
    } else if (type == "Split") {
      const json& pattern = json_member(part, "pattern");
      check_io(pattern.is_object(), file, ": a Split needs a pattern");
      const auto regex = json_text(pattern, "Regex", file);
      const auto behaviour = json_text(part, "behavior", file);
      check_supported(
          regex && behaviour == "Isolated" && !json_boolean(part, "invert", file).value_or(false),
          file, ": a Split must isolate what a Regex matches");
      patterns.push_back(*regex);
    } else {
      fail(rapt::ErrorCode::kInvalidArgument, file, ": the pre-tokenizer \"", type,
           "\" is not supported; ByteLevel, Digits and Split are");
    }
  }
  check_supported(byte_level, file,
                  ": the pre-tokenizer is not ByteLevel; only byte-level BPE is read from JSON");
  return patterns;
}

// A token by its id in the growing list, which ids may leave holes in but not outgrow.
Token& token_at(std::vector<Token>& tokens, const json& id, size_t num_entries,
                const std::string& name, const std::string& file) {
  const size_t bound = 2 * num_entries;
  check_io(id.is_number_unsigned() && id.get<uint64_t>() < bound, file, ": token \"", name,
           "\" has the id ", id.dump(), ", must be in [0, ", bound, ")");
  const auto index = id.get<size_t>();
  // A hole decodes to nothing and is never made.
  if (index >= tokens.size()) tokens.resize(index + 1, Token{"", "", TokenKind::kUnknown, 0});
  return tokens[index];
}

std::vector<Token> read_tokens(const json& root, const json& model, const std::string& file) {
  const json& entries = json_member(model, "vocab");
  check_io(entries.is_object(), file, ": model.vocab must be an object");
  const json& added = json_member(root, "added_tokens");
  check_io(added.is_array() || added.is_null(), file, ": added_tokens must be an array");
  const size_t num_entries = entries.size() + added.size();
  std::vector<Token> tokens;
  for (const auto& [spelling, id] : entries.items()) {
    Token& token = token_at(tokens, id, num_entries, spelling, file);
    check_io(token.kind == TokenKind::kUnknown, file, ": the id ", id.dump(),
             " has two tokens in model.vocab");
    token = {spelling, spelled_bytes(spelling), TokenKind::kNormal, 0};
  }
  for (const json& entry : added) {
    check_io(entry.is_object(), file, ": added_tokens must hold objects");
    const std::string spelling = json_text(entry, "content", file).value_or("");
    const bool control = json_boolean(entry, "special", file).value_or(false);
    token_at(tokens, json_member(entry, "id"), num_entries, spelling, file) = {
        spelling, control ? "" : spelling, control ? TokenKind::kControl : TokenKind::kUserDefined,
        0};
  }
  return tokens;
}

std::vector<ByteLevelBpeTokenizer::MergeRule> read_merges(const json& model,
                                                          const std::string& file) {
  const json& merges = json_member(model, "merges");
  check_io(merges.is_array(), file, ": model.merges must be an array");
  std::vector<ByteLevelBpeTokenizer::MergeRule> rules;
  rules.reserve(merges.size());
  for (const json& merge : merges) {
    std::string left, right;
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      left = merge[0].get<std::string>();
      right = merge[1].get<std::string>();
    } else if (merge.is_string()) {
      const auto line = merge.get<std::string>();
      const size_t space = line.find(' ', 1);
      left = line.substr(0, space);
      if (space != std::string::npos) right = line.substr(space + 1);
    }
    check_io(!left.empty() && !right.empty(), file, ": model.merges[", rules.size(), "] is ",
             merge.dump(), ", must be two tokens");
    rules.push_back(
        {spelled_bytes(left), spelled_bytes(right), static_cast<int32_t>(rules.size())});
  }
  return rules;
}

// The special token that the post-processor's template puts before a single text, if any.
std::string leading_token(const json& root, const std::string& file) {
  for (const json& part : parts_of(json_member(root, "post_processor"), "processors", file)) {
    if (type_of(part, file) != "TemplateProcessing") continue;
    const json& single = json_member(part, "single");
    if (!single.is_array() || single.empty() || !single[0].is_object()) continue;
    const json& token = json_member(single[0], "SpecialToken");
    if (token.is_object()) return json_text(token, "id", file).value_or("");
  }
  return {};
}

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer_json(FileView file) {
  const json root =
      parse_json({reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size()}, file.path);
  check_io(root.is_object(), file.path, ": must be an object");
  const json& model = json_member(root, "model");
  const std::string type = type_of(model, file.path);
  check_supported(type == "BPE" && !json_boolean(model, "byte_fallback", file.path).value_or(false),
                  file.path, ": the model is of type \"", type,
                  "\", must be byte-level BPE, without byte_fallback");
  check_supported(json_member(root, "normalizer").is_null(), file.path,
                  ": a normalizer is not supported");
  Splitter splitter(read_patterns(root, file.path), file.path);
  Vocabulary vocabulary(read_tokens(root, model, file.path), file.path);
  const std::string first = leading_token(root, file.path);
  if (!first.empty()) {
    const auto bos = vocabulary.find_special(first, /*with_control=*/true);
    check_io(bos && vocabulary.token(bos->id).spelling == first, file.path,
             ": the template begins with ", first, ", which is no added token");
    vocabulary.bos_id = bos->id;
    vocabulary.adds_bos = true;
  }
  const bool whole_words = json_boolean(model, "ignore_merges", file.path).value_or(false);
  return std::make_unique<ByteLevelBpeTokenizer>(std::move(vocabulary),
                                                 read_merges(model, file.path), std::move(splitter),
                                                 whole_words, file.path);
}

}  // namespace llm
