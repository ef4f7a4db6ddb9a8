#include "llm/tokenizer/tokenizer.hpp"

#include "llm/model/failure.hpp"
#include "llm/tokenizer/utf8.hpp"

namespace llm {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

}  // namespace

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool add_bos,
                                       bool parse_special) const {
  std::vector<int32_t> ids;
  if (add_bos) {
    if (bos_id() < 0)
      fail(rapt::ErrorCode::kInvalidArgument,
           "add_bos is true, but the vocabulary has no BOS token");
    ids.push_back(bos_id());
  }
  while (!text.empty()) {
    const auto special = vocabulary_.find_special(text, parse_special);
    const std::string_view plain = text.substr(0, special ? special->position : text.size());
    if (!plain.empty()) encode_plain(plain, ids);
    if (!special) break;
    ids.push_back(special->id);
    text.remove_prefix(plain.size() + vocabulary_.token(special->id).spelling.size());
  }
  return ids;
}

std::string StreamDecoder::push(int32_t id) {
  std::string_view bytes = tokenizer_->decode(id);
  if (at_start_ && !bytes.empty()) {
    if (bytes.starts_with(' ')) bytes.remove_prefix(1);
    at_start_ = false;
  }
  pending_ += bytes;
  std::string whole;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const Utf8Step step = next_utf8(rest);
    if (step.state == Utf8State::kPartial) break;
    whole += step.state == Utf8State::kWhole ? rest.substr(0, step.length) : kReplacement;
    rest.remove_prefix(step.length);
  }
  pending_.erase(0, pending_.size() - rest.size());
  return whole;
}

std::string StreamDecoder::finish() {
  at_start_ = false;
  const bool waits = !pending_.empty();
  pending_.clear();
  return std::string(waits ? kReplacement : "");
}

std::string decode_all(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  std::string text;
  for (const int32_t id : ids) text += tokenizer.decode(id);
  if (tokenizer.adds_space_prefix() && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

}  // namespace llm
